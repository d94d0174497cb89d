"""What the vLLM hooks cost per step, on the stand-in: `python bench_hooks.py` from the repository root's `tests`.

Prints microseconds per step with the hooks minus without, for a full decode step, a piecewise mixed one and a draft's
dispatch: again and again in a loop, and cold, as an engine calls them: between two steps the processor does so much
else that nothing of them is in its caches. What is left for the helper thread (`Port.later`) is told apart: it takes
the interpreter's lock, but runs with warm caches. Blocks with and without hooks alternate.
"""

import ast
import inspect
import json
import statistics
import sys
from pathlib import Path
from time import perf_counter_ns

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [str(ROOT / "agent"), str(ROOT / "tests"), str(HERE / "stand_ins" / "vllm_0_25")]

BLOCKS, WARM, COLD = 120, 100, 15
FLUSHED = bytearray(16 << 20)
SOURCE = inspect.getsource(json)


def something_else():
    """Much code and much memory, as between two steps of an engine."""
    FLUSHED[::64] = bytes(len(FLUSHED) // 64)
    ast.parse(SOURCE)


def block(port, run, times, between):
    """Microseconds of calls, and of what each left for the helper thread."""
    took, left = [], []
    for _ in range(times):
        between()
        begin = perf_counter_ns()
        run()
        took.append((perf_counter_ns() - begin) / 1000)
        begin = perf_counter_ns()
        port.work_off()
        left.append((perf_counter_ns() - begin) / 1000)
    return statistics.median(took), statistics.median(left)


def main():
    """Measure, print."""
    from probe.engines.batches import decode, scheduled
    from probe.engines.conftest import Parts
    from replaywatch.probe.engines.vllm import VllmAdapter

    parts = Parts()
    adapter = parts.attach(VllmAdapter)
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher
    from vllm.v1.worker import gpu_model_runner

    config = EngineArgs(sizes=(1, 8, 64)).create_engine_config()
    runner, draft = gpu_model_runner.GPUModelRunner(config), CudagraphDispatcher(config)
    full, mixed = decode(48), scheduled(*[1] * 15, 20)
    runs = {
        "decode, full": lambda: runner.execute_model(full), "mixed, piecewise": lambda: runner.execute_model(mixed),
        "a draft's dispatch": lambda: draft.dispatch(24),
    }  # fmt: skip
    found = {(run, cold, on): [] for run in runs for cold in (False, True) for on in (False, True)}
    for at in range(BLOCKS):
        on = bool(at % 2)
        if on:
            adapter = VllmAdapter(parts.port)
            adapter.place()
        else:
            adapter.remove()
        for name, run in runs.items():
            block(parts.port, runs["decode, full"], 20, lambda: None)
            found[name, False, on].append(block(parts.port, run, WARM, lambda: None))
            found[name, True, on].append(block(parts.port, run, COLD, something_else))
    adapter.remove()
    for name in runs:
        for cold in (False, True):
            with_us, without_us = (statistics.median(t for t, _ in found[name, cold, on]) for on in (True, False))
            left_us = statistics.median(us for _, us in found[name, False, True])
            print(f"{name:20} {'cold' if cold else 'in a loop':10} {with_us - without_us:5.1f} us a step "
                  f"({without_us:.1f} us without), and {left_us:.1f} us on the helper thread")  # fmt: skip


if __name__ == "__main__":
    main()
