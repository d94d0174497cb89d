"""Device time of an eager step that is queued behind a kernel that waits, beside the step as a graph and as it is.

    python3 tests/gpu/queued.py --json out.json        (one GPU, torch; half a minute)

A host that launches behind a waiting kernel is ahead of the device when that ends, so two events around the step see
the device's work without the host's gaps: what the step would take as one graph, nearly, and without CUPTI. It costs
one step its own time once more. Measured here: how near, and what it costs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / name) for name in ("agent", "detectors", "collector", "tests/corpus", "tests/gpu")]

ROUNDS = 20
AHEAD = 1.5  # the waiting kernel lasts so many usual steps


def waited_ms(step: Callable[[], None], seconds: float = 1.0) -> float:
    """A step that the host waits for, the mean of a second."""
    import torch

    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        step()
        torch.cuda.synchronize()
        count += 1
    return (time.perf_counter() - begin) / count * 1e3


def between_events_ms(step: Callable[[], None], before: Callable[[], None] | None = None) -> list[float]:
    """Device time between events around a step, and the wall time of it all. Shape: medians [device, wall]."""
    import torch

    device, wall = [], []
    for _ in range(ROUNDS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        if before is not None:
            before()
        start.record()
        step()
        end.record()
        torch.cuda.synchronize()
        wall.append((time.perf_counter() - begin) * 1e3)
        device.append(start.elapsed_time(end))
    return [statistics.median(device), statistics.median(wall)]


def cycles_per_ms() -> float:
    """Clock cycles of torch's waiting kernel in a millisecond, as the device runs now."""
    import torch

    cycles = 20_000_000
    return cycles / between_events_ms(lambda: torch.cuda._sleep(cycles))[0]


def row(name: str, eager: Callable[[], None], replay: Callable[[], None], rate: float) -> dict[str, Any]:
    """All times of one loop, in milliseconds."""
    import torch

    for _ in range(20):
        eager()
    eager_ms, graph_ms = waited_ms(eager), waited_ms(replay)
    wait = round(AHEAD * eager_ms * rate)
    queued_ms, wall_ms = between_events_ms(eager, lambda: torch.cuda._sleep(wait))
    found = {
        "loop": name, "eager_ms": eager_ms, "graph_ms": graph_ms, "graph_device_ms": between_events_ms(replay)[0],
        "eager_device_ms": between_events_ms(eager)[0], "queued_device_ms": queued_ms,
        "recoverable": 1 - graph_ms / eager_ms, "told": 1 - queued_ms / eager_ms, "extra_ms": wall_ms - eager_ms,
    }  # fmt: skip
    print(json.dumps(found), flush=True)
    return found


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    import torch
    from decoder import DecodeLoop
    from machine import describe_machine

    from replaywatch.demo.live import Shape, build_step, capture

    rate = cycles_per_ms()
    answer: dict[str, Any] = {"machine": describe_machine("cuda"), "rounds": ROUNDS, "rows": []}
    with torch.inference_mode():
        for batch in (1, 8, 48):
            loop = DecodeLoop(batch)
            answer["rows"].append(row(f"decoder, batch {batch}", loop.eager, loop.capture().replay, rate))
        for batch in (8, 32):
            step = build_step(Shape(), batch)
            answer["rows"].append(row(f"demo, batch {batch}", step, capture(step).replay, rate))
    if given.json:
        given.json.write_text(json.dumps(answer, indent=1) + "\n")


if __name__ == "__main__":
    main()
