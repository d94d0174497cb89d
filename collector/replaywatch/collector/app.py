"""The whole collector on one page: which stage hands what to which."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from replaywatch.collector.access import Access
from replaywatch.collector.api import ReadApi
from replaywatch.collector.arrival import Limits
from replaywatch.collector.changes import Changes
from replaywatch.collector.clocks import Clocks
from replaywatch.collector.collector import Collector
from replaywatch.collector.detection import Detection, Judge
from replaywatch.collector.endpoints import endpoints
from replaywatch.collector.forms import Forms
from replaywatch.collector.gate import Gate
from replaywatch.collector.health import Health
from replaywatch.collector.inbox import Inbox
from replaywatch.collector.loop import Loop
from replaywatch.collector.messages_api import MessagesApi
from replaywatch.collector.metrics import CollectorMetrics, registry_of
from replaywatch.collector.notifying import addressees_of, notifying
from replaywatch.collector.options import CollectorOptions
from replaywatch.collector.pages import Pages
from replaywatch.collector.receive import BatchEndpoint
from replaywatch.collector.retention import Retention
from replaywatch.collector.routes import application
from replaywatch.collector.setting_up import (
    ages_of,
    detection_settings,
    hosts_of,
    ns,
    token_of,
)
from replaywatch.collector.sink import StoreSink
from replaywatch.collector.stages import Stages
from replaywatch.collector.store import Store
from replaywatch.collector.tokens import TokenBook
from replaywatch.collector.writer import Writer


def assemble(
    options: CollectorOptions, url: str, judge: Judge, clock: Callable[[], int], jitter: Callable[[], float]
) -> Collector:
    """A collector that is reached at `url`, not yet started. Raises: ConfigurationError, StoreError."""
    addressees = addressees_of(options, url)
    store = Store.open(options.store)
    writer, inbox, clocks, book = Writer(store, options.waiting_batches_max), Inbox(), Clocks(), TokenBook(store)
    book.refresh()
    access = Access(book, token_of(options))
    told = notifying(options, addressees, store, writer, clock, jitter)
    detection = Detection(store, writer, inbox, judge, detection_settings(options), clock, told.telling)
    retention = Retention(writer, clock, ages_of(options))

    loops = {
        "detection": Loop("detection", options.tick_seconds, detection.tick),
        "retention": Loop("retention", 300.0, retention.sweep),
        "tokens": Loop("tokens", 2.0, book.refresh),
    }
    loops |= told.loops

    limits = Limits(options.body_max_bytes, options.inflated_max_bytes)
    batches = BatchEndpoint(StoreSink(writer, inbox, detection), access, limits, clock, clocks)
    metrics = CollectorMetrics(
        view=lambda: detection.view,
        open_incidents=lambda: detection.open_severities,
        received=batches.received,
        notifications=told.outcomes,
        ticks=detection.times,
        stages=Stages(inbox, writer, clocks, loops, lambda: detection.last_tick_ns),
    )
    alive = {"writer": lambda: writer.is_alive} | {name: partial(_alive, loop) for name, loop in loops.items()}
    health = Health(store, detection, inbox, alive, ns(options.tick_seconds), clock)
    api, changes = ReadApi(store, lambda: detection.view, clocks), Changes(writer, clock)
    pages = Pages(store, lambda: detection.view, api)
    forms = Forms(access, changes, pages, is_secure=url.startswith("https:"))
    rows = endpoints(batches, api, changes, MessagesApi(store))
    web = application(rows, Gate(access), pages, forms, health, registry_of(metrics), hosts_of(options))
    return Collector(web=web, store=store, writer=writer, detection=detection, notifier=told.notifier, loops=loops)


def _alive(loop: Loop) -> bool:
    return loop.is_alive
