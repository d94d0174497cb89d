"""Stands in for `vllm.LLM`: steps sleep as long as a small GPU would take."""

import time
from types import SimpleNamespace


class SamplingParams:
    """How many tokens, and nothing else."""

    def __init__(self, max_tokens=16, **others):
        self.max_tokens = max_tokens


class LLM:
    """One engine; a step takes 1 ms replayed, 2 piecewise, 5 eager."""

    def __init__(self, model, enforce_eager=False, compilation_config=None, max_num_seqs=64, **others):
        from vllm.config.compilation import CUDAGraphMode
        from vllm.engine.arg_utils import EngineArgs
        from vllm.plugins import load_general_plugins
        from vllm.v1.worker.gpu.model_runner import GPUModelRunner
        from vllm.v1.worker.gpu_worker import Worker

        load_general_plugins()
        given = compilation_config or {}
        mode = given.get("cudagraph_mode")
        config = EngineArgs(
            enforce_eager, CUDAGraphMode[mode] if mode else None,
            given.get("cudagraph_capture_sizes", [1, 2, 4, 8, 16, 32, 64]), max_num_seqs, model=model,
        ).create_engine_config()  # fmt: skip
        self.runner = GPUModelRunner(config)
        Worker(config, self.runner).compile_or_warm_up_model(_batch([1, 1]))

    def generate(self, prompts, sampling, use_tqdm=True):
        self._step([len(p["prompt_token_ids"]) for p in prompts])
        for _ in range(sampling.max_tokens - 1):
            self._step([1] * len(prompts))
        tokens = list(range(sampling.max_tokens))
        return [SimpleNamespace(outputs=[SimpleNamespace(token_ids=tokens)]) for _ in prompts]

    def _step(self, tokens):
        mode = self.runner.execute_model(_batch(tokens)).cg_mode.name
        time.sleep({"FULL": 0.001, "PIECEWISE": 0.002}.get(mode, 0.005))


def _batch(tokens):
    return SimpleNamespace(num_scheduled_tokens=dict(enumerate(tokens)), total_num_scheduled_tokens=sum(tokens))
