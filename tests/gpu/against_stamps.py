"""Busy time, gaps and kernel times of the probe's tracer and of Kineto, each beside stamps of the kernels' own.

    python3 tests/gpu/against_stamps.py --json out.json [--rounds 6]        (one GPU, torch, nvcc, msgspec; two minutes)

Two tracers cannot record the same moment, and each changes the work that it watches: a replay starts later and its
nodes lie further apart. So what the two say of one loop differs where the loop itself differed. Here every kernel
(stamped.cu) writes down when it began and ended, by the device's nanosecond clock, whoever watches. A tracer is
compared with the stamps of its own stretch; the two tracers with one another through those. A kernel's record is longer
than its stamps by what lies around its first and last instruction, 0.65 to 0.75 us whatever the kernel's length: so
what each tracer adds to the stamps of its own stretch is set against the other's, kernel by kernel (`on_our_work`).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / name) for name in ("agent", "detectors", "tests/corpus", "tests/gpu")]

from against_kineto import Loop, Side  # noqa: E402

STRETCH_MS = 200.0
EDGE_NS = 2_000_000
SLOTS = 1 << 24
TRIES = 8  # CUPTI gives no kernels of eager work now and then, to either tracer
RATE, SHARES = "kernels a second", ("busy", "idle")
Figures = dict[str, float]


@dataclass(frozen=True)
class Work:
    """One loop: kernels of a step on graphs and launched one by one, their lengths, pauses of the host before launches.

    `streams`: launched ones alternate between so many streams, in turns of ten, and overlap.
    """

    graph_kernels: int = 0
    graph_us: float = 0.0
    eager_kernels: int = 0
    eager_us: float = 0.0
    pause_us: float = 0.0
    streams: int = 1


WORK = {
    "graph of 900 kernels of 2 us": Work(graph_kernels=900, graph_us=2),
    "graph of 100 kernels of 30 us": Work(graph_kernels=100, graph_us=30),
    "300 launches of 10 us, the host slower": Work(eager_kernels=300, eager_us=10, pause_us=15),
    "300 launches of 10 us, the device slower": Work(eager_kernels=300, eager_us=10),
    "a graph, then launches": Work(graph_kernels=200, graph_us=5, eager_kernels=60, eager_us=8, pause_us=12),
    "launches on two streams": Work(eager_kernels=200, eager_us=20, streams=2),
}


class Stamps:
    """The library, its ring of stamps, and the device's clock beside the host's."""

    def __init__(self, library: str) -> None:
        import torch

        self.torch, self.cycles_per_us = torch, 1000.0
        self._launch = ctypes.CDLL(library).launch
        self._launch.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * 2,
                                 ctypes.c_uint64]  # fmt: skip
        self._ring = torch.zeros(2 * SLOTS, dtype=torch.int64, device="cuda")
        self._taken = torch.zeros(1, dtype=torch.int64, device="cuda")
        self.launch(1, 0.0, 0.0)
        torch.cuda.synchronize()
        self.cycles_per_us = self._cycles_per_us()

    def launch(self, count: int, us: float, pause_us: float, stream: Any = None) -> None:
        """Launch kernels on a stream, the current one if None. Raises: RuntimeError, with CUDA's error."""
        on = (stream or self.torch.cuda.current_stream()).cuda_stream
        cycles = round(us * self.cycles_per_us)
        error = self._launch(on, count, cycles, round(pause_us * 1000), self._ring.data_ptr(), self._taken.data_ptr(),
                             SLOTS)  # fmt: skip
        if error:
            raise RuntimeError(f"the launch failed with CUDA error {error}")

    def clear(self) -> None:
        """Forget all stamps; nothing may run."""
        self.torch.cuda.synchronize()
        self._taken.zero_()
        self.torch.cuda.synchronize()

    def read(self, begin_ns: int, end_ns: int) -> Any:
        """Stamps of kernels inside a stretch of device time, by their begin. Shape: [kernels, 2], nanoseconds."""
        self.torch.cuda.synchronize()
        taken = int(self._taken.item())
        if taken > SLOTS:
            raise RuntimeError(f"the ring held {SLOTS} of {taken} stamps")
        found = self._ring[: 2 * taken].view(-1, 2).cpu()
        inside = found[(found[:, 0] >= begin_ns) & (found[:, 1] <= end_ns)]
        return inside[inside[:, 0].argsort()]

    def ahead_ns(self) -> int:
        """How far the device's clock is ahead of time.time_ns, by the shortest of some round trips."""
        rounds = []
        for _ in range(30):
            self.clear()
            begin = time.time_ns()
            self.launch(1, 0.0, 0.0)
            self.torch.cuda.synchronize()
            end = time.time_ns()
            rounds.append((end - begin, int(self._ring[0].item()) - (begin + end) // 2))
        return min(rounds)[1]

    def _cycles_per_us(self) -> float:
        """Clock cycles of a microsecond as a warm device runs, from kernels of 20 million.

        Two processes that asked a cold one had kernels of 2.0 and of 2.4 us (docs/data/against_stamps-2026-11-30.json).
        """
        rates: deque[float] = deque(maxlen=5)
        for _ in range(50):
            self.clear()
            self.launch(1, 20_000.0, 0.0)
            self.torch.cuda.synchronize()
            begin, end = self._ring[:2].tolist()
            rates.append(20_000 * self.cycles_per_us / ((end - begin) / 1e3))
        return statistics.median(rates)


def stepper(stamps: Stamps, work: Work) -> Callable[[], None]:
    """A step of one kind of work, which ends when the device is done."""
    torch = stamps.torch
    graph = None
    if work.graph_kernels:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            stamps.launch(work.graph_kernels, work.graph_us, 0.0)
    others = [torch.cuda.Stream() for _ in range(work.streams)]

    def step() -> None:
        if graph is not None:
            graph.replay()
        if work.streams > 1:
            for at in range(work.eager_kernels // 10):
                stamps.launch(10, work.eager_us, work.pause_us, others[at % work.streams])
        elif work.eager_kernels:
            stamps.launch(work.eager_kernels, work.eager_us, work.pause_us)
        torch.cuda.synchronize()

    return step


def of_intervals(found: Any) -> Figures:
    """Figures of begins and ends. Shape: [kernels, 2] nanoseconds, sorted by begin."""
    begin, end = found[:, 0], found[:, 1]
    latest = end.cummax(0).values
    span = int(latest[-1] - begin[0])
    idle = int((begin[1:] - latest[:-1]).clamp(min=0).sum())
    return as_figures(span, span - idle, float((end - begin).sum()), len(found))


def as_figures(span_ns: float, busy_ns: float, kernel_ns: float, kernels: int) -> Figures:
    """What is compared. Units: a share, microseconds."""
    return {
        "busy": busy_ns / span_ns,
        "idle": 1 - busy_ns / span_ns,
        "gap_us a kernel": (span_ns - busy_ns) / kernels / 1e3,
        "kernel_us": kernel_ns / kernels / 1e3,
        RATE: kernels / span_ns * 1e9,
    }


def ours(tracer: Any) -> tuple[Figures, int, int]:
    """One stretch of the native tracer: its figures, and Unix nanoseconds of its begin and end."""
    for _ in range(TRIES):
        found = tracer.run_window(STRETCH_MS)
        if found is not None and "traced" in found:
            work, window = found["traced"], found["window"]
            lengths = [(s["kernel_ns"], s["kernels"]) for d in found["devices"] for s in d["streams"]]
            kernel_ns = sum(ns for ns, _ in lengths) / sum(n for _, n in lengths) * work["total_kernels"]
            told = as_figures(work["total_span_ns"], work["total_busy_ns"], kernel_ns, work["total_kernels"])
            return told, window["start_ns"], window["end_ns"]
    raise RuntimeError(f"no kernel was seen {TRIES} times in a row: {found}")


def kinetos(torch: Any, folder: Path) -> tuple[Figures, int, int]:
    """One stretch of Kineto, through torch.profiler, added up here from the trace that it writes."""
    from torch.profiler import ProfilerActivity, profile

    path = folder / "trace.json"
    for _ in range(TRIES):
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            time.sleep(STRETCH_MS / 1e3)
        found.export_chrome_trace(str(path))
        trace = json.loads(path.read_text())
        base = int(trace.get("baseTimeNanoseconds", 0))
        kernels = [e for e in trace["traceEvents"] if e.get("cat") == "kernel" and "stamped" in e["name"]]
        if len(kernels) > 1:
            rows = [[round(e["ts"] * 1e3), round((e["ts"] + e["dur"]) * 1e3)] for e in kernels]
            found = torch.tensor(rows, dtype=torch.int64)
            found = found[found[:, 0].argsort()]
            return of_intervals(found), int(found[0, 0]) + base, int(found[-1, 1]) + base
    raise RuntimeError(f"Kineto recorded no kernels {TRIES} times in a row")


def serve(tracer: str, library: str) -> None:
    """A side: for every line with a loop's name, measure and answer."""
    stamps = Stamps(library)
    steps = {name: stepper(stamps, work) for name, work in WORK.items()}
    from replaywatch.probe.tracer import open_tracer

    native = open_tracer() if tracer == "ours" else None
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            step = steps[line.strip()]
            ahead = stamps.ahead_ns()
            stamps.clear()
            loop = Loop(step)
            silent = None
            try:
                time.sleep(0.1)
                begun_ns = time.time_ns()
                time.sleep(0.1)
                bare_end_ns = time.time_ns()
                told = ours(native) if native is not None else kinetos(stamps.torch, Path(folder))
            except RuntimeError as error:
                silent = str(error)
            finally:
                loop.stop()
            if silent is not None:
                print(json.dumps({"silent": silent}), flush=True)
                continue
            figures, begin_ns, end_ns = told
            seen = stamps.read(begin_ns + ahead + EDGE_NS, end_ns + ahead - EDGE_NS)
            bare = stamps.read(begun_ns + ahead, bare_end_ns + ahead)
            print(json.dumps({
                "told": figures, "stamps": of_intervals(seen), "bare": of_intervals(bare),
                "stamped_kernels": len(seen), "clock_ahead_ns": ahead,
                "clock_step_ns": int(bare.flatten().unique().diff().min()),
            }), flush=True)  # fmt: skip


def on_our_work(figure: str, stamps: float, rate: float, theirs: Figures, their_stamps: Figures) -> float:
    """What the other tracer would have told of the work that our stamps are of.

    Shape: `stamps` and `rate` are of our stretch: the figure, and kernels a second. What it added to its own stamps is
    added to ours, to a share of the time as many times more as we had kernels.
    """
    added = theirs[figure] - their_stamps[figure]
    return stamps + added * (rate / their_stamps[RATE] if figure in SHARES else 1.0)


def compare(name: str, mine: Side, theirs: Side, rounds: int) -> dict[str, Any]:
    """Turns of both tracers over one loop; the first of each pays for what is loaded once."""
    for side in (mine, theirs):
        side.measure(name)
    asked = [(mine.measure(name), theirs.measure(name)) for _ in range(rounds)]
    silent = [sum("silent" in turn[at] for turn in asked) for at in (0, 1)]
    turns = [turn for turn in asked if "silent" not in turn[0] and "silent" not in turn[1]]
    row: dict[str, Any] = {"loop": name, "rounds": rounds, "silent_rounds": silent, "figures": {}}
    if not turns:
        return row
    for figure in turns[0][0]["told"]:
        mean = [statistics.median(turn[at]["told"][figure] for turn in turns) for at in (0, 1)]
        truth = [statistics.median(turn[at]["stamps"][figure] for turn in turns) for at in (0, 1)]
        bare = [statistics.median(turn[at]["bare"][figure] for turn in turns) for at in (0, 1)]
        to_stamps = [[turn[at]["told"][figure] / turn[at]["stamps"][figure] for turn in turns] for at in (0, 1)]
        between = [
            mine["told"][figure]
            / on_our_work(figure, mine["stamps"][figure], mine["stamps"][RATE], other["told"], other["stamps"])
            for mine, other in turns
        ]
        row["figures"][figure] = {
            "told": mean, "stamps": truth, "stamps_without_a_tracer": bare,
            "to_stamps": [statistics.median(r) for r in to_stamps],
            "ours_to_kineto": statistics.median(between), "spread": [min(between), max(between)],
        }  # fmt: skip
    row["last"] = {"ours": turns[-1][0], "kineto": turns[-1][1]}
    return row


def show(row: dict[str, Any]) -> None:
    """A few lines for one loop."""
    print(f"{row['loop']} (rounds without a kernel, ours and Kineto's: {row['silent_rounds']})")
    for name, f in row["figures"].items():
        own = "  ".join(
            f"{who} {told:9.3f} ({ratio - 1:+.2%} to its stamps, which are {moved / bare - 1:+.1%} to none)"
            for who, told, ratio, moved, bare in zip(
                ("ours", "Kineto"), f["told"], f["to_stamps"], f["stamps"], f["stamps_without_a_tracer"], strict=True
            )
        )
        low, high = f["spread"]
        between = f"{f['ours_to_kineto'] - 1:+.2%} ({low - 1:+.2%} to {high - 1:+.2%})"
        print(f"  {name:16} {own}  ours to Kineto, same work {between}", flush=True)


def compile_stamped(folder: Path) -> Path:
    """stamped.cu as a shared library, with nvcc."""
    library = folder / "libstamped.so"
    source = Path(__file__).with_name("stamped.cu")
    subprocess.run(["nvcc", "-O2", "-shared", "-Xcompiler", "-fPIC", "-o", str(library), str(source)], check=True)
    return library


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--side", choices=("ours", "kineto"), help=argparse.SUPPRESS)
    parser.add_argument("--library", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side:
        serve(given.side, given.library)
        return
    from machine import describe_machine

    results: dict[str, Any] = {"machine": describe_machine("cuda"), "stretch_ms": STRETCH_MS, "loops": []}
    with tempfile.TemporaryDirectory() as folder:
        library = str(compile_stamped(Path(folder)))
        command = [sys.executable, str(Path(__file__)), "--library", library, "--side"]
        mine, theirs = Side([*command, "ours"]), Side([*command, "kineto"])
        for name in WORK:
            row = compare(name, mine, theirs, given.rounds)
            show(row)
            results["loops"].append(row)
            if given.json:
                given.json.write_text(json.dumps(results, indent=1) + "\n")
        mine.close()
        theirs.close()


if __name__ == "__main__":
    main()
