"""Puts the agent together and runs it: in the foreground until a signal, or on a thread for a caller that goes on."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from queue import SimpleQueue
from random import Random
from threading import Event, Thread
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, cast

from replaywatch.agent.admission import Admission
from replaywatch.agent.backoff import Backoff
from replaywatch.agent.board import Board
from replaywatch.agent.cgroup import place_of
from replaywatch.agent.contradiction import Contradictions
from replaywatch.agent.delivery import Delivery
from replaywatch.agent.devices import DeviceWatch, Nvml
from replaywatch.agent.downward import Surroundings, read_surroundings
from replaywatch.agent.enrich import Enricher, Scope
from replaywatch.agent.exposition import Exposition, OwnGauges, cpu_seconds, resident_bytes
from replaywatch.agent.inlet import Inlet
from replaywatch.agent.ledger import Ledger
from replaywatch.agent.log_follower import LogFollower
from replaywatch.agent.loop import TURN_SECONDS, Loop
from replaywatch.agent.metrics_server import MetricsServer
from replaywatch.agent.options import AgentOptions, allowed_uids, listen_address, socket_path, spool_folder
from replaywatch.agent.processes import Processes
from replaywatch.agent.shipper import Shipper
from replaywatch.agent.spool import Spool
from replaywatch.agent.spool_folder import SpoolFolder
from replaywatch.agent.witness_watch import Witness, WitnessWatch
from replaywatch.sources.recording import Recording

if TYPE_CHECKING:
    from replaywatch.otlp.push import OtlpThread

log = logging.getLogger("replaywatch.agent")
# A stop is done within two seconds: the threads share this time, and what hangs is left behind.
STOP_SECONDS: Final = 1.2
STUCK_NS: Final = 30 * 10**9


class Agent:
    """The whole agent, not yet running. `nvml` may read through a stand-in. Raises: ConfigurationError."""

    def __init__(self, options: AgentOptions, nvml: Nvml | None = None) -> None:
        stale_ns = int(options.stale_seconds * 1e9)
        surroundings = read_surroundings(os.environ, hostname=socket.gethostname())
        uids, address, witnesses = allowed_uids(options), listen_address(options), _witnesses(options)
        self.ledger = Ledger()
        self.devices = DeviceWatch(nvml or Nvml(), options.device_seconds, self.ledger)
        processes = Processes(stale_ns)
        board = Board(options.max_workloads, stale_ns, self.ledger)
        with ExitStack() as undo:
            self.spool, self.shipper = _sending_side(options, self.ledger)
            if self.spool is not None:
                undo.callback(self.spool.close)
            inlet = Inlet(socket_path(options), options.socket_group)
            undo.callback(inlet.close)
            exposition = Exposition(board, self.ledger, _own_gauges(processes, self.spool), about(surroundings))
            self.metrics = MetricsServer(address, exposition, self.trouble) if address is not None else None
            self.otlp = _otlp(options, exposition, about(surroundings))
            undo.pop_all()
        self.loop = Loop(
            inlet=inlet,
            admission=Admission(processes, uids, options.frames_per_second),
            processes=processes,
            enricher=Enricher(
                surroundings,
                cast(Scope, options.scope),
                place_of("self"),
                lambda: self.devices.latest,
            ),
            board=board,
            spool=self.spool,
            ledger=self.ledger,
            from_witnesses=SimpleQueue[Recording](),
            contradictions=Contradictions(),
            batch_ns=int(options.batch_seconds * 1e9),
            clock=time.monotonic_ns,
            stopping=Event(),
        )
        self.witnesses = WitnessWatch(
            witnesses, options.witness_seconds, self.ledger, time.time_ns, self.loop.from_witnesses.put
        )

    @property
    def socket_path(self) -> Path:
        """Where probes send frames."""
        return self.loop.inlet.path

    @property
    def metrics_url(self) -> str | None:
        """Where /metrics is; None when it is off."""
        return self.metrics.url if self.metrics is not None else None

    def trouble(self) -> str | None:
        """Why the agent does not live, for /healthz: its loop does not turn."""
        behind_ns = time.monotonic_ns() - self.loop.turned_ns
        return f"the loop has not turned for {behind_ns // 10**9} s" if behind_ns > STUCK_NS else None

    def run(self) -> None:
        """Run until `stop`, then put everything away."""
        self.loop.turned_ns = time.monotonic_ns()
        self.devices.start()
        self.witnesses.start()
        if self.shipper is not None:
            self.shipper.start()
        if self.metrics is not None:
            self.metrics.start()
        if self.otlp is not None:
            self.otlp.start()
        log.info("listening on %s, metrics on %s", self.socket_path, self.metrics_url or "nothing")
        try:
            self.loop.run()
        finally:
            self._put_away()

    def stop(self) -> None:
        """Ask the agent to stop; from any thread or a signal handler."""
        self.loop.stopping.set()
        self.loop.inlet.wake()

    def _put_away(self) -> None:
        self.loop.inlet.close()
        self.loop.processes.close()
        if self.spool is not None:
            self.spool.seal_older(0)
        if self.shipper is not None:
            self.shipper.stop(STOP_SECONDS)
        if self.spool is not None:
            self.spool.close()
        if self.metrics is not None:
            self.metrics.stop()
        if self.otlp is not None:
            self.otlp.stop(0.1)
        self.devices.stop(0.1)
        self.witnesses.stop(0.1)


def _sending_side(options: AgentOptions, ledger: Ledger) -> tuple[Spool | None, Shipper | None]:
    """The spool and the shipper; neither without a collector."""
    if options.collector_url is None:
        return None, None
    delivery = Delivery(options, time.time, time.monotonic)
    spool = Spool(
        SpoolFolder(spool_folder(options)),
        disk_bytes=options.spool_bytes,
        memory_bytes=options.memory_bytes,
        ledger=ledger,
        clock=time.time_ns,
    )
    return spool, Shipper(spool, delivery, Backoff(options.retry_max_seconds, Random()), ledger, time.time_ns)


def _witnesses(options: AgentOptions) -> list[Witness]:
    """Those that the options name. Their parsers are loaded only where one is named: they cost memory.

    Raises: ConfigurationError for a file that cannot be used.
    """
    if options.engine_metrics_url is None and options.engine_log is None:
        return []
    from replaywatch.agent.witness import LogWitness, MetricsWitness

    found: list[Witness] = []
    if options.engine_metrics_url is not None:
        found.append(
            MetricsWitness(
                options.engine_metrics_url,
                ca_file=options.engine_metrics_ca_file,
                token_file=options.engine_metrics_token_file,
            )
        )
    if options.engine_log is not None:
        memory = spool_folder(options) / "log-position.json" if options.collector_url is not None else None
        found.append(LogWitness(LogFollower(options.engine_log, memory)))
    return found


def _otlp(options: AgentOptions, exposition: Exposition, told: Mapping[str, str]) -> OtlpThread | None:
    """Sends metrics over OTLP where that is asked for; its packages are loaded only then: they cost memory."""
    if options.otlp_endpoint is None:
        return None
    from replaywatch.otlp.push import OtlpPush, OtlpThread

    resource = {"service.name": "replaywatch-agent", "service.version": told["version"], "host.name": told["node"]}
    return OtlpThread(OtlpPush(options.otlp_endpoint, exposition.collect, resource), options.otlp_seconds)


def about(surroundings: Surroundings) -> dict[str, str]:
    """What the agent tells of itself: its release and its node."""
    try:
        version = metadata.version("replaywatch")
    except metadata.PackageNotFoundError:
        version = ""
    return {"version": version, "node": surroundings.node or ""}


def _own_gauges(processes: Processes, spool: Spool | None) -> OwnGauges:
    return {
        "replaywatch_agent_processes": lambda: len(processes),
        "replaywatch_agent_queued_windows": lambda: spool.queued_windows if spool is not None else 0,
        "replaywatch_agent_spool_bytes": lambda: spool.size_bytes if spool is not None else 0,
        "replaywatch_agent_oldest_window_seconds": lambda: spool.oldest_age_s if spool is not None else 0,
        "replaywatch_agent_cpu_seconds_total": cpu_seconds,
        "replaywatch_agent_resident_bytes": resident_bytes,
    }


def run(options: AgentOptions) -> None:
    """Run the agent in the foreground until SIGINT or SIGTERM. Raises: ConfigurationError before it begins."""
    agent = Agent(options)

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        agent.stop()

    previous: dict[int, Any] = {n: signal.signal(n, on_signal) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        agent.run()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@dataclass(frozen=True, slots=True)
class RunningAgent:
    """An agent on a thread. `metrics_url` is None when /metrics is off."""

    agent: Agent
    thread: Thread

    @property
    def socket_path(self) -> Path:
        """Where probes send frames."""
        return self.agent.socket_path

    @property
    def metrics_url(self) -> str | None:
        """Where /metrics is."""
        return self.agent.metrics_url

    def stop(self) -> None:
        """Stop the agent and wait for it, two seconds or a little more."""
        self.agent.stop()
        self.thread.join(STOP_SECONDS + TURN_SECONDS)


def start_in_thread(options: AgentOptions, nvml: Nvml | None = None) -> RunningAgent:
    """Run an agent beside the caller; it listens when this returns. Raises: ConfigurationError."""
    agent = Agent(options, nvml)
    thread = threading.Thread(target=agent.run, name="replaywatch-agent", daemon=True)
    thread.start()
    return RunningAgent(agent, thread)
