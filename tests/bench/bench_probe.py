"""What the probe costs a decode loop, on a GPU, beside other tools on the same machine in the same run.

    python3 tests/bench/bench_probe.py --json out.json        (about nine minutes)

On and off alternate in one process in short blocks, in random order, and are compared in pairs; intervals are 95 %
bootstrap intervals over the pairs. Every change of the probe is followed by a moment that is not measured. What happens
more rarely than a block lasts is made to happen in every longer block, and scaled to its default: a window every tenth
of a second instead of every five, a traced stretch of 100 ms in every block instead of every 60 s. Windows go to a real
socket. On a host that swings by per cents no pair of blocks shows less than that; beside them stands what the probe
itself says that its hooks, its thread and its events took. Tools beside it run in processes of their own, because some
never let go of CUPTI.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "agent"), str(ROOT / "tests" / "gpu")]

SHORT_S = {"graph": 0.12, "eager": 0.15}
LONG_S = {"graph": 0.5, "eager": 0.6}
SETTLE_S = 0.04
HOOK_SETTLE_S = 0.3
LOOKED_AT = 20  # steps of which the probe must have counted the replays
OWN_TIME_S = 11.0  # two windows of the default length
WINDOW_S = 0.1
DEFAULT_WINDOW_S, DEFAULT_TRACE_EVERY_S = 5.0, 60.0
# Of the same question, asked elsewhere: not measured here.
PUBLISHED = (
    ("StriaTrace", "time per output token, concurrency 8, Qwen3-Coder-30B-FP8 on 8 H20", "+5.2 %"),
    ("LatencyPrism", "throughput, Qwen3-32B on A100", "< 0.5 %"),
    ("eBPF agents", "various", "0.4 to 1.7 %"),
    ("torch.profiler (in StriaTrace's paper)", "time per output token, concurrency 8", "+83.6 %"),
)
SINK = "import socket,sys\ns=socket.socket(1,2); s.bind(sys.argv[1]); print(flush=True)\nwhile True: s.recv(1<<20)\n"


def paired(
    step: Callable[[], None],
    turn: Callable[[bool], None],
    block_s: float,
    pairs: int,
    during: Callable[[], None] | None,
) -> list[dict[bool, list[float]]]:
    """Step times in seconds of pairs of blocks, on and off in random order; `during` runs in the middle of "on"."""
    found = []
    for _ in range(pairs):
        blocks: dict[bool, list[float]] = {}
        for on in random.sample([True, False], 2):
            turn(on)
            block(step, SETTLE_S, None)
            blocks[on] = block(step, block_s, during if on else None)
        found.append(blocks)
    turn(False)
    return found


def block(step: Callable[[], None], block_s: float, during: Callable[[], None] | None) -> list[float]:
    """Times of the steps of one block."""
    times = []
    begin = last = time.perf_counter()
    while last - begin < block_s:
        step()
        now = time.perf_counter()
        times.append(now - last)
        if during is not None and now - begin > block_s / 3:
            during()
            during = None
            now = time.perf_counter()
        last = now
    return times


def p99(values: list[float]) -> float:
    """The 99th percentile."""
    return sorted(values)[min(len(values) - 1, int(0.99 * len(values)))]


def ratio(pairs: list[dict[bool, list[float]]], of: Callable[[list[float]], float]) -> float:
    """How a figure of the steps changes from off to on, all blocks together."""
    on = [t for pair in pairs for t in pair[True]]
    off = [t for pair in pairs for t in pair[False]]
    return of(on) / of(off)


def interval(
    pairs: list[dict[bool, list[float]]], of: Callable[[list[float]], float], rounds: int = 150
) -> list[float]:
    """The ratio and its 95 % bootstrap interval over pairs: [estimate, low, high]."""
    drawn = sorted(ratio(random.choices(pairs, k=len(pairs)), of) for _ in range(rounds))
    return [ratio(pairs, of), drawn[int(0.025 * rounds)], drawn[int(0.975 * rounds) - 1]]


def over_pairs(
    pairs: list[dict[bool, list[float]]], of: Callable[[list[float]], float], rounds: int = 2000
) -> list[float]:
    """Mean or median over pairs of the ratio of the blocks' mean step times, with its interval."""
    each = [statistics.fmean(p[True]) / statistics.fmean(p[False]) for p in pairs]
    drawn = sorted(of(random.choices(each, k=len(each))) for _ in range(rounds))
    return [of(each), drawn[int(0.025 * rounds)], drawn[int(0.975 * rounds) - 1]]


def switch(options: dict[str, Any]) -> Callable[[bool], None]:
    """Starts and stops the probe."""
    import replaywatch.probe as probe

    def turn(on: bool) -> None:
        probe.stop()
        if on:
            probe.start(**options)

    return turn


def trace_once() -> None:
    """One stretch on the probe's own tracer, beside the steps that go on."""
    from replaywatch.probe.session import current

    session = current()
    if session is not None:
        now = time.perf_counter_ns()
        threading.Thread(target=session.tracing.run, args=(now, 1, 100.0), daemon=True).start()


@dataclass(frozen=True)
class Row:
    """One way to run the probe. `scale`: what happens in a block, by default, as a share of what happens here."""

    name: str
    options: dict[str, Any]
    blocks_s: dict[str, float]
    pairs: dict[str, float]
    during: Callable[[], None] | None = None
    scale: Callable[[float], float] | None = None


ROWS = (
    Row("tier 0, the default", {"kernels": False}, SHORT_S, {"graph": 200, "eager": 160}),
    Row(
        "tier 0, a window every 0.1 s", {"kernels": False, "window_seconds": WINDOW_S}, LONG_S,
        {"graph": 24, "eager": 0}, scale=lambda _: WINDOW_S / DEFAULT_WINDOW_S,
    ),
    Row(
        "tier 0 + 1 (opt-in), a stretch in every block", {"kernels": True, "trace_every_seconds": 86_400.0}, LONG_S,
        {"graph": 14, "eager": 14}, trace_once, lambda block_s: block_s / DEFAULT_TRACE_EVERY_S,
    ),
)  # fmt: skip


def measure_loops(address: str, share: float) -> list[dict[str, Any]]:
    """Batch 1 and 8, graphs and eager, with a share of each row's pairs. What attaches CUPTI for good comes last."""
    from decoder import DecodeLoop

    loops = {batch: DecodeLoop(batch) for batch in (1, 8)}
    steps = {(mode, batch): loops[batch].stepper(mode) for batch in loops for mode in ("graph", "eager")}
    found = []
    for row in ROWS:
        for (mode, batch), step in steps.items():
            pairs = round(row.pairs[mode] * share)
            if pairs:
                block(step, 0.5, None)
                found.append(measure_row(row, f"{mode}, batch {batch}", step, row.blocks_s[mode], address, pairs))
    return found


def measure_row(
    row: Row, loop: str, step: Callable[[], None], block_s: float, address: str, pairs: int
) -> dict[str, Any]:
    """One row of the table, printed."""
    turn = switch({"socket": address, **row.options})
    found = paired(step, turn, block_s, pairs, row.during)
    told = described(loop, row.name, found) | uncounted(loop, LOOKED_AT, replays_seen(step, turn))
    if row.scale is not None:
        told["mean_by_default"] = [1 + (r - 1) * row.scale(block_s) for r in told["mean"]]
    print_row(told)
    return told


def replays_seen(step: Callable[[], None], turn: Callable[[bool], None]) -> int:
    """Replays of some steps that the probe counts on this thread."""
    from replaywatch.probe.session import current

    turn(True)
    session = current()
    assert session is not None
    before = session.recorders.replays_here()
    for _ in range(LOOKED_AT):
        step()
    seen = session.recorders.replays_here() - before
    turn(False)
    return seen


def described(loop: str, what: str, found: list[dict[bool, list[float]]]) -> dict[str, Any]:
    """The figures of some pairs."""
    off = [t for pair in found for t in pair[False]]
    return {
        "loop": loop, "what": what, "steps": len(off), "pairs": len(found), "step_ms": statistics.fmean(off) * 1e3,
        "mean": over_pairs(found, statistics.fmean), "median": over_pairs(found, statistics.median),
        "p99": interval(found, p99),
    }  # fmt: skip


def uncounted(loop: str, steps: int, replays: int) -> dict[str, str]:
    """What is wrong with figures of a loop whose replays the hook did not see, for its row; nothing where it did."""
    expected = steps if loop.startswith("graph") else 0
    if replays == expected:
        return {}
    return {"problem": f"the probe counted {replays} replays of {expected}, so its cost was not measured"}


def measure_own_time() -> list[dict[str, Any]]:
    """What the probe says that it took of each loop at its defaults: hooks, its thread, the events it recorded."""
    from decoder import DecodeLoop

    import replaywatch.probe as probe
    from replaywatch.contract.wire import decode
    from replaywatch.probe.budget import EVENT_PAIR_NS

    rows = []
    for batch in (1, 8):
        loop = DecodeLoop(batch)
        for mode in ("graph", "eager"):
            step = loop.stepper(mode)
            block(step, 0.5, None)
            with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inbox:
                inbox.bind(f"{folder}/agent.sock")
                inbox.settimeout(0.5)
                probe.start(socket=f"{folder}/agent.sock")
                times = block(step, OWN_TIME_S, None)
                probe.stop()
                windows = [w for frame in frames_of(inbox) for w in decode(frame).windows]
            problem = uncounted(f"{mode}, batch {batch}", len(times), sum(w.dispatch.replays for w in windows))
            costs = [w.cost for w in windows if w.cost is not None]
            timed = sum(w.timing.replay.count for w in windows if w.timing.replay is not None)
            hook_ns, thread_ns = sum(c.hook_ns for c in costs), sum(c.helper_cpu_ns for c in costs)
            took_ns = hook_ns + thread_ns + timed * EVENT_PAIR_NS
            rows.append({
                "loop": f"{mode}, batch {batch}", "steps": len(times), "hook_ns": hook_ns, "helper_cpu_ns": thread_ns,
                "timed_replays": timed, "share": took_ns / (sum(times) * 1e9), **problem,
            })  # fmt: skip
            print("{loop:16} own time {share:.4%} of {steps} steps".format(**rows[-1]), *problem.values(), flush=True)
    return rows


def frames_of(inbox: socket.socket) -> list[bytes]:
    """What a datagram socket holds."""
    frames = []
    while True:
        try:
            frames.append(inbox.recv(1 << 20))
        except TimeoutError:
            return frames


def measure_hook(pairs: int = 20) -> list[float]:
    """Microseconds that a replay of a graph of one kernel takes longer: [estimate, low, high].

    Not before the probe has settled: its start would count as part of 2,000 replays.
    """
    import torch

    x = torch.zeros(64, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(1)
    turn = switch({"socket": "/nonexistent", "kernels": False})
    differences = []
    for _ in range(pairs):
        took = {}
        for on in random.sample([True, False], 2):
            turn(on)
            time.sleep(HOOK_SETTLE_S)
            for _ in range(200):
                graph.replay()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(2000):
                graph.replay()
            took[on] = (time.perf_counter() - begin) / 2000 * 1e6
            torch.cuda.synchronize()
        differences.append(took[True] - took[False])
    turn(False)
    drawn = sorted(statistics.median(random.choices(differences, k=pairs)) for _ in range(1000))
    return [statistics.median(differences), drawn[25], drawn[974]]


def measure_import() -> dict[str, float]:
    """Milliseconds and megabytes of import and start in a fresh process: the best of six, bytecode written."""
    code = (
        "import time\ndef rss(): return int(open('/proc/self/statm').read().split()[1]) * 4096\n"
        "a=rss()\nt=time.perf_counter()\n"
        "import replaywatch.probe as p\np.start()\n"
        "print((time.perf_counter()-t)*1e3,(rss()-a)/1e6)"
    )
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"PYTHONPATH": str(ROOT / "agent"), "PYTHONPYCACHEPREFIX": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        runs = [
            [float(w) for w in subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True,
                                              text=True, check=True).stdout.split()]
            for _ in range(6)
        ]  # fmt: skip
    return {"import_ms": min(r[0] for r in runs), "import_mb": min(r[1] for r in runs)}


# Other tools. Each is a context manager around an "on" block, made anew for every block.


def tool_torch_profiler() -> Any:
    """torch.profiler with both activities, as in its documentation."""
    from torch.profiler import ProfilerActivity, profile

    return profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])


def tool_torch_profiler_device() -> Any:
    """torch.profiler, device activity only."""
    from torch.profiler import ProfilerActivity, profile

    return profile(activities=[ProfilerActivity.CUDA])


class tool_cupti_python:
    """cupti-python: kernel records, continuously."""

    def __enter__(self) -> None:
        from cupti import cupti

        self.records = 0

        def wanted() -> tuple[int, int]:
            return 8 << 20, 0

        def done(activities: list[Any]) -> None:
            self.records += len(activities)

        self.cupti = cupti
        cupti.activity_register_callbacks(wanted, done)
        cupti.activity_enable(cupti.ActivityKind.CONCURRENT_KERNEL)

    def __exit__(self, *error: object) -> None:
        self.cupti.activity_flush_all(0)
        self.cupti.activity_disable(self.cupti.ActivityKind.CONCURRENT_KERNEL)


class tool_nvrx:
    """NVIDIA's straggler detection: a section around the block, with kernel statistics."""

    ready = False

    def __enter__(self) -> None:
        try:
            from nvidia_resiliency_ext.straggler import Detector
        except ImportError:
            from nvidia_resiliency_ext.attribution.straggler import Detector
        if not tool_nvrx.ready:
            Detector.initialize(scores_to_compute="all", gather_on_rank0=False, profiling_interval=1)
            tool_nvrx.ready = True
        self.section = Detector.detection_section("decode", profile_cuda=True)
        self.section.__enter__()

    def __exit__(self, *error: object) -> None:
        self.section.__exit__(None, None, None)


TOOLS: dict[str, tuple[str | None, Callable[[], Any]]] = {
    "torch.profiler, CPU and CUDA": (None, tool_torch_profiler),
    "torch.profiler, CUDA": (None, tool_torch_profiler_device),
    "cupti-python, kernel records": ("cupti", tool_cupti_python),
    "nvidia-resiliency-ext, straggler": ("nvidia_resiliency_ext", tool_nvrx),
}


def measure_tool(name: str, pairs: int) -> list[dict[str, Any]]:
    """The same loop under another tool, running all the time; for a process of its own."""
    import torch
    from decoder import DecodeLoop

    make = TOOLS[name][1]
    rows = []
    loop = DecodeLoop(8)
    for mode in ("graph", "eager"):
        step = loop.stepper(mode)
        for _ in range(20):
            step()
        held: list[Any] = []

        def turn(on: bool, held: list[Any] = held) -> None:
            while held:
                held.pop().__exit__(None, None, None)
            torch.cuda.synchronize()
            if on:
                held.append(make())
                held[-1].__enter__()

        found = paired(step, turn, 0.3, pairs, None)
        rows.append(described(f"{mode}, batch 8", name, found))
    return rows


def other_tools(keep: Callable[..., None]) -> None:
    """Run every tool that is installed in a process of its own; `keep` gets the rows so far after each."""
    rows: list[dict[str, Any]] = []
    for name, (package, _) in TOOLS.items():
        if package is not None and importlib.util.find_spec(package) is None:
            print(f"{name:44} not installed here")
            rows.append({"what": name, "skipped": "not installed"})
            keep(others=rows)
            continue
        command = [sys.executable, __file__, "--tool", name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason"])[-1][:160]
            print(f"{name:44} could not run: {reason}")
            rows.append({"what": name, "skipped": reason})
            keep(others=rows)
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        for row in found:
            print_row(row)
        rows += found
        keep(others=rows)


def machine() -> dict[str, Any]:
    """The machine and the versions, without the name of a host."""
    import torch

    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version,clocks.sm", "--format=csv,noheader"],
        capture_output=True, text=True, check=False,
    ).stdout.split("\n")[0]  # fmt: skip
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")
    return {
        "gpu": torch.cuda.get_device_name(0), "driver, SM clock now": driver, "cuda": torch.version.cuda,
        "torch": torch.__version__, "python": platform.python_version(), "cpu": cpu, "cpus": os.cpu_count(),
    }  # fmt: skip


def percent(three: list[float]) -> str:
    """A ratio and its interval as a change in per cent."""
    change, low, high = ((value - 1) * 100 for value in three)
    return f"{change:+7.3f} % [{low:+.3f}, {high:+.3f}]"


def print_row(row: dict[str, Any]) -> None:
    """One line of the table."""
    what = f"{row['loop']:16} {row['what']:45} {row['step_ms']:8.3f} ms"
    print(f"{what}  mean {percent(row['mean'])}  median {percent(row['median'])}  p99 {percent(row['p99'])}")
    if "mean_by_default" in row:
        print(f"{'':16} {'  as often as by default':45} {'':11}  mean {percent(row['mean_by_default'])}")
    if "problem" in row:
        print(f"{'':16} {row['problem']}")
    sys.stdout.flush()


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the results here as well")
    parser.add_argument("--share", type=float, default=1.0, help="share of the pairs of blocks to run (default: 1)")
    parser.add_argument("--tool", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.tool:
        print(json.dumps(measure_tool(arguments.tool, max(4, round(8 * arguments.share)))))
        return
    import torch

    if not torch.cuda.is_available():
        sys.exit("this benchmark needs an NVIDIA GPU; tests/probe/test_imports.py and test_cost.py run without one")
    begin = time.monotonic()
    results: dict[str, Any] = {"machine": machine()}

    def keep(**more: Any) -> None:
        results.update(more, seconds=round(time.monotonic() - begin, 1))
        if arguments.json:
            arguments.json.write_text(json.dumps(results, indent=1))

    for name, value in results["machine"].items():
        print(f"{name:22} {value}")
    keep(**measure_import())
    print(f"{'import and start':22} {results['import_ms']:.1f} ms, {results['import_mb']:.1f} MB")
    keep(replay_hook_us=measure_hook())
    print("{:22} {:.2f} us [{:.2f}, {:.2f}]".format("replay hook", *results["replay_hook_us"]))
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/agent.sock"
        sink = subprocess.Popen([sys.executable, "-c", SINK, path], stdout=subprocess.PIPE)
        try:
            assert sink.stdout is not None
            sink.stdout.readline()
            keep(loops=measure_loops(path, arguments.share))
        finally:
            sink.terminate()
            sink.wait()
    keep(own_time=measure_own_time())
    keep(published=PUBLISHED)
    other_tools(keep)
    print("\npublished by others, not measured here:")
    for name, what, figure in PUBLISHED:
        print(f"  {name:40} {what:70} {figure}")
    print(f"took {results['seconds']} s")
    if any("problem" in row for row in (*results["loops"], *results["own_time"])):
        sys.exit("some rows are not what they are called: see above")


if __name__ == "__main__":
    main()
