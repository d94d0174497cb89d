"""Plays recordings into an agent's socket as probes would: first what would already have happened, then live."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from replaywatch.contract.wire import Batch, encode
from replaywatch.demo.scenario import Scenario, placed

PAST_SECONDS = 75.0
PAUSE_SECONDS = 0.03


class Player:
    """Sends every scenario's frames, each at the time its windows end; loops when a recording is over.

    The first PAST_SECONDS of each recording are sent at once, stamped as if the workload had started that long ago, so
    that nobody waits for a minute of evidence.
    """

    def __init__(self, scenarios: tuple[Scenario, ...], path: Path, clock: Callable[[], int] = time.time_ns) -> None:
        self._scenarios = scenarios
        self._path = path
        self._clock = clock
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._play, args=(s,), daemon=True) for s in scenarios]
        self.sent = 0
        self.failed = 0

    def start(self) -> None:
        """Begin to play."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop within a fraction of a second."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(1.0)

    def _play(self, scenario: Scenario) -> None:
        first_ns = min(w.start_ns for frame in scenario.frames for w in frame.windows)
        shift_ns = self._clock() - int(PAST_SECONDS * 1e9) - first_ns
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            turn = 0
            while not self._stopping.is_set():
                for number, frame in enumerate(scenario.frames):
                    due_ns = max(w.end_ns for w in frame.windows) + shift_ns
                    wait_s = (due_ns - self._clock()) / 1e9
                    if self._stopping.wait(max(PAUSE_SECONDS, wait_s)):
                        return
                    self._send(sender, _moved(frame, scenario, shift_ns, f"{scenario.name}-{turn}-{number}"))
                shift_ns += scenario.length_ns
                turn += 1

    def _send(self, sender: socket.socket, frame: Batch) -> None:
        try:
            sender.sendto(encode(frame), str(self._path))
            self.sent += 1
        except OSError:
            self.failed += 1


def _moved(frame: Batch, scenario: Scenario, shift_ns: int, key: str) -> Batch:
    windows = tuple(placed(w, scenario, shift_ns) for w in frame.windows)
    return replace(frame, key=key, sent_ns=frame.sent_ns + shift_ns, windows=windows)
