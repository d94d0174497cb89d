"""What torch.profiler costs the decoder, per kind of event, and what launches and graph nodes cost on this machine.

python3 tests/corpus/profiler_cost.py --out DIR   (writes DIR/profiler_cost.json; under 60 s on one GPU)
All times are microseconds. Nothing is measured after a profiler has run unless its name says so.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from ab_timing import BlockPlan, block_us, time_forms
from machine import describe_machine
from privacy import scrub
from torch.profiler import ProfilerActivity, profile, schedule
from tracing import count_events
from workloads.decoder_model import make_kit

from bench import Bench, open_bench

Step = Callable[[], None]
Json = dict[str, object]
MODES: dict[str, tuple[tuple[str, ...], bool]] = {
    "cuda": (("CUDA",), False),
    "cpu": (("CPU",), False),
    "cpu+cuda": (("CPU", "CUDA"), False),
    "stack": (("CPU", "CUDA"), True),
}
SIZES = ((22, 4, 512), (8, 4, 512))
"""layers, batch, kv_len at hidden 2048."""
NODE_COUNTS = (100, 200, 500, 1000)


def profiled_us(bench: Bench, step: Step, mode: str, calls: int, counted: bool) -> tuple[float, dict[str, int]]:
    """Wall microseconds per step under a profiler mode, and with `counted` the events of those steps by category."""
    names, stack = MODES[mode]
    wanted = [getattr(ProfilerActivity, name) for name in names if name == "CPU" or bench.cuda]
    plan = schedule(wait=0, warmup=2, active=calls, repeat=1)
    prof = profile(activities=wanted or [ProfilerActivity.CPU], schedule=plan, record_shapes=stack, with_stack=stack)
    prof.start()
    for _ in range(2):
        step()
        bench.sync()
        prof.step()
    step_us: list[float] = []
    for _ in range(calls):
        step_us.append(block_us(step, bench.sync, 1))
        prof.step()
    prof.stop()
    events: dict[str, int] = {}
    if counted:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            prof.export_chrome_trace(str(path))
            events = count_events(path.read_text(encoding="utf-8", errors="replace"))
    return statistics.median(step_us), events


def plain_us(bench: Bench, step: Step, calls: int) -> float:
    """Median wall microseconds of single steps with a synchronisation around each, as the profiled ones have."""
    return statistics.median(block_us(step, bench.sync, 1) for _ in range(calls))


def profile_form(bench: Bench, step: Step, before: list[float], calls: int, rounds: int) -> Json:
    """A form under each mode, the modes in turn; `before` was measured (us) before any profiler in this process."""
    between: list[float] = []
    times: dict[str, list[float]] = {mode: [] for mode in MODES}
    events: dict[str, dict[str, float]] = {}
    for turn in range(rounds):
        for mode in MODES:
            step_us, counted = profiled_us(bench, step, mode, calls, counted=turn == 0)
            times[mode].append(step_us)
            if counted:
                events[mode] = {kind: round(count / calls, 2) for kind, count in counted.items()}
        between.append(plain_us(bench, step, 3 * calls))
    medians = {mode: statistics.median(values) for mode, values in times.items()}
    none_us = statistics.median(before)
    return {
        "none_us": round(none_us, 2),
        "none_block_us": [round(value, 2) for value in before],
        "none_after_profiler_us": [round(value, 2) for value in between],
        "mode_us": {mode: round(value, 2) for mode, value in medians.items()},
        "mode_all_us": {mode: [round(value, 2) for value in values] for mode, values in times.items()},
        "mode_ratio": {mode: round(value / none_us, 4) for mode, value in medians.items()},
        "events_per_step": events,
        "cost_us_per_event": event_costs(none_us, medians, events),
    }


def event_costs(none_us: float, mode_us: dict[str, float], events: dict[str, dict[str, float]]) -> Json:
    """Added time over added events: API calls with their kernels, CPU operators, Python frames."""

    def count(mode: str, *kinds: str) -> float:
        return sum(events.get(mode, {}).get(kind, 0.0) for kind in kinds)

    def share(added_us: float, added: float) -> float | None:
        return round(added_us / added, 4) if added > 0 else None

    return {
        "per_api_call_cuda_only": share(mode_us["cuda"] - none_us, count("cuda", "cuda_runtime", "cuda_driver")),
        "per_kernel_cuda_only": share(mode_us["cuda"] - none_us, count("cuda", "kernel")),
        "per_cpu_op_cpu_only": share(mode_us["cpu"] - none_us, count("cpu", "cpu_op")),
        "per_cpu_op_on_top_of_cuda": share(mode_us["cpu+cuda"] - mode_us["cuda"], count("cpu+cuda", "cpu_op")),
        "per_python_function": share(mode_us["stack"] - mode_us["cpu+cuda"], count("stack", "python_function")),
        "per_kernel_cpu_cuda": share(mode_us["cpu+cuda"] - none_us, count("cpu+cuda", "kernel")),
    }


def empty_kernel(bench: Bench) -> tuple[str, Step]:
    """A launch of an empty kernel, and how it was made: NVRTC where this torch has it, else the spin kernel."""
    compile_kernel = getattr(torch.cuda, "_compile_kernel", None)
    try:
        if compile_kernel is None:
            raise AttributeError("torch.cuda._compile_kernel")
        kernel = compile_kernel('extern "C" __global__ void empty_kernel(int unused) {}', "empty_kernel")
        launch: Step = lambda: kernel(grid=(1, 1, 1), block=(32, 1, 1), args=[0])  # noqa: E731
        launch()
        bench.sync()
        return "nvrtc_empty", launch
    except Exception as error:  # a private call: any change in it means the fallback
        print(f"no NVRTC kernel ({type(error).__name__}: {error}); _sleep(0) instead", flush=True)
        return "sleep0", lambda: torch.cuda._sleep(0)  # type: ignore[no-untyped-call]


def tiny_launches(bench: Bench) -> dict[str, Step]:
    """Launches of the smallest kernels: empty, spinning for no time, one element through a torch operator."""
    x = torch.zeros(1, device=bench.device)
    name, launch = empty_kernel(bench)

    def add_one() -> None:
        x.add_(1.0)

    def sleep_none() -> None:
        torch.cuda._sleep(0)  # type: ignore[no-untyped-call]

    return {name: launch, "sleep0": sleep_none, "add_one_element": add_one}


def repeated(launch: Step, times: int) -> Step:
    """A step of so many launches in a row."""

    def run() -> None:
        for _ in range(times):
            launch()

    return run


def launch_floor(bench: Bench, launch: Step) -> Json:
    """Host time of a launch into a queue with room, and spacing on the device behind a queue filled beforehand."""
    host_us: list[float] = []
    spacing_us: list[float] = []
    count = 400
    for _ in range(30):
        bench.sync()
        begin_ns = time.perf_counter_ns()
        for _ in range(count):
            launch()
        host_us.append((time.perf_counter_ns() - begin_ns) / count / 1e3)
    for _ in range(10):
        bench.sync()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda._sleep(20_000_000)  # type: ignore[no-untyped-call]  # about 10 ms, longer than the launches take
        begin.record()
        for _ in range(count):
            launch()
        end.record()
        bench.sync()
        spacing_us.append(begin.elapsed_time(end) * 1e3 / count)
    quantiles = statistics.quantiles(host_us, n=10)
    return {
        "host_us": round(statistics.median(host_us), 3),
        "host_p10_us": round(quantiles[0], 3),
        "host_p90_us": round(quantiles[-1], 3),
        "device_spacing_us": round(statistics.median(spacing_us), 3),
    }


def node_gap(bench: Bench, launch: Step) -> Json:
    """Replay time, and host time of the launch call, of graphs of N nodes in a row; the slope is us a node."""
    rows: list[Json] = []
    for nodes in NODE_COUNTS:
        replay = bench.capture(repeated(launch, nodes))
        wall_us = time_forms({"replay": replay}, bench.sync, BlockPlan(3, 0.08))["replay"].median_us
        host_us: list[float] = []
        for _ in range(20):
            bench.sync()
            begin_ns = time.perf_counter_ns()
            replay()
            host_us.append((time.perf_counter_ns() - begin_ns) / 1e3)
        launch_us = round(statistics.median(host_us), 3)
        rows.append({"nodes": nodes, "replay_us": round(wall_us, 3), "launch_host_us": launch_us})
    nodes_all = [float(str(row["nodes"])) for row in rows]
    wall = statistics.linear_regression(nodes_all, [float(str(row["replay_us"])) for row in rows])
    host = statistics.linear_regression(nodes_all, [float(str(row["launch_host_us"])) for row in rows])
    return {
        "rows": rows,
        "us_per_node": round(wall.slope, 4),
        "intercept_us": round(wall.intercept, 3),
        "host_us_per_node": round(host.slope, 5),
        "host_intercept_us": round(host.intercept, 3),
    }


def traced_gaps(bench: Bench, launch: Step, nodes: int = 500) -> Json:
    """Kernel duration and gap between kernels inside a replay as a CUDA-only trace shows them."""
    replay = bench.capture(repeated(launch, nodes))
    with profile(activities=[ProfilerActivity.CUDA]) as prof:
        for _ in range(4):
            replay()
            bench.sync()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        prof.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8", errors="replace"))["traceEvents"]
    kernels = sorted((float(e["ts"]), float(e["dur"])) for e in events if e.get("cat") == "kernel")
    gaps = [after[0] - before[0] - before[1] for before, after in itertools.pairwise(kernels)]
    near = [gap for gap in gaps if gap < 20.0]
    return {
        "kernels": len(kernels),
        "duration_us": round(statistics.median(dur for _, dur in kernels), 3),
        "gap_us": round(statistics.median(near), 3),
    }


def guarded(name: str, results: Json, measure: Callable[[], object]) -> None:
    """Run one part; what breaks it becomes its result."""
    begin_s = time.perf_counter()
    try:
        results[name] = measure()
    except Exception:
        results[name] = {"error": scrub(traceback.format_exc(limit=-3))[-800:]}
    print(f"{name}: {time.perf_counter() - begin_s:.1f} s {json.dumps(results[name])[:300]}", flush=True)


def calibrate(bench: Bench, results: Json) -> None:
    """Launch floors and node gaps, all of them before any profiler."""
    launches = tiny_launches(bench)
    for name, launch in launches.items():
        guarded(f"launch_floor_{name}", results, partial(launch_floor, bench, launch))
    for name, launch in launches.items():
        guarded(f"node_gap_{name}", results, partial(node_gap, bench, launch))


def profile_decoders(bench: Bench, results: Json, out: Path, end_s: float) -> None:
    """All forms without a profiler first, then each under the modes; the file is written after each."""
    calls, rounds = (2, 1) if bench.smoke else (6, 3)
    forms: dict[str, Step] = {}
    for layers, batch, kv_len in SIZES:
        kit = make_kit(bench, 2048, layers, batch, kv_len)
        forms[f"decoder_l{layers}_b{batch}_eager"] = kit.eager
        forms[f"decoder_l{layers}_b{batch}_graph"] = kit.graph
    before: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(4):  # the first round only warms up
        for name, step in forms.items():
            before[name].append(plain_us(bench, step, 3 * calls))
    for name, step in forms.items():
        if time.perf_counter() > end_s:
            results[name] = {"error": "no time left"}
            continue
        guarded(name, results, partial(profile_form, bench, step, before[name][1:], calls, rounds))
        (out / "profiler_cost.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """Calibrate, then profile; write the file after each part's end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--seed", type=int, default=20261129)
    parser.add_argument("--budget-seconds", type=float, default=60.0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    begin_s = time.perf_counter()
    bench = open_bench(options.device, options.smoke, options.seed)
    results: Json = {"machine": describe_machine(options.device), "seed": options.seed, "unit": "us"}
    if bench.cuda:
        calibrate(bench, results)
    profile_decoders(bench, results, options.out, begin_s + options.budget_seconds)
    if bench.cuda:
        for label, launch in tiny_launches(bench).items():
            guarded(f"traced_gaps_{label}", results, partial(traced_gaps, bench, launch))
    results["duration_s"] = round(time.perf_counter() - begin_s, 1)
    (options.out / "profiler_cost.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
