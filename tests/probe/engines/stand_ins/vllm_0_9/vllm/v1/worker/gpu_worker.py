"""Stands in for the worker of 0.9 that owns a runner."""


class Worker:
    """Warms up and keeps other ranks company with dummy batches."""

    def __init__(self, runner):
        self.vllm_config, self.model_runner = runner.vllm_config, runner

    def determine_available_memory(self):
        self.model_runner._dummy_run(8)

    def compile_or_warm_up_model(self):
        self.model_runner.capture_model()

    def execute_dummy_batch(self):
        self.model_runner._dummy_run(1)
