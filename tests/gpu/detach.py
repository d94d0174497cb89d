"""Whether CUPTI can be detached after a traced stretch, and whether that gives back what its presence costs.

    python3 tests/gpu/detach.py --json out.json        (one GPU, torch, the native tracer, a C++ compiler; four minutes)

Ways, each in a process of its own: never (CUPTI stays attached), call (cuptiFinalize at the exit of a CUDA call of the
program, as CUPTI's documentation recommends), idle (cuptiFinalize on the main thread while the device is idle). A round
is a traced stretch, a detachment, and then the times of a graph captured before the first stretch, of one captured just
now, and of eager steps. In "busy" nothing rests: another thread replays, captures and runs eager steps meanwhile.
"teardown" leaves it to torch.profiler, which detaches CUPTI where TEARDOWN_CUPTI is 1, without and after a stretch.
Every process ends with torch.profiler runs, whose kernels are counted, and the same work once more.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
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

RUNTIME_API, DRIVER_API = 1 << 2, 1 << 1
WAYS = (
    "none", "never", "teardown", "teardown after a stretch", "idle", "call", "call, driver", "call, held", "busy",
    "busy, driver",
)  # fmt: skip


def build(folder: Path) -> Path:
    """detach.cpp as a library."""
    library = folder / "detach.so"
    source = Path(__file__).with_name("detach.cpp")
    subprocess.run(["c++", "-std=c++17", "-O2", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return library


class Detachment:
    """One way to detach."""

    def __init__(self, library: str, way: str) -> None:
        self._library, self._way = ctypes.CDLL(library), way
        self._domains = DRIVER_API if "driver" in way else RUNTIME_API | DRIVER_API if "held" in way else RUNTIME_API
        lines = Path("/proc/self/maps").read_text().splitlines()
        self._soname = next(x.split()[-1] for x in lines if "libcupti.so" in x).encode()

    def hold(self) -> int:
        """Take the subscription before the stretch, as torch.profiler does, where this way does so."""
        return int(self._library.detach_subscribe(self._soname)) if "held" in self._way else 0

    def __call__(self, nudge: Callable[[], object] | None) -> dict[str, Any]:
        """Detach; `nudge` makes a CUDA call. Shape: code, waited_ms."""
        begin = time.perf_counter()
        if self._way == "idle":
            return {"code": self._library.detach_now(self._soname)}
        code = 0 if "held" in self._way else self._library.detach_subscribe(self._soname)
        code = code or self._library.detach_arm(self._domains)
        if code:
            return {"arm": code}
        while self._library.detach_result() == -1 and time.perf_counter() - begin < 3:
            if nudge is not None:
                nudge()
            time.sleep(0.0005)
        return {"code": self._library.detach_result(), "waited_ms": round(1e3 * (time.perf_counter() - begin), 2)}


def step_ms(step: Callable[[], None], seconds: float = 0.25, blocks: int = 3) -> float:
    """The median block's mean step."""
    means = []
    for _ in range(blocks):
        begin, count = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            step()
            count += 1
        means.append((time.perf_counter() - begin) / count * 1e3)
    return round(statistics.median(means), 4)


def device_us(replay: Callable[[], None], times: int = 40) -> float:
    """Device time of a replay among queued ones."""
    import torch

    found = []
    for _ in range(5):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(times):
            replay()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) / times * 1e3)
    return round(statistics.median(found), 1)


def profile_kernels(steps: list[Callable[[], None]]) -> list[int]:
    """Kernels in two torch.profiler runs over three times the steps."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    counts = []
    for _ in range(2):
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
            for _ in range(3):
                for step in steps:
                    step()
            torch.cuda.synchronize()
        device = torch.autograd.DeviceType.CUDA
        counts.append(sum(e.device_type == device and "Mem" not in e.name for e in found.events()))
    return counts


class Subject:
    """The loop whose times and results are looked at."""

    def __init__(self) -> None:
        from decoder import DecodeLoop

        self.loop = DecodeLoop(4)
        self.old = self.loop.capture()
        self.first = self.loop.tokens.clone()
        self.expected = self.result(self.old.replay), self.result(self.loop.eager)

    def result(self, step: Callable[[], None]) -> str:
        """What six steps from the same start compute."""
        self.loop.tokens.copy_(self.first)
        for _ in range(6):
            step()
        return f"{self.loop.tokens.tolist()} {self.loop.keys.double().sum().item()!r}"

    def is_right(self, graph: Any) -> bool:
        """Old and new graph and eager steps compute what they computed at first."""
        return (
            self.result(self.old.replay) == self.result(graph.replay) == self.expected[0]
            and self.result(self.loop.eager) == self.expected[1]
        )

    def times(self) -> dict[str, Any]:
        """The times of one round."""
        new = self.loop.capture()
        read = self.loop.tokens.tolist
        return {
            "old_device_us": device_us(self.old.replay), "new_device_us": device_us(new.replay),
            "old_step_ms": step_ms(lambda: (self.old.replay(), read())[0]),
            "new_step_ms": step_ms(lambda: (new.replay(), read())[0]),
            "eager_step_ms": step_ms(lambda: (self.loop.eager(), read())[0]), "is_right": self.is_right(new),
        }  # fmt: skip


def quiet(way: str, library: str, rounds: int) -> dict[str, Any]:
    """Rounds in which nothing runs while CUPTI is detached."""
    import torch

    from replaywatch.probe.tracer import open_tracer

    subject = Subject()
    for _ in range(100):
        subject.loop.eager()
    answer: dict[str, Any] = {"way": way, "rounds": [{"before": subject.times()}]}
    if way not in ("none", "teardown"):
        tracer = open_tracer()
        detach = Detachment(library, way)
        for _ in range(1 if way.startswith("teardown") else rounds):
            held = detach.hold()
            traced: list[Any] = []
            thread = threading.Thread(target=lambda into=traced: into.append(tracer.run_window(100.0)))
            thread.start()
            while thread.is_alive():
                subject.old.replay()
                subject.loop.tokens.tolist()
            torch.cuda.synchronize()
            time.sleep(0.2)
            rests = way == "never" or way.startswith("teardown")
            said = {} if rests else detach(lambda: subject.loop.tokens.tolist())
            seen = (traced[0] or {}).get("traced") or {}
            about = {"held": held, "kernels": seen.get("total_kernels"), "detach": said}
            answer["rounds"].append(about | subject.times())
    answer["profiles"] = profile_kernels([subject.old.replay, subject.loop.eager])
    answer["after_profiles"] = subject.times()
    return answer


def busy(way: str, library: str, seconds: float) -> dict[str, Any]:
    """Stretches and detachments while another thread works on."""
    import torch

    from replaywatch.probe.tracer import open_tracer

    subject = Subject()
    tracer, stop, counts = open_tracer(), threading.Event(), {"checks": 0, "wrong": 0, "captures": 0}

    def work() -> None:
        torch.cuda.set_device(0)
        while not stop.is_set():
            graph = subject.loop.capture()
            counts["captures"] += 1
            for _ in range(20):
                graph.replay()
                subject.old.replay()
            counts["checks"] += 1
            counts["wrong"] += not subject.is_right(graph)

    thread = threading.Thread(target=work)
    thread.start()
    stretches, end_s, detach = [], time.monotonic() + seconds, Detachment(library, way)
    while time.monotonic() < end_s:
        detach.hold()
        found = (tracer.run_window(50.0) or {}).get("traced") or {}
        stretches.append({"kernels": found.get("total_kernels"), **detach(None)})
        time.sleep(0.1)
    stop.set()
    thread.join()
    kernels = [s["kernels"] or 0 for s in stretches]
    return {
        "way": way, "stretches": len(stretches), "kernels": [min(kernels), max(kernels)], **counts,
        "detached": sum(s.get("code") == 0 for s in stretches), "other": [s for s in stretches if s.get("code")][:5],
        "waited_ms": sorted(s["waited_ms"] for s in stretches if "waited_ms" in s)[-3:], "times": subject.times(),
        "profiles": profile_kernels([subject.old.replay, subject.loop.eager]),
    }  # fmt: skip


def main() -> None:
    """All ways, or one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--ways", nargs="+", default=list(WAYS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="of busy")
    parser.add_argument("--way", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.way:
        way, library = given.way
        found = busy(way, library, given.seconds) if way.startswith("busy") else quiet(way, library, given.rounds)
        print(json.dumps(found))
        return
    from machine import describe_machine

    answer: dict[str, Any] = {"machine": describe_machine("cuda"), "ways": []}
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder))
        for way in given.ways:
            command = [sys.executable, __file__, "--rounds", str(given.rounds), "--seconds", str(given.seconds),
                       "--way", way, str(library)]  # fmt: skip
            environment = os.environ | {"TEARDOWN_CUPTI": "1" if way.startswith("teardown") else "0"}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=False)
            lines = [x for x in done.stdout.splitlines() if x.startswith("{")]
            row = json.loads(lines[-1]) if lines else {"way": way}
            row |= {"exit": done.returncode, "errors": done.stderr[-600:]}
            print(json.dumps(row), flush=True)
            answer["ways"].append(row)
            if given.json:
                given.json.write_text(json.dumps(answer, indent=1) + "\n")


if __name__ == "__main__":
    main()
