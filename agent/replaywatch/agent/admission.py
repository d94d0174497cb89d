"""Which frames are taken: of allowed users, within a rate for each process, in the wire form, and only once."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Literal

from replaywatch.agent.inlet import Frame, Sender
from replaywatch.agent.processes import Process, Processes
from replaywatch.contract.errors import SchemaVersionError, WireError
from replaywatch.contract.window import Window
from replaywatch.contract.wire import Batch, decode

Refusal = Literal["malformed", "other_version", "truncated", "duplicate", "limited", "foreign_user"]
BURST_SECONDS: Final = 2.0
# Senders whose pid is not visible share one allowance: they are the processes of one pod.
UNSEEN_SHARE: Final = 8
REMEMBERED_KEYS: Final = 128
REMEMBERED_SENDERS: Final = 2048
MAX_WINDOWS: Final = 256
MAX_WINDOW_NS: Final = 86_400 * 10**9
MAX_ID: Final = 64


@dataclass(frozen=True, slots=True)
class Admitted:
    """A frame that was taken. `sequence` numbers the frames of its process, from 1."""

    batch: Batch
    process: Process
    sequence: int


class Allowance:
    """A token bucket for each sender, at most REMEMBERED_SENDERS of them."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._left: OrderedDict[Sender, tuple[float, int]] = OrderedDict()

    def take(self, sender: Sender, now_ns: int) -> bool:
        """Whether a sender may be heard once more now."""
        rate = self._per_second * (1 if sender.pid is not None else UNSEEN_SHARE)
        full = max(1.0, rate * BURST_SECONDS)
        left, then_ns = self._left.pop(sender, (full, now_ns))
        left = min(full, left + max(0, now_ns - then_ns) * 1e-9 * rate)
        allowed = left >= 1
        self._left[sender] = (left - 1 if allowed else left, now_ns)
        while len(self._left) > REMEMBERED_SENDERS:
            self._left.popitem(last=False)
        return allowed


class Admission:
    """The door. It knows the processes by the frames that it lets in."""

    def __init__(self, processes: Processes, uids: frozenset[int] | None, frames_per_second: float) -> None:
        self._processes = processes
        self._uids = uids
        self._allowance = Allowance(frames_per_second)

    def admit(self, frame: Frame, now_ns: int) -> Admitted | Refusal:
        """A frame's batch with its process, or why it is refused. `now_ns` is monotonic."""
        if self._uids is not None and frame.sender.uid not in self._uids:
            return "foreign_user"
        if not self._allowance.take(frame.sender, now_ns):
            return "limited"
        if frame.truncated:
            return "truncated"
        try:
            batch = decode(frame.data)
        except SchemaVersionError:
            return "other_version"
        except WireError:
            return "malformed"
        if len(batch.windows) > MAX_WINDOWS or not all(map(is_plausible, batch.windows)) or not is_text(frame.data):
            return "malformed"
        claimed_pid = batch.windows[0].workload.pid if batch.windows else None
        process = self._processes.sender(frame.sender, batch.key, claimed_pid, now_ns)
        if not _is_new(process, batch.key):
            return "duplicate"
        process.frames += 1
        return Admitted(batch, process, process.frames)


def is_plausible(window: Window) -> bool:
    """Whether a window's times can be (after 1970, in order, at most a day long) and its snapshots' ids too."""
    ids = (window.fingerprint_id or "", window.config_id or "")
    in_time = 0 < window.start_ns <= window.end_ns < 1 << 62 and window.end_ns - window.start_ns <= MAX_WINDOW_NS
    return in_time and max(map(len, ids)) <= MAX_ID


def is_text(data: bytes) -> bool:
    """Whether the texts in a frame that was decoded are Unicode without NUL, which every later stage relies on."""
    if b"\\u0000" in data:
        return False
    if b"\\ud" not in data.lower():
        return True
    try:
        json.dumps(json.loads(data), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_new(process: Process, key: str) -> bool:
    digest = hash(key)  # a digest, because whoever sends decides how long keys are
    if digest in process.recent_keys:
        return False
    process.recent_keys[digest] = None
    if len(process.recent_keys) > REMEMBERED_KEYS:
        process.recent_keys.popitem(last=False)
    return True
