"""The whole collector of one machine on one page: which stage hands what to which."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from replaywatch.collector.clocks import Clocks
from replaywatch.collector.collector import Collector
from replaywatch.collector.detection import Detection, Judge
from replaywatch.collector.exported import Exported, otlp_loops
from replaywatch.collector.front import Front
from replaywatch.collector.health import Health, detection_troubles
from replaywatch.collector.inbox import Inbox
from replaywatch.collector.loop import Loop
from replaywatch.collector.metrics import CollectorMetrics
from replaywatch.collector.notifying import addressees_of, notifying
from replaywatch.collector.options import CollectorOptions
from replaywatch.collector.receive import Received
from replaywatch.collector.retention import Retention
from replaywatch.collector.setting_up import ages_of, detection_settings, ns
from replaywatch.collector.sink import StoreSink
from replaywatch.collector.stages import Stages
from replaywatch.collector.store import Store
from replaywatch.collector.tokens import TokenBook
from replaywatch.collector.writer import Writer


def assemble(
    options: CollectorOptions, url: str, judge: Judge, clock: Callable[[], int], jitter: Callable[[], float]
) -> Collector:
    """A collector that is reached at `url`, not yet started. Raises: ConfigurationError, StoreError."""
    addressees, exported = addressees_of(options, url), Exported()
    sent = otlp_loops(options, exported)
    store = Store.open(options.store)
    writer, inbox, clocks, book = Writer(store, options.waiting_batches_max), Inbox(), Clocks(), TokenBook(store)
    book.refresh()
    told = notifying(options, addressees, store, writer, clock, jitter)
    detection = Detection(store, writer, inbox, judge, detection_settings(options), clock, told.telling)
    retention = Retention(writer, clock, ages_of(options), time.monotonic_ns)

    loops = {
        "detection": Loop("detection", options.tick_seconds, detection.tick),
        "retention": Loop("retention", 300.0, retention.sweep),
        "tokens": Loop("tokens", 2.0, book.refresh),
    }
    loops |= told.loops
    loops |= sent

    def metrics(received: Received) -> CollectorMetrics:
        return CollectorMetrics(
            view=lambda: detection.view,
            open_incidents=lambda: detection.open_severities,
            received=received,
            notifications=told.outcomes,
            ticks=detection.times,
            stages=Stages(
                waiting_batches=lambda: inbox.waiting,
                waiting_writes=lambda: writer.waiting,
                last_tick_ns=lambda: detection.last_tick_ns,
                clocks=clocks,
                loops=loops,
                others={"writer": lambda: writer.is_alive},
            ),
        )

    alive = {"writer": lambda: writer.is_alive} | {name: partial(_alive, loop) for name, loop in loops.items()}
    health = Health(store, alive, lambda: detection_troubles(detection, inbox, ns(options.tick_seconds), clock))
    front = Front(
        options=options,
        url=url,
        store=store,
        writer=writer,
        book=book,
        clocks=clocks,
        views=lambda: detection.view,
        clock=clock,
    )
    web = front.web(StoreSink(writer, inbox, detection), health, lambda received: exported.keep(metrics(received)))
    return Collector(web=web, store=store, writer=writer, detection=detection, notifier=told.notifier, loops=loops)


def _alive(loop: Loop) -> bool:
    return loop.is_alive
