"""Killing the agent at any moment: what it took arrives after a restart, once by key."""

from __future__ import annotations

import inspect
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.frames import Probe, frame, wait_until, window
from agent.receiver import Receiver, reset, slow, status
from replaywatch.agent.loop import Loop

ROOT = Path(__file__).parents[2]
AGENT = (
    "import sys; sys.path.insert(0, sys.argv[1])\n"
    "from pathlib import Path\n"
    "from replaywatch.agent.options import AgentOptions\n"
    "from replaywatch.agent.serve import run\n"
    "run(AgentOptions(socket=Path(sys.argv[2]), spool_dir=Path(sys.argv[3]), collector_url=sys.argv[4],\n"
    "    listen=sys.argv[5], batch_seconds=0.1, retry_max_seconds=0.1, frames_per_second=1e5))\n"
)


def spawn(folder: Path, url: str, listen: str = "off") -> subprocess.Popen[bytes]:
    place = folder / "agent.sock"
    arguments = [str(ROOT / "agent"), str(place), str(folder / "spool"), url, listen]
    before = place.stat().st_ino if place.exists() else None
    agent = subprocess.Popen([sys.executable, "-c", AGENT, *arguments])
    wait_until(lambda: place.exists() and place.stat().st_ino != before, 30)
    return agent


def kill(agent: subprocess.Popen[bytes]) -> None:
    agent.kill()
    agent.wait()


@contextmanager
def steady_probe(path: Path) -> Iterator[Callable[[], int]]:
    """Sends windows one after the other, as long as somebody listens; gives how many the kernel accepted."""
    sent = [0]
    stop = threading.Event()

    def send() -> None:
        probe = Probe(path)
        with suppress(OSError):
            while not stop.wait(0.002):
                probe.send(frame(f"f{sent[0]}", window(sent[0])))
                sent[0] += 1
        probe.close()

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield lambda: sent[0]
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("moment", [0.15, 0.4, 0.75])
def test_a_killed_agent_loses_at_most_what_was_still_in_its_socket(short_path: Path, moment: float) -> None:
    with Receiver() as receiver:
        receiver.faults = [status(500), reset, slow(0.2), reset, status(503)] * 3
        first = spawn(short_path, receiver.url)
        with steady_probe(first_socket := short_path / "agent.sock") as sent:
            time.sleep(moment)
            wait_until(lambda: sent() >= 60)
            kill(first)
            accepted = sent()
        assert first_socket.exists()
        second = spawn(short_path, receiver.url)
        wait_until(lambda: len(list((short_path / "spool").glob("*.batch"))) == 0)
        with Probe(first_socket) as probe:
            probe.send(frame("after", window(10_000)))
        wait_until(lambda: any(w.start_ns == window(10_000).start_ns for w in receiver.windows))
        second.send_signal(signal.SIGTERM)
        assert second.wait(5) == 0
        arrived = sorted(w.start_ns for w in receiver.windows)[:-1]
        # In order and without a gap: only the last ones, which the kernel still held (max_dgram_qlen), may be missing.
        assert arrived == [window(n).start_ns for n in range(len(arrived))]
        assert accepted - len(arrived) <= 40
        assert len(arrived) > 10


def test_killed_again_and_again_nothing_arrives_twice(short_path: Path) -> None:
    with Receiver() as receiver:
        receiver.standing = reset
        for first in range(0, 100, 25):
            agent = spawn(short_path, receiver.url)
            with Probe(short_path / "agent.sock") as probe:
                for n in range(first, first + 25):
                    probe.send(frame(f"f{n}", window(n)))
            wait_until(partial(has_taken, first + 24, short_path / "spool", receiver))
            kill(agent)
        receiver.standing = None
        last = spawn(short_path, receiver.url)
        wait_until(lambda: not list((short_path / "spool").glob("*.batch")))
        last.send_signal(signal.SIGTERM)
        assert last.wait(5) == 0
        assert sorted(w.start_ns for w in receiver.windows) == [window(n).start_ns for n in range(100)]
        assert max(receiver.posts.values()) > 1


def has_taken(number: int, spool: Path, receiver: Receiver) -> bool:
    """Whether the agent has taken a window, so that it is in the spool or has arrived."""
    start_ns = window(number).start_ns
    files = [p.read_bytes() for p in spool.glob("*.*") if p.exists()]
    arrived = any(w.start_ns == start_ns for w in receiver.windows)
    return arrived or any(f'"start_ns":{start_ns}'.encode() in content for content in files)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_agent_in_time_and_leaves_nothing_behind(short_path: Path, number: signal.Signals) -> None:
    with Receiver() as receiver:
        agent = spawn(short_path, receiver.url)
        with Probe(short_path / "agent.sock") as probe:
            probe.send(frame("a", window(1)))
        wait_until(lambda: len(receiver.windows) == 1)
        started = time.monotonic()
        agent.send_signal(number)
        assert agent.wait(5) == 0
        assert time.monotonic() - started < 2
        assert not (short_path / "agent.sock").exists()


def test_a_quiet_agent_stays_within_its_memory_and_processor_budget(short_path: Path) -> None:
    with Receiver() as receiver:
        address = f"127.0.0.1:{free_port()}"
        agent = spawn(short_path, receiver.url, address)
        with Probe(short_path / "agent.sock") as probe:
            for n in range(40):
                probe.send(frame(f"f{n}", window(n, rank=n % 8)))
        wait_until(lambda: len(receiver.windows) == 40)
        own = read_own(address)
        assert own["replaywatch_agent_resident_bytes"] < 80 << 20
        before = own["replaywatch_agent_cpu_seconds_total"]
        time.sleep(1.0)
        assert read_own(address)["replaywatch_agent_cpu_seconds_total"] - before < 0.1
        kill(agent)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def read_own(address: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {s.name: s.value for f in families for s in f.samples if not s.labels}


def test_the_loop_is_one_screen() -> None:
    assert len(inspect.getsource(Loop).splitlines()) <= 85
