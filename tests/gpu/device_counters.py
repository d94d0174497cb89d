"""What the agent's reading of NVML (GPM) says of loops whose busy share is known from the kernels' own stamps.

    python3 tests/gpu/device_counters.py --json out.json        (a Hopper GPU or later, torch, nvcc, pynvml)

It asks from outside of the process and attaches nothing to it. Shape of a row: busy by the stamps, the share of time in
which the engine was active, milliseconds a step, and those of them in which the engine was active. Decoders run as
graphs and eager, so that an eager step's active time can be held against what the same step takes as a graph. `harm`:
whether a decode step takes longer while another process reads the counters twenty times a second, in pairs of blocks;
ratios with 95 % intervals.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / name) for name in ("agent", "detectors", "tests/corpus", "tests/gpu")]

SECONDS = 2.0


class Counted:
    """A step that counts itself."""

    def __init__(self, step: Callable[[], None]) -> None:
        self.step, self.times = step, 0

    def __call__(self) -> None:
        self.step()
        self.times += 1


def read_often(device: str, on: Any, times: Any) -> None:
    """In a process of its own: read the counters every 50 ms while the event is set; `times` counts."""
    from gpm import Engine

    engine = Engine(device)
    while True:
        on.wait()
        times.value += engine.active_ratio() is not None
        time.sleep(0.05)


def harm(device: str, steps: dict[str, Callable[[], None]]) -> list[dict[str, Any]]:
    """What reading costs steps that are read about."""
    sys.path[:0] = [str(ROOT / "tests/bench")]
    from bench_probe import described, paired, percent

    context = multiprocessing.get_context("spawn")
    on, times = context.Event(), context.Value("q", 0)
    reader = context.Process(target=read_often, args=(device, on, times), daemon=True)
    reader.start()
    time.sleep(2)
    rows = []
    try:
        for name, step in steps.items():
            found = paired(step, lambda yes: on.set() if yes else on.clear(), 0.2, 40, None)
            row = described(name, "NVML's GPM every 50 ms, from outside", found)
            rows.append(row | {"reads": times.value, "is_alive": reader.is_alive()})
            if not times.value or not reader.is_alive():
                raise RuntimeError("the counters were not read, so that nothing was measured of what it costs")
            times.value = 0
            print(f"{name:30} median {percent(rows[-1]['median'])}  p99 {percent(rows[-1]['p99'])}", flush=True)
    finally:
        reader.kill()
    return rows


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    import torch
    from against_kineto import Loop
    from against_stamps import WORK, Stamps, compile_stamped, of_intervals, stepper
    from decoder import DecodeLoop
    from gpm import Engine
    from machine import describe_machine

    answer: dict[str, Any] = {"machine": describe_machine("cuda"), "seconds": SECONDS, "rows": []}
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    engine = Engine(uuid)
    decoders = {batch: DecodeLoop(batch) for batch in (1, 8, 48)}
    with tempfile.TemporaryDirectory() as folder:
        stamps = Stamps(str(compile_stamped(Path(folder))))
        steps = {name: stepper(stamps, work) for name, work in WORK.items()}
        steps |= {
            f"decoder, batch {batch}, {mode}": decode.stepper(mode)
            for batch, decode in decoders.items()
            for mode in ("graph", "eager")
        }
        for name, bare in steps.items():
            stamps.clear()
            step = Counted(bare)
            loop = Loop(step)
            try:
                time.sleep(0.3)
                engine.active_ratio()
                begin_s, before = time.perf_counter(), step.times
                time.sleep(SECONDS)
                active = engine.active_ratio()
                took_s, made = time.perf_counter() - begin_s, step.times - before
            finally:
                loop.stop()
            seen = stamps.read(0, 1 << 62)
            if active is None:
                raise RuntimeError("NVML does not tell how active this device is")
            step_ms = took_s / max(1, made) * 1e3
            row = {
                "loop": name, "busy_by_stamps": of_intervals(seen)["busy"] if len(seen) > 1 else None,
                "active_ratio": active, "step_ms": step_ms, "active_ms": step_ms * active,
            }  # fmt: skip
            answer["rows"].append(row)
            print(json.dumps(row), flush=True)
            if given.json:
                given.json.write_text(json.dumps(answer, indent=1) + "\n")
    answer["harm"] = harm(uuid, {f"decoder, batch 8, {mode}": decoders[8].stepper(mode) for mode in ("graph", "eager")})
    if given.json:
        given.json.write_text(json.dumps(answer, indent=1) + "\n")


if __name__ == "__main__":
    main()
