"""One process of many that share a fleet through the bus, on one page: ingest, worker, or both."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from replaywatch.collector.bus import Bus
from replaywatch.collector.bus_access import bus_access
from replaywatch.collector.bus_sink import BusSink
from replaywatch.collector.clocks import Clocks
from replaywatch.collector.cohorts import Sharing
from replaywatch.collector.detection import Detection, Judge
from replaywatch.collector.exported import Exported, otlp_loops
from replaywatch.collector.fleet import FleetView
from replaywatch.collector.fleet_collector import FleetCollector, NoSink
from replaywatch.collector.front import Front
from replaywatch.collector.health import Health
from replaywatch.collector.inbox import Inbox
from replaywatch.collector.leases import Leases
from replaywatch.collector.loop import Loop
from replaywatch.collector.metrics import CollectorMetrics
from replaywatch.collector.notifying import addressees_of, notifying
from replaywatch.collector.options import CollectorOptions
from replaywatch.collector.receive import Received
from replaywatch.collector.retention import Retention
from replaywatch.collector.setting_up import ages_of, detection_settings, ns
from replaywatch.collector.share import Share
from replaywatch.collector.stages import Stages
from replaywatch.collector.store import Store
from replaywatch.collector.tick_times import TickTimes
from replaywatch.collector.tokens import TokenBook
from replaywatch.collector.view_keeping import StoredViews
from replaywatch.collector.worker import TTL_SECONDS, TURN_SECONDS, Worker
from replaywatch.collector.writer import Writer
from replaywatch.contract.errors import ConfigurationError


def assemble_fleet(
    options: CollectorOptions, url: str, judge: Judge, clock: Callable[[], int], jitter: Callable[[], float]
) -> FleetCollector:
    """A process that is reached at `url`, not yet started. Raises: ConfigurationError, StoreError."""
    addressees, exported = addressees_of(options, url), Exported()
    sent = otlp_loops(options, exported)
    assert options.bus is not None
    bus, sharing = (
        Bus(options.bus, bus_access(options)),
        Sharing(options.partitions, min(options.cohort_spread, options.partitions)),
    )
    store = Store.open(options.store)
    if not store.is_postgresql:
        raise ConfigurationError("--bus needs a store that several processes share; give --store postgresql://...")
    writer, clocks, book = Writer(store, options.waiting_batches_max), Clocks(), TokenBook(store)
    book.refresh()
    settings, times = detection_settings(options), TickTimes()
    told = notifying(options, addressees, store, writer, clock, jitter)
    stored = StoredViews(store, clock, settings.stale_ns, settings.gone_ns)
    owner = f"{socket.gethostname()[:30]}-{os.getpid()}-{secrets.token_hex(4)}"
    leases = Leases(store, owner, options.partitions, ns(TTL_SECONDS))
    leases.prepare()

    def detection_of(own_writer: Writer, inbox: Inbox, partition: int) -> Detection:
        # Silent nodes are looked for in one place only: a node may be split over several partitions.
        nodes = (lambda: stored.view.workloads) if partition == 0 else tuple
        return Detection(store, own_writer, inbox, judge, settings, clock, told.telling, partition, nodes, times)

    def share_of(partition: int, epoch: int) -> Share:
        own_writer = Writer(store, options.waiting_batches_max, leases.guard(partition, epoch))
        return Share(partition, bus, own_writer, sharing, detection_of, options.tick_seconds)

    worker = Worker(leases, share_of) if options.role != "ingest" else None
    retention = Retention(writer, clock, ages_of(options), time.monotonic_ns)

    def look() -> None:
        # A mere worker shows nobody a page; it only needs the views to look for silent nodes.
        if options.role != "worker" or (worker is not None and worker.has(0)):
            stored.refresh()

    loops = {"tokens": Loop("tokens", 2.0, book.refresh), "views": Loop("views", 2.0, look)}
    if worker is not None:
        loops["leases"] = Loop("leases", TURN_SECONDS, worker.renew)
        loops["worker"] = Loop("worker", TURN_SECONDS, worker.turn)
        loops["retention"] = Loop("retention", 300.0, lambda: retention.sweep() if worker.has(0) else 0)
    loops |= told.loops
    loops |= sent

    def metrics(received: Received) -> CollectorMetrics:
        return CollectorMetrics(
            view=worker.view if worker is not None else FleetView,
            open_incidents=worker.open_severities if worker is not None else Counter[str],
            received=received,
            notifications=told.outcomes,
            ticks=times,
            stages=Stages(
                waiting_batches=lambda: worker.waiting if worker is not None else 0,
                waiting_writes=lambda: writer.waiting,
                last_tick_ns=lambda: worker.view().at_ns if worker is not None else None,
                clocks=clocks,
                loops=loops,
                others={"writer": lambda: writer.is_alive, "bus": lambda: bus.is_connected},
            ),
        )

    def troubles() -> dict[str, str]:
        trouble = {} if bus.is_connected else {"bus": "there is no connection to the bus"}
        return trouble | (worker.troubles(ns(options.tick_seconds), clock) if worker is not None else {})

    alive = {"writer": lambda: writer.is_alive} | {name: partial(_alive, loop) for name, loop in loops.items()}
    front = Front(
        options=options,
        url=url,
        store=store,
        writer=writer,
        book=book,
        clocks=clocks,
        views=lambda: stored.view,
        clock=clock,
    )
    sink = BusSink(bus, sharing) if options.role != "worker" else NoSink()
    web = front.web(sink, Health(store, alive, troubles), lambda received: exported.keep(metrics(received)))
    return FleetCollector(
        web=web, store=store, writer=writer, bus=bus, worker=worker, notifier=told.notifier, loops=loops
    )


def _alive(loop: Loop) -> bool:
    return loop.is_alive
