"""Real agents for a fleet's tests: programs of their own with a socket and a spool, and probes that send to them.

What an agent took is what lies in its spool or was delivered. What the kernel still held in the agent's socket when it
was killed was never taken; a probe cannot know that, so it is counted here by the time at which it was sent.
"""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from collector.material import SECOND, healthy_window
from collector.material import batch as batch_of
from replaywatch.contract.window import Workload
from replaywatch.contract.wire import encode

PROGRAM = """
import logging, sys
from pathlib import Path
from replaywatch.agent.options import AgentOptions
from replaywatch.agent.serve import run
logging.basicConfig(level="INFO")
folder = Path(sys.argv[1])
run(AgentOptions(socket=folder / "agent.sock", spool_dir=folder / "spool", collector_url=sys.argv[2], listen="off",
    batch_seconds=0.5, retry_max_seconds=2.0, request_seconds=15.0, frames_per_second=1e5, device_seconds=0.0))
"""
_START_NS = re.compile(rb'"start_ns":(\d+)')


class Agent:
    """One agent process. `kills` are the times (monotonic) at which it was killed, with what its spool held then."""

    def __init__(self, folder: Path, url: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.socket = folder / "agent.sock"
        self.kills: list[float] = []
        self.taken: set[int] = set()
        self._folder = folder
        self._url = url
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; probes find it a moment later."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(self._folder), self._url], stdout=log, stderr=log, env=environment
            )

    def kill(self) -> None:
        """End it as a crash would; what its spool holds at that moment is noted."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        self.taken |= self.spooled()
        self._process.kill()
        self._process.wait()
        # Only now: until its end the kernel still puts frames into its socket.
        self.kills.append(time.monotonic())

    def stop(self) -> None:
        """End it as an operator does."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def spooled(self) -> set[int]:
        """Beginnings of the windows that the spool holds."""
        found: set[int] = set()
        for path in (self._folder / "spool").glob("*.*"):
            with suppress(OSError):
                found |= {int(n) for n in _START_NS.findall(path.read_bytes())}
        return found


class Probe:
    """A process under watch as far as its agent can tell; `sent` says when the window of a beginning left it."""

    def __init__(self, agent: Agent, workloads: Sequence[Workload], pause_seconds: float, seed: int = 1) -> None:
        self.sent: dict[int, float] = {}
        self.refused = 0
        self._agent = agent
        self._workloads = workloads
        self._pause = pause_seconds
        self._random = random.Random(seed)
        self._line: socket.socket | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self) -> None:
        """Send no more."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        turn = 0
        while not self._stopping.wait(self._pause):
            who = self._workloads[turn % len(self._workloads)]
            start_ns = time.time_ns() - 5 * SECOND
            window = healthy_window(start_ns, self._random, who)
            if self._offer(encode(batch_of([window], f"probe-{turn}"))):
                self.sent[start_ns] = time.monotonic()
            else:
                self.refused += 1
            turn += 1

    def _offer(self, frame: bytes) -> bool:
        """Send a frame without waiting, as a probe does; whether the kernel took it."""
        try:
            if self._line is None:
                self._line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._line.setblocking(False)
                self._line.connect(str(self._agent.socket))
            self._line.send(frame)
        except OSError as error:
            if not isinstance(error, BlockingIOError) and self._line is not None:
                self._line.close()
                self._line = None
            return False
        return True
