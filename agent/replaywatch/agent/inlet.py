"""`Inlet`: the unix datagram socket that probes send frames to, and who the kernel says each sender is.

A probe never blocks, so frames are taken off the socket before each one is worked on. What bounds the socket is
net.unix.max_dgram_qlen (10 frames in a fresh network namespace, so in every pod), not SO_RCVBUF, which unix datagrams
do not look at; senders beyond it get EAGAIN and count a drop. While the backlog here is full the socket is left alone,
and the same happens.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Final

from replaywatch.agent.socket_place import claim, release

MAX_FRAME_BYTES: Final = 1 << 20
BACKLOG_BYTES: Final = 8 << 20
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sent a frame, as the kernel says. `pid` is in the agent's own PID namespace, None where it is not visible."""

    pid: int | None
    uid: int


@dataclass(frozen=True, slots=True)
class Frame:
    """One datagram. `truncated` when it was larger than MAX_FRAME_BYTES."""

    data: bytes
    sender: Sender
    truncated: bool = False


class Inlet:
    """The receiving end. Not thread-safe, except for `wake`."""

    def __init__(self, path: Path, group: str | None = None) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.setblocking(False)
        try:
            self._claim = claim(self._socket, path, group)
        except BaseException:
            self._socket.close()
            raise
        self._alarm, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._poll.register(self._alarm, select.POLLIN)
        self._open = True
        # Reentrant: a signal handler may wake a loop that is just closing.
        self._guard = RLock()
        self._buffer = bytearray(MAX_FRAME_BYTES)
        self._backlog: deque[Frame] = deque()
        self._backlog_bytes = 0

    def frames(self, timeout_s: float) -> Iterator[Frame]:
        """The frames that are there, waiting up to a timeout for the first; the socket is emptied before each."""
        if not self._backlog and self._poll.poll(timeout_s * 1000):
            self._quiet_alarm()
        self._drain()
        while self._backlog:
            frame = self._backlog.popleft()
            self._backlog_bytes -= len(frame.data)
            yield frame
            self._drain()

    def wake(self) -> None:
        """End a wait early, from any thread; nothing after `close`."""
        with self._guard, suppress(BlockingIOError):  # already full of alarms
            if self._open:
                os.write(self._wake, b"\0")

    def close(self) -> None:
        """Stop listening and remove the socket, unless somebody else's is there by now."""
        with self._guard:
            if not self._open:
                return
            self._open = False
            release(self._claim)
            self._socket.close()
            os.close(self._alarm)
            os.close(self._wake)

    def _quiet_alarm(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._alarm, 4096)

    def _drain(self) -> None:
        while self._backlog_bytes < BACKLOG_BYTES and (frame := self._receive()):
            self._backlog.append(frame)
            self._backlog_bytes += len(frame.data)

    def _receive(self) -> Frame | None:
        room = socket.CMSG_SPACE(_CREDENTIALS.size)
        try:
            size, ancillary, flags, _ = self._socket.recvmsg_into([self._buffer], room)
        except BlockingIOError:
            return None
        sender = Sender(None, -1)
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS and len(data) >= _CREDENTIALS.size:
                pid, uid, _gid = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])
                sender = Sender(pid if pid > 0 else None, uid)
        return Frame(bytes(memoryview(self._buffer)[:size]), sender, bool(flags & socket.MSG_TRUNC))
