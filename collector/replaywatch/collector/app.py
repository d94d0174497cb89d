"""The whole collector on one page: which stage hands what to which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from replaywatch.collector.access import Access
from replaywatch.collector.api import ReadApi
from replaywatch.collector.arrival import Limits
from replaywatch.collector.collector import Collector
from replaywatch.collector.detection import Detection, Judge
from replaywatch.collector.health import Health
from replaywatch.collector.inbox import Inbox
from replaywatch.collector.loop import Loop
from replaywatch.collector.metrics import CollectorMetrics, registry_of
from replaywatch.collector.notifier import Notifier
from replaywatch.collector.options import CollectorOptions
from replaywatch.collector.pages import Pages
from replaywatch.collector.receive import BatchEndpoint
from replaywatch.collector.retention import Retention
from replaywatch.collector.routes import application
from replaywatch.collector.setting_up import detection_settings, links_of, ns, target_of, token_of
from replaywatch.collector.store import Store
from replaywatch.collector.webhook import message
from replaywatch.collector.writer import Writer


def assemble(
    options: CollectorOptions, url: str, judge: Judge, clock: Callable[[], int], jitter: Callable[[], float]
) -> Collector:
    """A collector that is reached at `url`, not yet started. Raises: ConfigurationError, StoreError."""
    access, target, links = Access(token_of(options)), target_of(options), links_of(options, url)
    store = Store.open(options.store)
    writer, inbox = Writer(store, options.waiting_batches_max), Inbox()
    told = partial(message, links) if target is not None else None
    detection = Detection(store, writer, inbox, judge, detection_settings(options), clock, told)
    retention = Retention(
        writer, clock, ns(options.retention_hours * 3600), ns(options.incident_retention_hours * 3600)
    )
    notifier = Notifier(store, writer, target, clock, jitter) if target is not None else None

    deliveries = Loop("notifier", 1.0, notifier.deliver_due) if notifier is not None else None
    loops = {
        "detection": Loop("detection", options.tick_seconds, detection.tick),
        "retention": Loop("retention", 300.0, retention.sweep),
    }
    if deliveries is not None:
        loops["notifier"] = deliveries

    limits = Limits(options.body_max_bytes, options.inflated_max_bytes)
    batches = BatchEndpoint(writer, inbox, detection, access, limits, clock)
    outcomes = notifier.outcomes if notifier is not None else Counter[str]()
    metrics = CollectorMetrics(
        lambda: detection.view,
        lambda: detection.open_severities,
        batches.received,
        outcomes,
        detection.times,
        lambda: detection.last_tick_ns,
    )
    stages = {"writer": lambda: writer.is_alive} | {name: partial(_alive, loop) for name, loop in loops.items()}
    health = Health(store, detection, stages, ns(options.tick_seconds), clock)
    api = ReadApi(store, detection)
    web = application(batches, api, Pages(store, detection, api), health, registry_of(metrics))
    return Collector(web=web, store=store, writer=writer, detection=detection, notifier=notifier, loops=loops)


def _alive(loop: Loop) -> bool:
    return loop.is_alive
