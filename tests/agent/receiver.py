"""A collector's ingest as the agent meets it: a real HTTP server that keeps batches by key, with faults to order."""

from __future__ import annotations

import gzip
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from replaywatch.contract.window import Window
from replaywatch.contract.wire import Batch, decode

# A fault sees the request and the batch and answers itself (True), or lets the batch be stored (False).
Fault = Callable[["Handler", Batch], bool]


class Receiver:
    """Stores batches by key. `faults` are used up one a request; `standing` applies to every request after them."""

    def __init__(self, port: int = 0) -> None:
        self.faults: list[Fault] = []
        self.standing: Fault | None = None
        self.stored: dict[str, Batch] = {}
        self.posts: Counter[str] = Counter()
        self.headers: list[dict[str, str]] = []
        self.released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), type("Bound", (Handler,), {"receiver": self}))
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def windows(self) -> list[Window]:
        return [w for batch in list(self.stored.values()) for w in batch.windows]

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Handler(BaseHTTPRequestHandler):
    receiver: Receiver
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        batch = decode(gzip.decompress(body))
        me = self.receiver
        me.posts[batch.key] += 1
        me.headers.append({"path": self.path, **{k.lower(): v for k, v in self.headers.items()}})
        fault = me.faults.pop(0) if me.faults else me.standing
        if fault is not None and fault(self, batch):
            return
        me.stored.setdefault(batch.key, batch)
        self.answer(200, b'{"stored":true}')

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def status(code: int, **headers: str) -> Fault:
    """Answer with a status."""

    def fault(handler: Handler, batch: Batch) -> bool:
        handler.answer(code, b"no", **headers)
        return True

    return fault


def reset(handler: Handler, batch: Batch) -> bool:
    """Store the batch, then reset the connection instead of answering: the sender cannot know."""
    handler.receiver.stored.setdefault(batch.key, batch)
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.close_connection = True
    return True


def hang(handler: Handler, batch: Batch) -> bool:
    """Never answer, until the receiver is closed."""
    handler.receiver.released.wait(30)
    handler.close_connection = True
    return True


def trickle(handler: Handler, batch: Batch) -> bool:
    """Answer one byte at a time, without end."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    try:
        while not handler.receiver.released.wait(0.02):
            handler.wfile.write(b" ")
    except OSError:
        pass
    handler.close_connection = True
    return True


def slow(seconds: float) -> Fault:
    """Take a while, then store."""

    def fault(handler: Handler, batch: Batch) -> bool:
        time.sleep(seconds)
        return False

    return fault


def at_most(windows: int) -> Fault:
    """Refuse batches of more windows as too large."""

    def fault(handler: Handler, batch: Batch) -> bool:
        if len(batch.windows) <= windows:
            return False
        handler.answer(413, b"too large")
        return True

    return fault


def refuse_pod(pod: str) -> Fault:
    """Refuse any batch with a window of a pod."""

    def fault(handler: Handler, batch: Batch) -> bool:
        if all(w.workload.pod != pod for w in batch.windows):
            return False
        handler.answer(400, b"bad window")
        return True

    return fault
