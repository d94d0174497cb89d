"""`StuckWatch`: a replay that nobody timed and that never ends, seen from the host.

The sampled events see a hang only where a timed replay is behind it. Here the evidence is: the thread that replayed
last has not moved by one instruction, and the stream it replayed on has unfinished work, at every look over the hang
time. The stream is only asked, nothing is put on it. Streams that torch does not own are left alone: they may be gone.
Bad at: a thread that polls for the end of its replay moves, so it is not seen here.
"""

from __future__ import annotations

import sys
from typing import Any

from replaywatch.probe.cuda_errors import error_name
from replaywatch.probe.driver import is_capturing, relax_capture_mode
from replaywatch.probe.ledger import GraphLedger
from replaywatch.probe.replay_timing import stuck_text
from replaywatch.probe.sight import Sight
from replaywatch.probe.slots import MASK, Recorder

SIGNAL = "hang watch"
FOREIGN = "replays run on a stream that torch does not own; only timed ones are watched there"
DRIVER = "the driver does not let a second thread query streams during captures"


class StuckWatch:
    """Looks at the threads that replay, about once a second."""

    def __init__(self, ledger: GraphLedger, sight: Sight, hang_seconds: float) -> None:
        self._ledger, self._sight = ledger, sight
        self._hang_ns = int(hang_seconds * 1e9)

    def look(self, now_ns: int) -> None:
        """Report threads that stand still behind a replay, or why none can be seen. Runs on the helper thread."""
        try:
            blind = self._open_capture(now_ns) if self._ledger.capturing else self._look(now_ns)
        except Exception as error:  # the probe's border; an asynchronous CUDA error may surface here
            blind = f"a stream could not be asked: {error_name(error)}"
        if blind is None:
            self._sight.clear(SIGNAL)
        else:
            self._sight.blind(SIGNAL, blind)

    def _open_capture(self, now_ns: int) -> str | None:
        """While something is captured no stream is asked; what is said of a capture that goes on for too long."""
        for number, stream in list(self._ledger.capturing.items()):
            slot = self._ledger.by_number.get(number)
            if slot is None or now_ns - slot.begin_ns < self._hang_ns:
                continue
            if _owned_by_torch(stream) and is_capturing(stream.cuda_stream) is False:
                self._ledger.capture_abandoned(number)
            else:
                return f"a capture of {slot.owner} does not end; nothing is timed, traced or watched meanwhile"
        return None

    def _look(self, now_ns: int) -> str | None:
        blind = None
        for recorder in self._ledger.recorders.alive():
            if recorder.n and not _owned_by_torch(recorder.stream):
                blind = FOREIGN
            elif not relax_capture_mode():
                return DRIVER
            elif not self._stands_still(recorder, now_ns):
                recorder.still = None
        return blind

    def _stands_still(self, recorder: Recorder, now_ns: int) -> bool:
        if not recorder.last_start_ns or recorder.n != recorder.read:
            return False
        half_ns, behind_ns = self._hang_ns // 2, now_ns - recorder.last_start_ns
        if behind_ns < half_ns:
            return False
        frame = sys._current_frames().get(recorder.thread_id)
        place = (id(frame), frame.f_lasti) if frame is not None else None
        if place is None or recorder.stream.query():
            return False
        if recorder.still is None or recorder.still[1] != place:
            recorder.still = (now_ns, place)
            return True
        since_ns = recorder.still[0]
        # A thread that worked on for long without a replay has not stood still for long.
        if since_ns and now_ns - since_ns >= half_ns and behind_ns >= self._hang_ns:
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
