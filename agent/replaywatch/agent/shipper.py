"""`Shipper`: takes sealed segments off the spool, oldest first, and sees each to its end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event, Thread
from typing import Final

from replaywatch.agent.backoff import Backoff
from replaywatch.agent.delivery import Delivery, Outcome
from replaywatch.agent.ledger import Ledger
from replaywatch.agent.segment import Segment, batch_body
from replaywatch.agent.spool import Spool

log = logging.getLogger("replaywatch.agent")
IDLE_SECONDS: Final = 5.0
# A batch that is refused is halved until the one bad window stands alone. When this many are refused in a row, it is
# not about one window, and the batches are put aside whole.
REFUSALS_IN_A_ROW: Final = 12


class Shipper:
    """Ships on a thread of its own. `clock` gives Unix nanoseconds."""

    def __init__(
        self, spool: Spool, delivery: Delivery, backoff: Backoff, ledger: Ledger, clock: Callable[[], int]
    ) -> None:
        self._spool = spool
        self._delivery = delivery
        self._backoff = backoff
        self._ledger = ledger
        self._clock = clock
        self._stop = Event()
        self._refusals = 0
        self._complaint = ""
        self._thread = Thread(target=self._run, name="replaywatch-shipper", daemon=True)

    def start(self) -> None:
        """Begin to ship."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Stop shipping; a request that hangs is left behind, and its batch stays in the spool with its key."""
        self._stop.set()
        self._spool.wake()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._spool.sync()
            segment = self._spool.next(IDLE_SECONDS)
            if segment is not None and not self._stop.is_set():
                self._stop.wait(self._ship(segment))
        self._delivery.close()

    def _ship(self, segment: Segment) -> float:
        """Send a segment once; how many seconds to wait before the next."""
        try:
            lines = segment.read()
        except OSError as error:
            self._complain(f"a spooled batch cannot be read ({error.strerror}); its windows are lost")
            self._ledger.add("replaywatch_agent_windows_dropped_total", amount=segment.windows)
            self._spool.done(segment)
            return 0.0
        outcome = self._delivery.post(segment.key, batch_body(segment.key, lines, self._clock()))
        if outcome.meaning == "retry":
            self._ledger.add("replaywatch_agent_retries_total", outcome.reason)
            self._complain(f"the collector did not take a batch ({outcome.reason}: {outcome.detail}); trying again")
            return self._backoff.next_pause_s(outcome.asked_s)
        self._backoff.reset()
        self._settle(segment, lines, outcome)
        return 0.0

    def _settle(self, segment: Segment, lines: tuple[bytes, ...], outcome: Outcome) -> None:
        if outcome.meaning == "delivered":
            self._refusals = 0
            self._complaint = ""
            self._ledger.add("replaywatch_agent_batches_total", "delivered")
            self._spool.done(segment)
            return
        self._refusals += outcome.meaning == "rejected"
        if segment.windows > 1 and self._refusals <= REFUSALS_IN_A_ROW:
            self._ledger.add("replaywatch_agent_batches_total", "split")
            self._spool.split(segment, lines)
            return
        self._complain(f"the collector refused a batch for good ({outcome.detail}); it is put aside")
        self._ledger.add("replaywatch_agent_batches_total", "rejected")
        self._spool.reject(segment)

    def _complain(self, text: str) -> None:
        """Log a trouble once, until it is over or becomes another."""
        if text != self._complaint:
            log.warning("%s", text)
        self._complaint = text
