"""Serves /metrics and /healthz on a loopback port."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6
from threading import BoundedSemaphore, Thread
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from replaywatch.agent.exposition import Exposition
from replaywatch.contract.errors import ConfigurationError

# A scraper that is slow or many must not take the agent's memory or threads.
SLOW_CLIENT_SECONDS: Final = 5
MAX_CLIENTS: Final = 8
Health = Callable[[], str | None]


class MetricsServer:
    """The HTTP side of the agent. `health` says what is wrong, or None."""

    def __init__(self, address: tuple[str, int], exposition: Exposition, health: Health) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(exposition)
        host, port = address
        try:
            self._server = _Server(address, _handler(registry, health))
        except OSError as error:
            raise ConfigurationError(
                f"/metrics cannot listen on {host}:{port} ({error.strerror}); give another address with --listen"
            ) from None
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_address[1]}/metrics"
        self._thread = Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.5}, name="replaywatch-metrics", daemon=True
        )

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Stop answering and free the port."""
        if self._thread.ident is not None:
            self._server.shutdown()
            self._thread.join(1)
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        if ":" in address[0]:
            self.address_family = AF_INET6
        self._places = BoundedSemaphore(MAX_CLIENTS)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no news."""


def _handler(registry: CollectorRegistry, health: Health) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = SLOW_CLIENT_SECONDS

        def do_GET(self) -> None:
            path = self.path.split("?", 1)[0]
            if path == "/metrics":
                encode, content_type = choose_encoder(self.headers.get("Accept") or "")
                self._answer(200, content_type, encode(registry))
            elif path == "/healthz":
                trouble = health()
                self._answer(503 if trouble else 200, "text/plain; charset=utf-8", f"{trouble or 'ok'}\n".encode())
            else:
                self._answer(404, "text/plain; charset=utf-8", b"here are /metrics and /healthz\n")

        def _answer(self, status: int, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def version_string(self) -> str:
            return "replaywatch"

        def log_message(self, format: str, *args: object) -> None:
            """Scrapes are not logged."""

    return Handler
