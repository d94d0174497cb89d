"""Connections that do not bring the head of a request in time are told so and closed.

uvicorn waits for a head without end, so that a stranger with a few thousand idle connections would use up the
collector's file descriptors.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

_BODY = b'{"error":{"code":"slow","message":"the head of the request took too long"}}'
_ANSWER = (
    b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
)


def impatient(seconds: float) -> type[H11Protocol]:
    """The HTTP protocol for uvicorn, with a limit to how long the head of each request may take."""

    class Impatient(H11Protocol):
        """Runs a timer from the first byte of a head, or from the connection's beginning, to the head's end."""

        _waiting: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._waiting is not None and self._has_request():
                self._forgive()
            elif self._waiting is None and not self._has_request():
                self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self._forgive()
            super().connection_lost(exc)

        def _has_request(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def _wait(self) -> None:
            self._waiting = self.loop.call_later(seconds, self._give_up)

        def _forgive(self) -> None:
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None

        def _give_up(self) -> None:
            self._waiting = None
            if not self._has_request() and not self.transport.is_closing():
                self.transport.write(_ANSWER)
                self.transport.close()

    return Impatient
