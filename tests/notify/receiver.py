"""A strict receiver: a server on loopback that checks messages by a service's published rules, and answers as it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, str]
Check = Callable[[Any], list[str]]


@dataclass(frozen=True)
class Received:
    """One request that was accepted or refused."""

    path: str
    headers: Mapping[str, str]
    content: Any
    wrong: list[str]


class StrictReceiver:
    """Answers `good` where `check` finds nothing wrong, else `bad` with what is wrong; or what `faults` hold first."""

    def __init__(self, check: Check, good: Answer = (200, "ok"), bad: Answer = (400, "invalid_payload")) -> None:
        self.received: list[Received] = []
        self.faults: list[tuple[int, str, dict[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                wrong = [] if self.headers["Content-Type"] == "application/json" else ["content type"]
                try:
                    content = json.loads(body)
                    wrong += check(content)
                except ValueError:
                    content, wrong = None, ["not JSON"]
                outer.received.append(Received(self.path, dict(self.headers.items()), content, wrong))
                status, text = bad if wrong else good
                headers: dict[str, str] = {}
                if outer.faults:
                    status, text, headers = outer.faults.pop(0)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(text.encode())), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def contents(self) -> list[Any]:
        """What was accepted. Raises: AssertionError when anything was refused."""
        assert not [r.wrong for r in self.received if r.wrong]
        return [r.content for r in self.received]

    def __enter__(self) -> StrictReceiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
