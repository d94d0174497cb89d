"""What engines' hooks cost per step, on stand-ins: `python bench_hooks.py` from the repository root's `tests`.

Prints microseconds per step with the hooks minus without, for steps of vLLM, a draft's dispatch there, and steps of
SGLang: again and again in a loop, and cold, as an engine calls them: between two steps the processor does so much
else that nothing of them is in its caches. What is left for the helper thread (`Port.later`) is told apart: it takes
the interpreter's lock, but runs with warm caches. Blocks with and without hooks alternate.
"""

import statistics
import sys
from pathlib import Path
from time import perf_counter_ns
from types import SimpleNamespace

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
STAND_INS = ("vllm_0_25", "sglang_0_5_23")
TESTS = ROOT / "tests"
sys.path[:0] = map(str, (ROOT / "agent", TESTS, TESTS / "bench", *(HERE / "stand_ins" / s for s in STAND_INS)))

BLOCKS, WARM, COLD = 60, 100, 31  # of as many steps one measures itself


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


class Batch(SimpleNamespace):
    """SGLang's batch; its own can be referred to weakly, a plain namespace cannot."""


def of_vllm():
    """Steps of vLLM's first runner and of a draft model, by name."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.cudagraph_dispatcher import CudagraphDispatcher
    from vllm.v1.worker import gpu_model_runner

    from probe.engines.batches import decode, scheduled

    config = EngineArgs(sizes=(1, 8, 64)).create_engine_config()
    runner, draft = gpu_model_runner.GPUModelRunner(config), CudagraphDispatcher(config)
    full, mixed = decode(48), scheduled(*[1] * 15, 20)
    return {
        "vLLM, decode, full": lambda: runner.execute_model(full),
        "vLLM, mixed, piecewise": lambda: runner.execute_model(mixed),
        "vLLM, a draft's dispatch": lambda: draft.dispatch(24),
    }  # fmt: skip


def of_sglang():
    """Steps of SGLang's runner, by name."""
    from sglang.srt.model_executor import model_runner

    given = {"model_path": "/models/tiny", "dp_size": 1, "tp_size": 1}
    runners = {
        sizes: model_runner.ModelRunner(
            SimpleNamespace(**given, disable_cuda_graph=not sizes), model_runner.DecodeGraphs(sizes) if sizes else None
        )
        for sizes in ((1, 8, 64), ())
    }
    batch = Batch(forward_mode=model_runner.ForwardMode.DECODE, batch_size=48, seq_lens_sum=4000)
    return {
        "SGLang, decode, full": lambda: runners[1, 8, 64]._forward_raw(batch),
        "SGLang, decode, eager": lambda: runners[()]._forward_raw(batch),
    }


def measure(port, kind, runs):
    """Print what the hooks of an adapter take."""
    from cold import something_else

    adapter, first = kind(port), next(iter(runs.values()))
    found = {(run, cold, on): [] for run in runs for cold in (False, True) for on in (False, True)}
    accounts = {run: [] for run in runs}
    for at in range(BLOCKS):
        on = bool(at % 2)
        if on:
            adapter = kind(port)
            adapter.place()
        else:
            adapter.remove()
        for name, run in runs.items():
            block(port, first, 20, lambda: None)
            found[name, False, on].append(block(port, run, WARM, lambda: None))
            port.take_took()
            found[name, True, on].append(block(port, run, COLD, something_else))
            accounts[name].append(port.take_took() / 1000)
    adapter.remove()
    for name in runs:
        for cold in (False, True):
            with_us, without_us = (statistics.median(t for t, _ in found[name, cold, on]) for on in (True, False))
            left_us = statistics.median(us for _, us in found[name, False, True])
            print(f"{name:25} {'cold' if cold else 'in a loop':10} {with_us - without_us:5.1f} us a step "
                  f"({without_us:.1f} us without), and {left_us:.1f} us on the helper thread")  # fmt: skip
        account_us = statistics.median([us for us in accounts[name] if us] or [0.0])
        print(f"{name:25} cold, by its own account {account_us:.1f} us a step")


def main():
    """Measure, print."""
    from probe.engines.conftest import Parts
    from replaywatch.probe.engines.sglang import SglangAdapter
    from replaywatch.probe.engines.vllm import VllmAdapter

    port = Parts().port
    port.clock.now_ns = perf_counter_ns  # the tests' clock stands still
    measure(port, VllmAdapter, of_vllm())
    measure(port, SglangAdapter, of_sglang())


if __name__ == "__main__":
    main()
