"""Which call leaves CUPTI's cost behind: a step that waits for its replay, before and after each, in fresh processes.

    python3 tests/gpu/attach.py --json out.json        (one GPU, torch; two minutes)

Every way loads the process's libcupti, hands it buffers, does what its name says while the loop runs, undoes it, and
times the same graph, one captured afterwards, and eager steps; again three seconds later, with one more graph. Units:
milliseconds a step, median of blocks.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / name) for name in ("agent", "detectors", "tests/corpus", "tests/gpu")]

MEMCPY, KERNEL, RUNTIME, CONCURRENT_KERNEL = 1, 3, 5, 10
WAYS = (
    "nothing", "buffers only", "copies", "kernels, on and off at once", "kernels", "kernels, serialised",
    "kernels of the context", "kernels, then flushed by force", "runtime calls", "subscribed and left",
    "kernels, then subscribed and left",
)  # fmt: skip
BUFFER_BYTES = 8 << 20
REQUEST = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
COMPLETE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)


class Cupti:
    """The few calls, on the library that torch loaded."""

    def __init__(self) -> None:
        lines = Path("/proc/self/maps").read_text().splitlines()
        self.library = ctypes.CDLL(next(x.split()[-1] for x in lines if "libcupti.so" in x))
        self.buffers: dict[int, Any] = {}
        self.bytes = 0
        self._request, self._complete = REQUEST(self._give), COMPLETE(self._take)
        self._nothing = CALLBACK(lambda *_: None)

    def _give(self, buffer: Any, size: Any, records: Any) -> None:
        made = ctypes.create_string_buffer(BUFFER_BYTES + 8)
        address = (ctypes.addressof(made) + 7) & ~7
        self.buffers[address] = made
        buffer[0], size[0], records[0] = address, BUFFER_BYTES, 0

    def _take(self, context: Any, stream: int, buffer: int, size: int, valid: int) -> None:
        self.bytes += valid
        self.buffers.pop(buffer, None)

    def call(self, name: str, *arguments: Any) -> None:
        """A call of CUPTI. Raises: RuntimeError where it fails."""
        code = getattr(self.library, name)(*arguments)
        if code:
            raise RuntimeError(f"{name} failed with {code}")

    def register(self) -> None:
        """Hand out buffers."""
        self.call("cuptiActivityRegisterCallbacks", self._request, self._complete)

    def subscribe_and_leave(self) -> None:
        """A subscription without any callback enabled."""
        handle = ctypes.c_void_p()
        self.call("cuptiSubscribe", ctypes.byref(handle), self._nothing, None)
        self.call("cuptiUnsubscribe", handle)


def current_context() -> ctypes.c_void_p:
    """The driver's context of this thread."""
    context = ctypes.c_void_p()
    ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(context))
    return context


def act(way: str, cupti: Cupti, work: Callable[[], None]) -> None:
    """Do and undo what the way is called; `work` runs the loop for a moment."""
    if way == "nothing":
        return
    if way == "subscribed and left":
        cupti.subscribe_and_leave()
        return
    cupti.register()
    kind = {"copies": MEMCPY, "kernels, serialised": KERNEL, "runtime calls": RUNTIME}.get(way, CONCURRENT_KERNEL)
    if way == "buffers only":
        return
    if way == "kernels of the context":
        context = current_context()
        cupti.call("cuptiActivityEnableContext", context, kind)
        work()
        cupti.call("cuptiActivityDisableContext", context, kind)
    else:
        cupti.call("cuptiActivityEnable", kind)
        if "at once" not in way:
            work()
        cupti.call("cuptiActivityDisable", kind)
    cupti.call("cuptiActivityFlushAll", int("by force" in way))
    if "then subscribed" in way:
        cupti.subscribe_and_leave()


def measure(way: str) -> dict[str, Any]:
    """One way, in this process."""
    from detach import Subject

    subject = Subject()
    before = subject.times()
    cupti = Cupti()

    def work() -> None:
        end_s = time.perf_counter() + 0.1
        while time.perf_counter() < end_s:
            subject.old.replay()
            subject.loop.tokens.tolist()

    act(way, cupti, work)
    after = subject.times()
    time.sleep(3)
    return {"way": way, "before": before, "after": after, "later": subject.times(), "record_bytes": cupti.bytes}


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
        row = run_alone(__file__, way, timeout_s=60)
        answer["ways"].append(row)
        print(f"{way:32} {said(row)}", flush=True)
        if given.json:
            given.json.write_text(json.dumps(answer, indent=1) + "\n")
    return int(any("error" in row for row in answer["ways"]))


def said(row: dict[str, Any]) -> str:
    """One way's changes in words."""
    if "error" in row:
        return str(row["error"])
    names = ("old_step_ms", "new_step_ms", "old_device_us", "eager_step_ms")
    return "  ".join(
        f"{n} {row['before'][n]:.3f} {row['after'][n] / row['before'][n] - 1:+.1%} later "
        f"{row['later'][n] / row['before'][n] - 1:+.1%}"
        for n in names
    )


if __name__ == "__main__":
    sys.exit(main())
