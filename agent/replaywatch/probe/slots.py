"""`GraphSlot` and `Recorder`: the preallocated places that the hot path writes to.

A replay adds one to its graph's slot and writes one row of its thread's ring. Nothing grows and nothing is locked: a
slot's count is a plain `+= 1` without a call inside, which no thread switch of the interpreter cuts in two.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

RING = 1024
MASK = RING - 1
Row = tuple[int, int, int]


class GraphSlot:
    """One capture of one graph. `number` counts captures in this process from 1; `replays` is exact.

    Shape: `state` one of capturing, ready, failed, gone; `pool` the allocator's pool id; `bytes` growth of that pool
    while this graph was captured; `nodes` None where unknown.
    """

    __slots__ = (
        "before_bytes", "begin_ns", "bytes", "follows", "follows_hits", "instantiated", "key", "nodes", "number",
        "owner", "pool", "ref", "replays", "reported", "seen", "state", "throwaway",
    )  # fmt: skip

    def __init__(self, number: int, owner: str, state: str) -> None:
        self.number = number
        self.owner = owner
        self.state = state
        self.key = 0
        self.ref: weakref.ref[Any] | None = None
        self.replays = 0
        self.reported = 0
        self.throwaway = False
        self.instantiated = False
        self.begin_ns = 0
        self.before_bytes: int | None = None
        self.bytes: int | None = None
        self.pool: object = None
        self.nodes: int | None = None
        # What usually runs right before this graph, for the search of steps that are several graphs long.
        self.follows: GraphSlot | None = None
        self.follows_hits = 0
        self.seen = 0


class Recorder:
    """What one thread did: a ring of its latest replays, and where its next timed replay stands.

    Shape: row i modulo RING is replay i: start and end on the host in nanoseconds (0 where it was not timed), number of
    the graph. A row is one
    tuple, so a reader never meets half of one; each new row frees an old one, so nothing accumulates.
    `n` counts the rows so far, `unwritten` the replays that were counted without one.
    """

    __slots__ = (
        "__weakref__", "last_start_ns", "left", "n", "previous", "read", "rows", "sample", "step_start_ns", "still",
        "stream", "thread_id", "timed_ns", "unwritten",
    )  # fmt: skip

    def __init__(self, left: int) -> None:
        self.rows: list[Row] = [(0, 0, 0)] * RING
        self.n = 0
        self.unwritten = 0
        self.read = 0
        self.left = left
        self.sample: Any = None
        self.stream: Any = None
        self.timed_ns = 0
        self.thread_id = threading.get_ident()
        self.previous: GraphSlot | None = None
        self.step_start_ns = 0
        self.last_start_ns = 0
        self.still: tuple[int, Any] | None = None


class Recorders:
    """One recorder per thread; a thread's recorder goes with the thread."""

    def __init__(self, time_one_in: int, on_new: Callable[[], None]) -> None:
        self.local = threading.local()
        self.time_one_in = time_one_in
        self._on_new = on_new
        # By id: the entry leaves before the memory can be used again. Each step on it is one, so it takes no lock.
        self._all: dict[int, weakref.ref[Recorder]] = {}

    def new(self) -> Recorder:
        """The recorder of a thread that replays for the first time."""
        recorder = Recorder(left=0)  # the first replay goes the timer's way, which notes its stream
        self.local.recorder = recorder
        everyone, key = self._all, id(recorder)
        everyone[key] = weakref.ref(recorder, lambda _: everyone.pop(key, None))
        self._on_new()
        return recorder

    def here(self) -> Recorder:
        """The calling thread's recorder."""
        recorder: Recorder | None = getattr(self.local, "recorder", None)
        return recorder or self.new()

    def replays_here(self) -> int:
        """How often the calling thread has replayed so far."""
        recorder: Recorder | None = getattr(self.local, "recorder", None)
        return recorder.n + recorder.unwritten if recorder is not None else 0

    def alive(self) -> list[Recorder]:
        """Recorders of the threads that still run."""
        return [recorder for ref in list(self._all.values()) if (recorder := ref()) is not None]

    def lay_aside(self) -> None:
        """Where replays are only counted, by the helper: what the threads did last says nothing of what they do."""
        for recorder in self.alive():
            recorder.previous, recorder.step_start_ns, recorder.last_start_ns = None, 0, 0
            sample, recorder.sample = recorder.sample, None
            if sample is not None:
                sample.waits = False

    def set_sampling(self, time_one_in: int) -> None:
        """Time one replay in so many from now on; 0 times none."""
        self.time_one_in = time_one_in

    def forget(self) -> None:
        """Drop every thread's recorder; in a forked child only the calling thread is left."""
        self._all = {}
        self.local.__dict__.clear()
