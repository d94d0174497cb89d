"""Whether torch.profiler's profiles stay whole where kernel windows lie between them, by the way a window is made.

    python3 tests/gpu/after_profiles.py --json out.json        (one GPU, torch, the native tracer; four minutes)

Of profiles after windows 112 of 116 once lacked the kernels of graphs (docs/data/soak-2026-11-30.json), which is why no
window follows the first profile of a process. Windows had copies and sets switched on before kernels then, which has
been found to keep CUPTI mute (silent.py). Here a process takes profiles of replayed and eager steps in turn with
windows over the same steps; each way is a process of its own. Units: kernels of each profile; of each
window bytes of its records, of the tracer's own its kernels.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / name) for name in ("agent", "detectors", "tests/corpus", "tests/gpu")]

from silent import WAYS as KINDS  # noqa: E402

TRACER = "the probe's tracer"
WAYS = (
    "no window", "kernels", "kernels, then copies and sets", "copies, sets, then kernels", TRACER,
)  # fmt: skip
ROUNDS = 12
WINDOW_S = 0.1


def work_for(seconds: float, steps: list[Callable[[], None]]) -> None:
    """Steps in turn for a while."""
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        for step in steps:
            step()


def raw_window(way: str, steps: list[Callable[[], None]], cupti: Any) -> int:
    """A window that only counts bytes. Shape: as the tracer makes it, kinds off in the order reversed."""
    cupti.register()
    cupti.bytes = 0
    for kind in KINDS[way]:
        cupti.call("cuptiActivityEnable", kind)
    work_for(WINDOW_S, steps)
    for kind in reversed(KINDS[way]):
        cupti.call("cuptiActivityDisable", kind)
    for _ in range(10):
        cupti.call("cuptiActivityFlushAll", 0)
        time.sleep(0.01)
    return int(cupti.bytes)


def tracers_window(tracer: Any, steps: list[Callable[[], None]]) -> int:
    """A window of the native tracer, on a thread of its own as in the probe; the kernels that it told."""
    from threading import Thread

    found: list[Any] = []
    thread = Thread(target=lambda: found.append(tracer.run_window(WINDOW_S * 1e3)))
    thread.start()
    while thread.is_alive():
        work_for(0.02, steps)
    thread.join()
    return int(((found[0] or {}).get("traced") or {}).get("total_kernels", 0))


def measure(way: str) -> dict[str, Any]:
    """One way, in this process."""
    from attach import Cupti
    from detach import Subject, profile_kernels

    subject = Subject()

    def eager() -> None:
        subject.loop.eager()
        subject.loop.tokens.tolist()

    def replayed() -> None:
        subject.old.replay()
        subject.loop.tokens.tolist()

    steps: list[Callable[[], None]] = [replayed, eager]
    tracer = None
    if way == TRACER:
        from replaywatch.probe.tracer import open_tracer

        tracer = open_tracer()
    cupti = Cupti()
    profiles, windows = [profile_kernels(steps)], []
    for _ in range(ROUNDS):
        if tracer is not None:
            windows.append(tracers_window(tracer, steps))
            tracer.pause()
        elif way != "no window":
            windows.append(raw_window(way, steps, cupti))
        profiles.append(profile_kernels(steps))
        if tracer is not None:
            tracer.resume()
    return {"way": way, "profiles": profiles, "windows": windows, "is_right": subject.is_right(subject.old)}


def main() -> int:
    """All ways, each in a process of its own; or one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way:
        print(json.dumps(measure(given.way)))
        return 0
    from machine import describe_machine
    from ways import run_alone

    answer: dict[str, Any] = {"machine": describe_machine("cuda"), "ways": []}
    for way in WAYS:
        row = run_alone(__file__, way, timeout_s=90)
        answer["ways"].append(row)
        print(json.dumps(row), flush=True)
        if given.json:
            given.json.write_text(json.dumps(answer, indent=1) + "\n")
    return int(any("error" in row or not row["is_right"] for row in answer["ways"]))


if __name__ == "__main__":
    sys.exit(main())
