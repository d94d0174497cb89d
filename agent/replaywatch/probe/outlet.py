"""`Outlet`: the sending end of the unix datagram socket. It never blocks; what cannot leave is counted and gone."""

from __future__ import annotations

import errno
import json
import socket
from collections import deque
from typing import Any

from replaywatch.probe.counts import is_integral

MAX_FRAME_BYTES = 60 * 1024
MAX_WAITING = 12


class Outlet:
    """Sends frames to the agent, connecting anew whenever the agent was away. Not thread-safe.

    `connections` grows with each agent that is met: a new one knows nothing of what an earlier one was told.
    A few frames wait while the agent restarts or its queue is full, so that counts stay whole; the oldest gives way
    and is counted as dropped.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._waiting: deque[bytes] = deque()
        self.sent = 0
        self.dropped = 0
        self.connections = 0

    def send(self, frame: dict[str, Any]) -> bool:
        """Send a frame as one datagram, after those that wait; False where one of them has to wait or is dropped."""
        dropped = self.dropped
        try:
            data = encode(frame)
        except (TypeError, ValueError):
            self.dropped += 1
            return False
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append(data)
        return self.flush() and self.dropped == dropped

    def flush(self) -> bool:
        """Send what waits, as far as the agent takes it; True when nothing waits any more."""
        while self._waiting:
            try:
                self._put(self._waiting[0])
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno != errno.EMSGSIZE:
                    self.close()
                    return False
                self.dropped += 1  # longer than this host lets a datagram be, now and later
            else:
                self.sent += 1
            self._waiting.popleft()
        return True

    def _put(self, data: bytes) -> None:
        if self._socket is None:
            self._socket = self._connect()
        try:
            self._socket.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except ConnectionError:  # another agent has taken the dead one's place
            self.close()
            self._socket = self._connect()
            self._socket.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    @property
    def waiting(self) -> int:
        """Frames that could not be sent yet."""
        return len(self._waiting)

    def close(self) -> None:
        """Close the socket; a later frame opens it again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self) -> socket.socket:
        outlet = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            outlet.connect(self._path)
        except OSError:
            outlet.close()
            raise
        self.connections += 1
        return outlet


def encode(frame: dict[str, Any]) -> bytes:
    """A frame as compact JSON of at most MAX_FRAME_BYTES: observations go first, then blind spots, then histograms.

    Raises: ValueError where even that is too long, TypeError where something in it is none of JSON's kinds.
    """
    data = _dump(frame)
    for shorten in (_halve_observations, _halve_observations, _no_observations, _no_blind, _no_timing):
        if len(data) <= MAX_FRAME_BYTES:
            return data
        for window in frame["windows"]:
            shorten(window)
        data = _dump(frame)
    if len(data) > MAX_FRAME_BYTES:
        raise ValueError("the frame is too long")
    return data


def _dump(frame: dict[str, Any]) -> bytes:
    return json.dumps(frame, separators=(",", ":"), allow_nan=False, default=_plain).encode()


def _plain(value: object) -> int:
    """An integer of numpy's, as engines may count with. Raises: TypeError for anything else."""
    if is_integral(value):
        return int(value)  # type: ignore[call-overload, no-any-return]
    raise TypeError(f"a {type(value).__name__} cannot leave the process")


def _halve_observations(window: dict[str, Any]) -> None:
    seen = sorted(window.get("observations", ()), key=lambda o: -o.get("count", 1))
    window["observations"] = seen[: len(seen) // 2]


def _no_observations(window: dict[str, Any]) -> None:
    window.pop("observations", None)


def _no_blind(window: dict[str, Any]) -> None:
    window["blind"] = [{"signal": "frame", "reason": "the window was too long for a datagram and was shortened"}]


def _no_timing(window: dict[str, Any]) -> None:
    window.pop("timing", None)
