"""The receiving end: a unix datagram socket whose frames are kept, and what the detectors say of them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from replaywatch.contract.errors import ReplaywatchError
from replaywatch.contract.window import Window
from replaywatch.contract.wire import Batch, decode
from replaywatch.detectors.evidence import gather
from replaywatch.detectors.judge import Judgement, judge


class Receiver:
    """Receives frames in a thread, keeps them as lines and decoded."""

    def __init__(self, path: Path, lines: Path) -> None:
        self.path = path
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self._socket.bind(str(path))
        self._socket.settimeout(0.2)
        self._lines = lines.open("wb")
        self._stop = threading.Event()
        self.batches: list[Batch] = []
        self.refused: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                data = self._socket.recv(1 << 18)
            except TimeoutError:
                continue
            self._lines.write(data + b"\n")
            self._lines.flush()
            try:
                self.batches.append(decode(data))
            except ReplaywatchError as error:
                self.refused.append(str(error))

    def close(self) -> None:
        """Take what is left and stop."""
        time.sleep(0.5)
        self._stop.set()
        self._thread.join(5)
        self._socket.close()
        self._lines.close()

    def windows(self, since_ns: int = 0, until_ns: int = 1 << 62) -> list[Window]:
        """Windows that lie within a stretch of time."""
        return [w for b in self.batches for w in b.windows if since_ns <= w.start_ns and w.end_ns <= until_ns]


class Heard(Protocol):
    """Batches that were received, live or from a file."""

    batches: list[Batch]

    def windows(self, since_ns: int = 0, until_ns: int = 1 << 62) -> list[Window]:
        """Windows that lie within a stretch of time."""


def judgements(receiver: Heard, since_ns: int, until_ns: int) -> dict[str, Judgement]:
    """What the detectors say at the end of a stretch of time of each workload's decode steps; what was before it counts
    as the lifetime.
    """
    fingerprints = {k: v for b in receiver.batches for k, v in b.fingerprints.items()}
    configs = {k: v for b in receiver.batches for k, v in b.configs.items()}
    by_key: dict[str, list[Window]] = {}
    for window in receiver.windows(0, until_ns):
        if is_decode(window):
            by_key.setdefault(window.workload.key, []).append(window)
    return {
        key: judge(gather(of_one, fingerprints=fingerprints, configs=configs, horizon_ns=of_one[-1].end_ns - since_ns))
        for key, of_one in by_key.items()
        if of_one[-1].start_ns >= since_ns
    }


def counted(windows: Iterable[Window], keep: Callable[[Window], bool]) -> dict[str, Any]:
    """Steps by mode, fallbacks by reason and tokens over some windows."""
    total: dict[str, Any] = {"steps": {}, "fallbacks": {}, "real_tokens": 0, "padded_tokens": 0, "replays": 0}
    for window in filter(keep, windows):
        for name in ("steps", "fallbacks"):
            for key, n in (getattr(window.dispatch, name) or {}).items():
                total[name][key] = total[name].get(key, 0) + n
        for name in ("real_tokens", "padded_tokens", "replays"):
            total[name] += getattr(window.dispatch, name) or 0
    return total


def is_decode(window: Window) -> bool:
    """Whether a window carries the main model's decode steps."""
    return window.workload.phase is None and window.workload.component in (None, "target")
