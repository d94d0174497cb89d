"""Serving the webhook over TLS: until a signal comes, or in a thread of another program."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
import time
from types import FrameType
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from replaywatch.admission.changes import Additions
from replaywatch.admission.options import AdmissionOptions
from replaywatch.admission.papers import Papers
from replaywatch.admission.review import review
from replaywatch.contract.errors import ConfigurationError, WireError

LOG = logging.getLogger("replaywatch.admission")
# Kubernetes' own limit of what it takes for an object is 3 MiB; a review may hold an old one too.
BODY_MAX: Final = 8 << 20


def application(additions: Additions) -> Starlette:
    """The routes: /mutate, which the API server asks, and /healthz."""

    async def mutate(request: Request) -> Response:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > BODY_MAX:
                return PlainTextResponse(f"the body is larger than {BODY_MAX} bytes\n", 413)
        try:
            reviewed = review(bytes(body), additions)
        except WireError as error:
            LOG.warning("a request was not understood: %s", error)
            return PlainTextResponse(f"{error}\n", 400)
        if reviewed.change.operations:
            LOG.info("%s is given the probe", reviewed.pod)
        for warning in reviewed.change.warnings:
            LOG.warning("%s: %s", reviewed.pod, warning)
        return Response(reviewed.body, media_type="application/json")

    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def gone(_request: Request, _error: Exception) -> Response:
        return PlainTextResponse("", 400)

    routes = [Route("/mutate", mutate, methods=["POST"]), Route("/healthz", healthz)]
    return Starlette(routes=routes, exception_handlers={ClientDisconnect: gone})


class AdmissionHandle:
    """A webhook that serves in a thread. `url` is where it is reached."""

    def __init__(self, server: uvicorn.Server, bound: socket.socket, papers: Papers, url: str) -> None:
        self.url = url
        self._server = server
        self._papers = papers
        self._thread = threading.Thread(
            target=lambda: asyncio.run(server.serve(sockets=[bound])), name="replaywatch-admission", daemon=True
        )

    def start(self) -> None:
        """Start serving. Raises: ConfigurationError when the server ends at once."""
        self._papers.start()
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                self._papers.stop()
                raise ConfigurationError("the web server did not start; see the log")
            time.sleep(0.005)

    @property
    def is_alive(self) -> bool:
        """Whether it still serves."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Answer what is being answered, then stop. Safe to call twice."""
        self._papers.stop()
        self._server.should_exit = True
        self._thread.join(5)


def start_in_thread(options: AdmissionOptions) -> AdmissionHandle:
    """A webhook that serves until its handle is stopped. Raises: ConfigurationError."""
    papers = Papers(options.tls_certificate, options.tls_key, options.tls_look_seconds)
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        bound = socket.create_server((options.host, options.port), family=family)
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {options.host} port {options.port} ({error.strerror or error}); choose another"
        ) from None
    additions = Additions(options.probe_image, options.pull_policy, str(options.socket_folder), options.socket_group)

    config = uvicorn.Config(
        application(additions),
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=2,
        ws="none",
        ssl_certfile=options.tls_certificate,
        ssl_keyfile=options.tls_key,
    )
    config.load()
    # Ours, so that what is loaded into it later counts for new connections.
    config.ssl = papers.context
    host = f"[{options.host}]" if ":" in options.host else options.host
    handle = AdmissionHandle(uvicorn.Server(config), bound, papers, f"https://{host}:{bound.getsockname()[1]}")
    handle.start()
    return handle


def run(options: AdmissionOptions) -> None:
    """Serve until SIGINT or SIGTERM. Main thread only. Raises: ConfigurationError."""
    stopping = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stopping.set()

    previous = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        handle = start_in_thread(options)
        LOG.info("the webhook serves at %s/mutate and adds %s", handle.url, options.probe_image)
        while not stopping.wait(0.5) and handle.is_alive:
            pass
        handle.stop()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
