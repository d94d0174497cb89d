"""Clocks that jump while windows are under way: an agent's host's, and the collector's own. Counted at both ends."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import func, select

from agent.frames import Probe as Line
from agent.frames import wait_until
from collector.material import SECOND, eager_window, workload
from collector.material import batch as batch_of
from collector.polling import until
from collector.webhook_receiver import WebhookReceiver
from replaywatch.collector.options import CollectorOptions
from replaywatch.collector.serve import CollectorHandle, start_in_thread
from replaywatch.collector.tables import WindowRow
from replaywatch.contract.wire import encode

HOUR, SLACK_NS = 3600.0, 90 * SECOND
STEPS = 416
# The real program on a host whose clock is moved by what a file says.
PROGRAM = """
import sys, time
from pathlib import Path
moved, wall = Path(sys.argv[3]), time.time_ns
time.time_ns = lambda: wall() + int(moved.read_text() or 0)
time.time = lambda: time.time_ns() * 1e-9
from replaywatch.agent.options import AgentOptions
from replaywatch.agent.serve import run
folder = Path(sys.argv[1])
run(AgentOptions(socket=folder / "agent.sock", spool_dir=folder / "spool", collector_url=sys.argv[2], listen="off",
    batch_seconds=0.2, retry_max_seconds=0.3, frames_per_second=1e5, device_seconds=0.0))
"""


class Clock:
    """A wall clock that can be moved; a program elsewhere reads by how much from `path`."""

    def __init__(self, path: Path) -> None:
        self._moved_ns = 0
        self.path = path
        self.move(0)

    def move(self, seconds: float) -> None:
        """Stand this far from the truth from now on."""
        self._moved_ns = int(seconds * SECOND)
        spare = self.path.with_suffix(".new")
        spare.write_text(str(self._moved_ns))
        spare.replace(self.path)

    def __call__(self) -> int:
        return time.time_ns() + self._moved_ns


@contextmanager
def agent(folder: Path, url: str, clock: Path) -> Iterator[Path]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder), url, str(clock)], env=environment)
    try:
        wait_until((folder / "agent.sock").exists)
        yield folder / "agent.sock"
    finally:
        process.terminate()
        process.wait(10)


class Way:
    """From a probe over the agent to the collector's store, with a count at both ends."""

    def __init__(self, line: Line, handle: CollectorHandle, host: Clock) -> None:
        self.sent = 0
        self._line = line
        self._handle = handle
        self._host = host
        self._random = random.Random(1)

    def send(self, count: int) -> None:
        """Give the agent some windows that end now, by the clock of its host."""
        for _ in range(count):
            self.sent += 1
            end_ns = self._host()
            window = eager_window(end_ns - 5 * SECOND, self._random, workload("jumping"))
            self._line.send(encode(batch_of([window], f"w{self.sent}", end_ns)))
            time.sleep(0.005)

    def arrive(self) -> None:
        """Wait until everything that was sent is judged."""
        until(lambda: sum((self._steps() or {}).values()) >= self.sent * STEPS, 20)

    def is_exact(self) -> bool:
        """Whether every window is stored once and judged once."""
        with self._handle.collector.store.session() as session:
            stored = session.scalar(select(func.count()).select_from(WindowRow))
        return stored == self.sent and self._steps() == {"full": 0, "piecewise": 0, "eager": self.sent * STEPS}

    def newest_end_ns(self) -> int:
        """Where the window that came last lies in time."""
        newest = select(WindowRow.end_ns).order_by(WindowRow.batch_serial.desc(), WindowRow.position.desc()).limit(1)
        with self._handle.collector.store.session() as session:
            return session.scalars(newest).one()

    def _steps(self) -> Mapping[str, int] | None:
        found = [w for w in self._handle.collector.detection.view.workloads if w.workload.pod == "jumping"]
        return found[0].lifetime.dispatch.steps if found else None


@pytest.fixture
def way(tmp_path: Path, receiver: WebhookReceiver) -> Iterator[tuple[Way, Clock, Clock]]:
    """The way, the clock of the agent's host and the collector's."""
    host, own = Clock(tmp_path / "host"), Clock(tmp_path / "own")
    options = CollectorOptions(
        port=0,
        store=f"sqlite:///{tmp_path}/x.db",
        tick_seconds=0.05,
        group_wait_seconds=0.5,
        webhook_url=receiver.url,
        webhook_allow_private=True,
    )
    handle = start_in_thread(options, clock=own)
    with tempfile.TemporaryDirectory(prefix="rw-") as folder:
        try:
            with agent(Path(folder), handle.url, host.path) as place, Line(place) as line:
                yield Way(line, handle, host), host, own
        finally:
            handle.stop()


def test_clocks_that_jump_lose_nothing_double_nothing_and_tell_nothing_again(
    way: tuple[Way, Clock, Clock], receiver: WebhookReceiver
) -> None:
    it, host, own = way
    for _ in range(4):  # a finding must hold for two ticks
        it.send(5)
        it.arrive()
    until(lambda: told(receiver) == ["opened"])
    for clock, seconds in ((host, HOUR), (host, -2 * HOUR), (host, 0), (own, 120.0), (own, -120.0), (own, 0)):
        it.send(10)  # on the way while the clock jumps
        clock.move(seconds)
        it.send(10)
        it.arrive()
        it.send(10)  # after it
        it.arrive()
        assert abs(it.newest_end_ns() - own()) < SLACK_NS
    assert it.is_exact()
    time.sleep(1)
    assert told(receiver) == ["opened"]


def told(receiver: WebhookReceiver) -> list[str]:
    """What was said, of whatever detector."""
    return [r.content["event"] for r in receiver.received if r.content["detector"] == "disabled"]
