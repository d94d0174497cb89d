"""`StuckWatch`: a replay that nobody timed and that never ends, seen from the host.

The sampled events see a hang only where a timed replay is behind it. Here the evidence is: the thread that replayed
last has not moved by one instruction, and the stream it replayed on has unfinished work, at every look over the hang
time. The stream is only asked, nothing is put on it. Streams that torch does not own are left alone: they may be gone.
"""

from __future__ import annotations

import sys
from typing import Any

from replaywatch.probe.driver import relax_capture_mode
from replaywatch.probe.ledger import GraphLedger
from replaywatch.probe.replay_timing import stuck_text
from replaywatch.probe.sight import Sight
from replaywatch.probe.slots import MASK, Recorder


class StuckWatch:
    """Looks at the threads that replay, about once a second."""

    def __init__(self, ledger: GraphLedger, sight: Sight, hang_seconds: float) -> None:
        self._ledger, self._sight = ledger, sight
        self._hang_ns = int(hang_seconds * 1e9)

    def look(self, now_ns: int) -> None:
        """Report threads that stand still behind a replay. Runs on the helper thread."""
        if self._ledger.capturing:
            return
        for recorder in self._ledger.recorders.alive():
            if not self._stands_still(recorder, now_ns):
                recorder.still = None

    def _stands_still(self, recorder: Recorder, now_ns: int) -> bool:
        stream = recorder.stream
        if not recorder.last_start_ns or recorder.n != recorder.read or stream is None or not _owned_by_torch(stream):
            return False
        if now_ns - recorder.last_start_ns < self._hang_ns // 2:
            return False
        frame = sys._current_frames().get(recorder.thread_id)
        place = (id(frame), frame.f_lasti) if frame is not None else None
        if place is None or not relax_capture_mode() or stream.query():
            return False
        if recorder.still is None or recorder.still[1] != place:
            recorder.still = (now_ns, place)
        elif recorder.still[0] and now_ns - recorder.last_start_ns >= self._hang_ns:
            self._report(recorder, now_ns)
            recorder.still = (0, place)  # said once
        return True

    def _report(self, recorder: Recorder, now_ns: int) -> None:
        number = recorder.rows[(recorder.n - 1) & MASK][2]
        slot = self._ledger.by_number.get(number)
        text = stuck_text(number, slot, now_ns - recorder.last_start_ns)
        self._sight.observe("replay_stuck", text, "the thread stands still and its stream has unfinished work")


def _owned_by_torch(stream: Any) -> bool:
    """Whether a torch.cuda.Stream is the default one or from torch's own pool, which live as long as the process.

    Source: c10/cuda/CUDAStream.cpp gives streams of its own odd ids, and external ones their (even) address.
    """
    number = getattr(stream, "stream_id", None)
    return number == 0 or (isinstance(number, int) and number & 1 == 1)
