"""`/healthz` and `/readyz`: whether the process works at all, and whether it can serve now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from replaywatch.collector.answers import document
from replaywatch.collector.detection import Detection
from replaywatch.collector.inbox import Inbox
from replaywatch.collector.store import Store

LATE_TICKS: Final = 10
LEAST_LATE_NS: Final = 10 * 10**9
Troubles = Callable[[], Mapping[str, str]]


class Health:
    """Tells the truth about the stages: threads that died, ticks that stopped, a store that does not answer."""

    def __init__(self, store: Store, stages: Mapping[str, Callable[[], bool]], troubles: Troubles) -> None:
        self._store = store
        self._stages = stages
        self._troubles = troubles

    async def alive(self, _request: Request) -> Response:
        """200 while every thread lives; a restart cures the rest."""
        return _answer(self._dead())

    async def ready(self, _request: Request) -> Response:
        """200 while batches are stored and judged."""
        trouble = {**self._dead(), **self._troubles()}
        if not await run_in_threadpool(self._store.answers):
            trouble["store"] = "the database does not answer"
        return _answer(trouble)

    def _dead(self) -> dict[str, str]:
        return {name: "the thread has ended; see the log" for name, is_alive in self._stages.items() if not is_alive()}


def detection_troubles(detection: Detection, inbox: Inbox, tick_ns: int, clock: Callable[[], int]) -> dict[str, str]:
    """What keeps a detection from judging what comes now."""
    trouble = {}
    last = detection.last_tick_ns
    if last is None:
        trouble["detection"] = "no tick has finished yet"
    elif clock() - last > max(LEAST_LATE_NS, LATE_TICKS * tick_ns):
        trouble["detection"] = f"the last tick finished {(clock() - last) // 10**9} s ago"
    if inbox.is_full:
        trouble["inbox"] = "detection lags behind, and batches are sent away"
    return trouble


def _answer(trouble: Mapping[str, str]) -> Response:
    return document({"ok": not trouble, "trouble": dict(trouble)}, 503 if trouble else 200)
