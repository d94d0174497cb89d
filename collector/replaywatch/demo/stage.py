"""The whole product on one machine: a collector, an agent, and recordings played into the agent's socket."""

from __future__ import annotations

import json
import tempfile
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from replaywatch.agent.options import AgentOptions
from replaywatch.agent.serve import start_in_thread as start_agent
from replaywatch.collector.options import CollectorOptions
from replaywatch.collector.serve import start_in_thread as start_collector
from replaywatch.demo.player import Player
from replaywatch.demo.scenario import Scenario

REQUEST_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Line:
    """What the demo's table shows of one workload."""

    pod: str
    verdict: str
    severity: str
    coverage: float | None
    step_us: float | None
    cost: str
    title: str


class Stage:
    """Everything that runs, on loopback and in a folder of its own; leaving it stops and removes all."""

    def __init__(self, scenarios: tuple[Scenario, ...], host: str, port: int) -> None:
        self._scenarios = scenarios
        self._address = host, port
        self._stack = ExitStack()
        self.url = ""
        self.metrics_url: str | None = None
        self.socket: Path | None = None

    def __enter__(self) -> Stage:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def _start(self) -> None:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="replaywatch-demo-")))
        host, port = self._address
        collector = start_collector(
            CollectorOptions(host=host, port=port, store=f"sqlite:///{folder}/demo.db", tick_seconds=1.0, open_ticks=2)
        )
        self._stack.callback(collector.stop)
        self.url = collector.url
        agent = start_agent(
            AgentOptions(
                socket=folder / "agent.sock",
                listen="127.0.0.1:0",
                collector_url=collector.url,
                spool_dir=folder / "spool",
                batch_seconds=0.5,
                scope="node",
            )
        )
        self._stack.callback(agent.stop)
        self.metrics_url, self.socket = agent.metrics_url, agent.socket_path
        player = Player(self._scenarios, agent.socket_path)
        player.start()
        self._stack.callback(player.stop)

    def workloads(self) -> list[dict[str, Any]]:
        """The collector's own answer, as everybody gets it. Raises: OSError when it does not answer."""
        with urllib.request.urlopen(f"{self.url}/v1/workloads", timeout=REQUEST_SECONDS) as answer:
            body = json.load(answer)
        workloads: list[dict[str, Any]] = body["workloads"]
        return workloads
