"""Views of workloads in the store, for processes that do not judge: written when they change, read when they did."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from replaywatch.collector.fleet import FleetView, WorkloadView
from replaywatch.collector.remembered import recall, remember
from replaywatch.collector.store import Store
from replaywatch.collector.tables import WorkloadRow
from replaywatch.collector.writer import Writer

REFRESH_NS: Final = 60 * 10**9
OVERLAP_NS: Final = 30 * 10**9
READ_AT_ONCE: Final = 500
# Of a process's time, reading and sorting a large fleet's views takes at most a fifth.
IDLE_SHARE: Final = 5.0
Signature = tuple[object, ...]


class ViewKeeper:
    """Writes the views that say something new, and each at least once a minute; one thread uses it."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._kept: dict[str, tuple[int, Signature]] = {}

    def keep(self, view: FleetView) -> None:
        """Write what changed. Raises: StoreError; it is written at the next time then."""
        changed = [w for w in view.workloads if self._is_news(w, view.at_ns)]
        for start in range(0, len(changed), 500):
            some = changed[start : start + 500]
            rows = [
                {"id": w.id, "viewed_ns": view.at_ns, "last_seen_ns": w.last_seen_ns, "view": _packed(w)} for w in some
            ]
            self._writer.do(partial(_write, rows=rows))
            self._kept.update((w.id, (view.at_ns, signature_of(w))) for w in some)
        for gone in self._kept.keys() - view.by_id.keys():
            del self._kept[gone]

    def _is_news(self, view: WorkloadView, now_ns: int) -> bool:
        known = self._kept.get(view.id)
        if known is None or known[1] != signature_of(view):
            return True
        return not view.is_stale and now_ns - known[0] >= REFRESH_NS


def signature_of(view: WorkloadView) -> Signature:
    """What makes a view news: the verdict, and which findings of which severity stand behind it."""
    findings = tuple((f.detector, f.severity) for f in view.judgement.findings)
    return (view.word, view.severity, findings, view.lifetime.config_id)


def _packed(view: WorkloadView) -> bytes:
    return zlib.compress(remember(view), 1)


def _write(session: Session, rows: list[dict[str, object]]) -> None:
    session.execute(update(WorkloadRow), rows)


class StoredViews:
    """The fleet as workers wrote it down; `refresh` is called by one thread, `view` read by any."""

    def __init__(self, store: Store, clock: Callable[[], int], stale_ns: int, gone_ns: int) -> None:
        self._store = store
        self._clock = clock
        self._stale_ns = stale_ns
        self._gone_ns = gone_ns
        self._through_ns = 0
        self._views: dict[str, WorkloadView] = {}
        self._read: dict[str, int] = {}
        self._not_before = 0.0
        self.view = FleetView()

    def refresh(self) -> None:
        """Read what was written since, unless it is too early after a long reading. Raises: StoreError."""
        began = time.monotonic()
        if began < self._not_before:
            return
        self._refresh(self._clock())
        self._not_before = began + IDLE_SHARE * (time.monotonic() - began)

    def _refresh(self, now_ns: int) -> None:
        since_ns = max(self._through_ns - OVERLAP_NS, now_ns - self._gone_ns)
        with self._store.reading() as session:
            written: Any = session.execute(
                select(WorkloadRow.id, WorkloadRow.viewed_ns).where(WorkloadRow.viewed_ns > since_ns)
            ).all()
            # Clocks of workers differ a little, so that the last half minute is looked at again, but not read again.
            news = {key: at_ns for key, at_ns in written if self._read.get(key) != at_ns}
            self._read_views(session, list(news))
        self._read.update(news)
        self._through_ns = max((self._through_ns, *news.values()))
        for key in [k for k, v in self._views.items() if now_ns - v.last_seen_ns > self._gone_ns]:
            del self._views[key]
            self._read.pop(key, None)
        self.view = FleetView.of(now_ns, self._current(self._views, now_ns).values())

    def _read_views(self, session: Session, keys: list[str]) -> None:
        for start in range(0, len(keys), READ_AT_ONCE):
            some = WorkloadRow.id.in_(keys[start : start + READ_AT_ONCE])
            rows: Any = session.execute(select(WorkloadRow.id, WorkloadRow.view).where(some))
            for key, content in rows:
                found = recall(WorkloadView, zlib.decompress(content), f"view of workload {key}")
                if found is not None:
                    self._views[key] = found

    def _current(self, views: Mapping[str, WorkloadView], now_ns: int) -> dict[str, WorkloadView]:
        """The views with their silence as of now; a view that is refreshed by the minute is not silent before that."""
        silent_ns = self._stale_ns + REFRESH_NS
        return {
            k: v if v.is_stale or now_ns - v.last_seen_ns <= silent_ns else replace(v, is_stale=True)
            for k, v in views.items()
        }
