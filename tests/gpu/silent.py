"""When the records of a stretch come: by themselves, by flushing, or by force; and how many windows stay silent.

    python3 tests/gpu/silent.py --json out.json        (one GPU, torch, nvcc; six minutes)

CUPTI holds records back now and then, and whole stretches of eager work brought no kernel, to our tracer and to Kineto:
where copies or sets had been switched on before kernels, as both did. Here a thread runs one of the loops of
against_stamps.py, another switches kernel records on for 100 ms and off, then flushes every 10 ms, and forces a flush
at the end. Each way to ask runs in processes of its own.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / name) for name in ("agent", "detectors", "tests/corpus", "tests/gpu")]

from against_kineto import Loop  # noqa: E402
from attach import CONCURRENT_KERNEL, MEMCPY, Cupti  # noqa: E402

PER_THREAD_BUFFERS = 9  # CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER
MEMSET = 2
WAYS = {  # the kinds in the order in which they are switched on; off in the order reversed
    "kernels": (CONCURRENT_KERNEL,),
    "kernels, then copies": (CONCURRENT_KERNEL, MEMCPY),
    "kernels, then sets": (CONCURRENT_KERNEL, MEMSET),
    "kernels, then copies and sets": (CONCURRENT_KERNEL, MEMCPY, MEMSET),
    "copies, then kernels": (MEMCPY, CONCURRENT_KERNEL),
    "sets, then kernels": (MEMSET, CONCURRENT_KERNEL),
    "copies, sets, then kernels": (MEMCPY, MEMSET, CONCURRENT_KERNEL),
    "copies, then kernels, buffers of the process": (MEMCPY, CONCURRENT_KERNEL),
    "copies, then kernels, flushed while on": (MEMCPY, CONCURRENT_KERNEL),
}
LOOPS = ("300 launches of 10 us, the host slower", "a graph, then launches")
WINDOWS, WINDOW_S, WAIT_S, REST_S = 10, 0.1, 0.3, 0.3
ROUNDS = 2  # processes a way: where records stay away, they do so in some processes and from some window on


def window(cupti: Cupti, way: str) -> dict[str, Any]:
    """One stretch. Shape: bytes while on, by flushing with the millisecond of the first and last, and by force."""
    kinds = WAYS[way]
    cupti.register()
    cupti.bytes = 0
    for kind in kinds:
        cupti.call("cuptiActivityEnable", kind)
    end_s = time.perf_counter() + WINDOW_S
    while time.perf_counter() < end_s:
        time.sleep(0.005)
        if "while on" in way:
            cupti.call("cuptiActivityFlushAll", 0)
    on = cupti.bytes
    for kind in reversed(kinds):
        cupti.call("cuptiActivityDisable", kind)
    begin_s, came_ms = time.perf_counter(), []
    while time.perf_counter() - begin_s < WAIT_S:
        before = cupti.bytes
        cupti.call("cuptiActivityFlushAll", 0)
        if cupti.bytes != before:
            came_ms.append(round((time.perf_counter() - begin_s) * 1e3, 1))
        time.sleep(0.01)
    flushed = cupti.bytes
    cupti.call("cuptiActivityFlushAll", 1)
    return {
        "on": on, "flushed": flushed - on, "came_ms": came_ms[:1] + came_ms[-1:], "forced": cupti.bytes - flushed,
        "buffers_out": len(cupti.buffers),
    }  # fmt: skip


def measure(way: str, library: str) -> dict[str, Any]:
    """One way over all loops, in this process."""
    from against_stamps import WORK, Stamps, stepper

    stamps, cupti = Stamps(library), Cupti()
    if "of the process" in way:
        off, size = ctypes.c_uint8(0), ctypes.c_size_t(1)
        cupti.call("cuptiActivitySetAttribute", PER_THREAD_BUFFERS, ctypes.byref(size), ctypes.byref(off))
    found: dict[str, Any] = {"way": way, "loops": {}}
    for name in LOOPS:
        stamps.clear()
        loop = Loop(stepper(stamps, WORK[name]))
        try:
            time.sleep(0.2)
            windows = []
            for _ in range(WINDOWS):
                windows.append(window(cupti, way))
                time.sleep(REST_S)
        finally:
            loop.stop()
        found["loops"][name] = windows
    return found


def main() -> int:
    """All ways, each in a process of its own; or one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--way", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way:
        print(json.dumps(measure(*given.way)))
        return 0
    from against_stamps import compile_stamped
    from machine import describe_machine
    from ways import run_alone

    answer: dict[str, Any] = {"machine": describe_machine("cuda"), "ways": []}
    with tempfile.TemporaryDirectory() as folder:
        library = str(compile_stamped(Path(folder)))
        for way in [*WAYS] * ROUNDS:
            row = run_alone(__file__, way, library, timeout_s=90)
            answer["ways"].append(row)
            show(row)
            if given.json:
                given.json.write_text(json.dumps(answer, indent=1) + "\n")
    return int(any("error" in row for row in answer["ways"]))


def show(row: dict[str, Any]) -> None:
    """A line for each loop."""
    print(row["way"], row.get("error", ""))
    for name, windows in row.get("loops", {}).items():
        alone = sum(w["on"] + w["flushed"] == 0 for w in windows)
        silent = sum(w["on"] + w["flushed"] + w["forced"] == 0 for w in windows)
        sizes = " ".join(
            f"{part} {statistics.median(w[part] for w in windows):,.0f}" for part in ("on", "flushed", "forced")
        )
        late = max((w["came_ms"][-1] for w in windows if w["came_ms"]), default=0)
        print(f"  {name:42} silent before force {alone}, after {silent} of {len(windows)}; median bytes {sizes}; "
              f"latest after {late:.0f} ms", flush=True)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
