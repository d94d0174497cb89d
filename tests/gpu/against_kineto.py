"""Coverage, busy share, gaps and counts of the probe's own tracer, beside Kineto's on the same work.

    python3 tests/gpu/against_kineto.py --json out.json [--rounds 6]        (one GPU, torch, msgspec; two minutes)

The two cannot record at the same time, and each leaves traces in its process. So two processes run the same loops, one
under each tracer; they take turns, a fifth of a second each, while the other rests. A figure of ours is compared with
the mean of the two Kineto stretches around it. How far Kineto's own stretches lie apart is printed beside it: where the
host changes its speed from one stretch to the next, no two tracers agree better than one agrees with itself. Kineto
records device activities only, since recording the CPU's would slow eager loops by half. The time of a step without any
tracer is taken in both processes as well.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / name) for name in ("agent", "detectors", "tests/corpus", "tests/gpu")]

STRETCH_MS = 200.0
LOOPS = (
    "graph, batch 8", "eager, batch 8", "eager, batch 1", "a replay, then an eager step", "64 MB copied, then a replay",
)  # fmt: skip
Figures = dict[str, float]


class Loop:
    """A step that runs over and over on its own thread until it is stopped."""

    def __init__(self, step: Callable[[], None]) -> None:
        self._step, self._stop = step, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        import torch

        torch.cuda.set_device(0)
        while not self._stop.is_set():
            self._step()

    def stop(self) -> None:
        """End after the step that runs."""
        self._stop.set()
        self._thread.join()


def figures(traced: dict[str, Any]) -> Figures:
    """What is compared, from fields of TracedWork. Units: ratios, microseconds, kernels per step."""
    steps, kernels = max(1, traced.get("steps", 0)), max(1, kernels_of(traced))
    busy = traced["total_busy_ns"] / traced["total_span_ns"]
    return {
        "coverage": traced.get("total_graph_kernels", 0) / traced["total_kernels"],
        "busy": busy,
        "idle": 1 - busy,
        "step_us": traced["span_ns"] / steps / 1e3,
        "gap_us a step": (traced["span_ns"] - traced["busy_ns"]) / steps / 1e3,
        "kernel_us": traced["kernel_ns"] / kernels / 1e3,
        "kernels a step": kernels / steps,
    }


def kernels_of(traced: dict[str, Any]) -> int:
    """Kernels of the clean steps."""
    return int(traced.get("graph_kernels", 0)) + int(traced.get("eager_kernels", 0))


def ours(tracer: Any) -> tuple[Figures, dict[str, Any]]:
    """One stretch of the native tracer; CUPTI gives copies and no kernels now and then, to either tracer."""
    for empty in range(4):
        found = tracer.run_window(STRETCH_MS)
        if found is not None and "traced" in found:
            about = {k: v for k, v in found["window"].items() if k != "devices"}
            return figures(found["traced"]), {"window": about, "traced": found["traced"], "empty_before": empty}
    raise RuntimeError(f"no kernel was seen four times in a row: {found}")


def kinetos(folder: Path) -> tuple[Figures, dict[str, Any]]:
    """One stretch of Kineto, through torch.profiler, read by the readers of recorded traces."""
    from torch.profiler import ProfilerActivity, profile

    from replaywatch.sources.reader import read

    path = folder / "trace.json"
    for empty in range(4):
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            time.sleep(STRETCH_MS / 1e3)
        found.export_chrome_trace(str(path))
        windows = [w for w in read(path).windows if w.traced is not None and w.traced.steps]
        if windows:
            window = max(windows, key=lambda w: w.traced.total_kernels)
            traced = {field.name: getattr(window.traced, field.name) for field in dataclasses.fields(window.traced)}
            return figures(traced), {"traced": traced, "empty_before": empty}
    raise RuntimeError("Kineto recorded no steps four times in a row")


def loops() -> dict[str, Callable[[], None]]:
    """Work of all kinds: replays, eager steps, both in turn, a graph with a copy before it."""
    import torch
    from decoder import DecodeLoop

    large, small, short = DecodeLoop(8), DecodeLoop(1), DecodeLoop(4, layers=6)
    replay, half = short.stepper("graph"), DecodeLoop(4, layers=6).stepper("eager")
    graph, static = large.capture(), torch.zeros(64 << 20, dtype=torch.uint8, device="cuda")
    fresh = torch.ones_like(static)

    def mixed() -> None:
        replay()
        half()

    def copying() -> None:
        static.copy_(fresh)
        graph.replay()
        large.tokens.tolist()

    made = large.stepper("graph"), large.stepper("eager"), small.stepper("eager"), mixed, copying
    return dict(zip(LOOPS, made, strict=True))


class Side:
    """A process that runs the loops under one tracer, when it is asked to."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def measure(self, name: str) -> dict[str, Any]:
        """One stretch of one loop, as the side tells it. Raises: RuntimeError where the process ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        raise RuntimeError(f"a side ended with {self._process.wait()}")

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


def serve(tracer: str) -> None:
    """A side: for every line with a loop's name, measure and answer."""
    steps = loops()
    for step in steps.values():
        for _ in range(10):
            step()
    from replaywatch.probe.tracer import open_tracer

    native = open_tracer() if tracer == "ours" else None
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            step = steps[line.strip()]
            bare_us = bare(step)
            loop = Loop(step)
            try:
                time.sleep(0.2)
                found, details = ours(native) if native is not None else kinetos(Path(folder))
                answer = {"figures": found, "details": details, "bare_us": bare_us}
            except RuntimeError as error:
                answer = {"silent": str(error)}
            finally:
                loop.stop()
            print(json.dumps(answer), flush=True)


def bare(step: Callable[[], None]) -> float:
    """Microseconds of a step while nothing records."""
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < 0.15:
        step()
        count += 1
    return (time.perf_counter() - begin) / count * 1e6


def compare(name: str, mine: Side, theirs: Side, rounds: int) -> dict[str, Any]:
    """Turns of both tracers over one loop; the first of each pays for what is loaded once."""
    for side in (mine, theirs):
        side.measure(name)
    asked = [(mine.measure(name), theirs.measure(name)) for _ in range(rounds)]
    turns = [turn for turn in asked if "silent" not in turn[0] and "silent" not in turn[1]]
    silent = [sum("silent" in turn[at] for turn in asked) for at in (0, 1)]
    row: dict[str, Any] = {"loop": name, "rounds": len(turns), "silent_rounds": silent, "figures": {}}
    if not turns:
        return row
    for figure in turns[0][0]["figures"]:
        ours_ = [turn[0]["figures"][figure] for turn in turns]
        kineto = [turn[1]["figures"][figure] for turn in turns]
        around = [statistics.fmean(kineto[max(0, at - 1) : at + 1]) for at in range(len(turns))]
        ratios = [m / t for m, t in zip(ours_, around, strict=True) if t]
        own = [b / a for a, b in itertools.pairwise(kineto) if a]
        row["figures"][figure] = {
            "ours": statistics.median(ours_), "kineto": statistics.median(kineto),
            "ratio": statistics.median(ratios) if ratios else None,
            "spread": [min(ratios), max(ratios)] if ratios else None,
            "kineto_to_its_next": [min(own), max(own)] if own else None,
        }  # fmt: skip
    row["bare_us"] = [statistics.median(turn[at]["bare_us"] for turn in turns) for at in (0, 1)]
    row["last"] = {"ours": turns[-1][0]["details"], "kineto": turns[-1][1]["details"]}
    return row


def show(row: dict[str, Any]) -> None:
    """A few lines for one loop."""
    print(f"{row['loop']} (rounds without a kernel, ours and Kineto's: {row['silent_rounds']})")
    if "bare_us" in row:
        print("  a step without a tracer: {:.0f} and {:.0f} us".format(*row["bare_us"]))
    for name, f in row["figures"].items():
        spread, own = f["spread"], f["kineto_to_its_next"]
        ratio = f"{f['ratio'] - 1:+.2%} ({spread[0] - 1:+.2%} to {spread[1] - 1:+.2%})" if spread else "-"
        beside = f"Kineto's own {own[0] - 1:+.2%} to {own[1] - 1:+.2%}" if own else ""
        print(f"  {name:18} ours {f['ours']:10.4f}  Kineto {f['kineto']:10.4f}  {ratio:34} {beside}", flush=True)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--side", choices=("ours", "kineto"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side:
        serve(given.side)
        return
    from machine import describe_machine

    results: dict[str, Any] = {"machine": describe_machine("cuda"), "stretch_ms": STRETCH_MS, "loops": []}
    command = [sys.executable, str(Path(__file__)), "--side"]
    mine, theirs = Side([*command, "ours"]), Side([*command, "kineto"])
    for name in LOOPS:
        row = compare(name, mine, theirs, given.rounds)
        show(row)
        results["loops"].append(row)
        if given.json:
            given.json.write_text(json.dumps(results, indent=1))
    mine.close()
    theirs.close()


if __name__ == "__main__":
    main()
