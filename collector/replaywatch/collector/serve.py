"""Serving a collector: until a signal comes, or in a thread of another program."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeAlias, TypeVar

import uvicorn
from starlette.applications import Starlette

from replaywatch.collector.app import assemble
from replaywatch.collector.collector import Collector
from replaywatch.collector.detection import Judge
from replaywatch.collector.heads import impatient
from replaywatch.collector.options import CollectorOptions
from replaywatch.collector.setting_up import LOOPBACK, tls_of
from replaywatch.collector.store import Store
from replaywatch.collector.tokens import list_tokens
from replaywatch.contract.errors import ConfigurationError, StoreError
from replaywatch.detectors.judge import judge as judge_with_all
from replaywatch.detectors.outliers import load_fitting

if TYPE_CHECKING:
    from replaywatch.collector.fleet_collector import FleetCollector

LOG = logging.getLogger("replaywatch.collector")
# What is kept of a fleet are records without cycles. With Python's own thresholds a worker of 5,000 GPUs spent 26 % of
# its processor time looking through all of them for cycles, up to 0.4 s at once; with these 7 % (2026-11-30).
GC_THRESHOLDS: Final = (20_000, 50, 100)
# Long before the first fit can be due (eight minutes of windows of five seconds), and after the start is over.
LOAD_AFTER_SECONDS: Final = 20.0


class Served(Protocol):
    """What is served: an application, and stages that are started before and stopped after it."""

    @property
    def web(self) -> Starlette:
        """The application."""

    @property
    def store(self) -> Store:
        """The store."""

    def start(self) -> None:
        """Start the stages."""

    def stop(self) -> None:
        """Stop the stages."""


S = TypeVar("S", bound=Served)


class ServerHandle(Generic[S]):
    """A collector that serves in a thread. `url` is where it is reached."""

    def __init__(
        self, collector: S, server: uvicorn.Server, bound: socket.socket, url: str, *, is_judging: bool = True
    ) -> None:
        self.url = url
        self.collector = collector
        self._server = server
        self._thread = threading.Thread(
            target=lambda: asyncio.run(server.serve(sockets=[bound])), name="replaywatch-web", daemon=True
        )
        self._loading = threading.Timer(LOAD_AFTER_SECONDS, load_fitting)
        self._loading.daemon = True
        self._is_judging = is_judging
        self._is_stopped = False

    def start(self) -> None:
        """Start serving. Raises: StoreError when the server ends at once."""
        self.collector.start()
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                self.collector.stop()
                raise StoreError("the web server did not start; see the log")
            time.sleep(0.005)
        if self._is_judging:
            self._loading.start()

    @property
    def is_alive(self) -> bool:
        """Whether it still serves."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Answer what is being answered, then stop; done within 2 s. Safe to call twice."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self._loading.cancel()
        self._server.should_exit = True
        self._thread.join(0.8)
        self._server.force_exit = True
        self._thread.join(0.4)
        self.collector.stop()


CollectorHandle = ServerHandle[Collector]
FleetHandle: TypeAlias = "ServerHandle[FleetCollector]"
Assemble = Callable[[CollectorOptions, str, Judge, Callable[[], int], Callable[[], float]], S]


def start_in_thread(
    options: CollectorOptions,
    *,
    judge: Judge = judge_with_all,
    clock: Callable[[], int] = time.time_ns,
    jitter: Callable[[], float] = random.random,
) -> CollectorHandle:
    """A collector that serves until its handle is stopped.

    Raises: ConfigurationError for options that cannot work, StoreError for a store that cannot be used.
    """
    return _serve(assemble, options, judge, clock, jitter)


def start_fleet_in_thread(
    options: CollectorOptions,
    *,
    judge: Judge = judge_with_all,
    clock: Callable[[], int] = time.time_ns,
    jitter: Callable[[], float] = random.random,
) -> FleetHandle:
    """The same for a process that shares a fleet through the bus of its options."""
    # The driver of the bus is an extra that a single machine does without.
    from replaywatch.collector.fleet_app import assemble_fleet

    return _serve(assemble_fleet, options, judge, clock, jitter)


def _serve(
    make: Assemble[S], options: CollectorOptions, judge: Judge, clock: Callable[[], int], jitter: Callable[[], float]
) -> ServerHandle[S]:
    bound = _bind(options.host, options.port)
    try:
        tls = tls_of(options)
        host = f"[{options.host}]" if ":" in options.host else options.host
        url = f"{'https' if tls else 'http'}://{host}:{bound.getsockname()[1]}"
        collector = make(options, url, judge, clock, jitter)
    except BaseException:
        bound.close()
        raise
    config = uvicorn.Config(
        collector.web,
        http=impatient(options.head_seconds),
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=1,
        ws="none",
        **tls,
    )
    is_judging = options.bus is None or options.role != "ingest"
    handle = ServerHandle(collector, uvicorn.Server(config), bound, url, is_judging=is_judging)
    handle.start()
    return handle


def run(options: CollectorOptions, *, told: Callable[[str], None] | None = None) -> None:
    """Serve until SIGINT or SIGTERM; `told` is called with the address once it answers. Main thread only.

    Raises: ConfigurationError, StoreError.
    """
    gc.set_threshold(*GC_THRESHOLDS)
    stopping = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stopping.set()

    previous = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        handle: CollectorHandle | FleetHandle
        handle = start_in_thread(options) if options.bus is None else start_fleet_in_thread(options)
        _warn_if_open(options, handle.collector.store)
        LOG.info("the collector serves at %s and stores in %s", handle.url, handle.collector.store.address)
        if told is not None:
            told(handle.url)
        while not stopping.wait(0.5) and handle.is_alive:
            pass
        handle.stop()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {host} port {port} ({error.strerror or error}); choose another --host or --port"
        ) from None


def _warn_if_open(options: CollectorOptions, store: Store) -> None:
    if options.host.startswith(LOOPBACK) or options.tls_client_ca is not None:
        return
    asked = {scope for token in list_tokens(store) if token.revoked_ns is None for scope in token.scopes}
    if options.token is not None or options.token_file is not None:
        asked.add("ingest")
    for scope, what in (("ingest", "send batches"), ("read", "read everything")):
        if scope not in asked:
            LOG.warning("anybody who reaches %s may %s; make a token with the scope %s", options.host, what, scope)
