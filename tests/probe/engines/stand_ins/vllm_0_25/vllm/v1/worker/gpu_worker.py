"""Stands in for the worker that owns a runner."""


class Worker:
    """Warms up through the runner's ordinary step, as the second runner's warm-up does."""

    def __init__(self, vllm_config, runner):
        self.vllm_config, self.model_runner = vllm_config, runner

    def determine_available_memory(self):
        self.model_runner._dummy_run(8)
        return 1 << 30

    def compile_or_warm_up_model(self, batch):
        self.model_runner.execute_model(batch)
        self.model_runner.capture_model()
        self.model_runner.execute_model(batch)

    def execute_dummy_batch(self):
        self.model_runner._dummy_run(1, uniform_decode=True)
