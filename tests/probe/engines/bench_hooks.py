"""What the vLLM hooks cost per step, on the stand-in: `python bench_hooks.py` from the repository root's `tests`.

Prints microseconds per step with the hooks minus without, for a full decode step and for a piecewise mixed one.
"""

import sys
from functools import partial
from pathlib import Path
from time import perf_counter_ns

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT / "agent"), str(ROOT / "tests"), str(HERE / "stand_ins" / "vllm_0_25")]


def best_us(run, rounds=15, times=2000):
    """The fastest round of many, microseconds per call."""
    best = float("inf")
    for _ in range(rounds):
        begin = perf_counter_ns()
        for _ in range(times):
            run()
        best = min(best, (perf_counter_ns() - begin) / times / 1000)
    return best


def main():
    from probe.engines.batches import decode, scheduled
    from probe.engines.conftest import Parts
    from replaywatch.probe.engines.vllm import VllmAdapter

    parts = Parts()
    adapter = parts.attach(VllmAdapter)
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.worker import gpu_model_runner
    from vllm.v1.worker.gpu import model_runner

    config = EngineArgs(sizes=(1, 8, 64)).create_engine_config()
    runners = {"first runner": gpu_model_runner.GPUModelRunner(config), "second": model_runner.GPUModelRunner(config)}
    runners["second"].capture_model()
    batches = {"decode, full": decode(48), "mixed, piecewise": scheduled(*[1] * 15, 20)}
    hooked = {(r, b): best_us(partial(runners[r].execute_model, batches[b])) for r in runners for b in batches}
    adapter.remove()
    for (r, b), with_us in hooked.items():
        bare = best_us(partial(runners[r].execute_model, batches[b]))
        print(f"{r}, {b}: {with_us - bare:.2f} us a step ({bare:.2f} us without)")


if __name__ == "__main__":
    main()
