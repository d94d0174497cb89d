"""Which address leads where, and how errors are told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.endpoints import HTTPEndpoint
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from replaywatch.collector.answers import problem
from replaywatch.collector.endpoints import Answer, Endpoint
from replaywatch.collector.forms import Forms
from replaywatch.collector.gate import Gate
from replaywatch.collector.health import Health
from replaywatch.collector.openapi import description
from replaywatch.collector.pages import Pages
from replaywatch.collector.shielding import Shielding
from replaywatch.contract.errors import ConfigurationError, StoreError


def application(
    rows: Sequence[Endpoint],
    gate: Gate,
    pages: Pages,
    forms: Forms,
    health: Health,
    registry: CollectorRegistry,
    hosts: Sequence[str],
) -> Starlette:
    """The web application; `hosts` are the names by which it may be called."""
    described = JSONResponse(description(rows))

    async def metrics(_request: Request) -> Response:
        return Response(await run_in_threadpool(generate_latest, registry), media_type=CONTENT_TYPE_LATEST)

    async def openapi(_request: Request) -> Response:
        return described

    routes = [
        Route("/", gate.page(pages.fleet), methods=["GET"]),
        Route("/incidents", gate.page(pages.incidents), methods=["GET"]),
        Route("/incidents/{id}", gate.page(pages.incident), methods=["GET"]),
        Route("/incidents/{id}/mark", forms.mark, methods=["POST"]),
        Route("/workloads/{id}", gate.page(pages.workload), methods=["GET"]),
        Route("/login", forms.login_page, methods=["GET"]),
        Route("/login", forms.login, methods=["POST"]),
        Route("/logout", forms.logout, methods=["POST"]),
        Route("/healthz", health.alive, methods=["GET"]),
        Route("/readyz", health.ready, methods=["GET"]),
        Route("/metrics", gate.api("read", metrics), methods=["GET"]),
        Route("/openapi.json", openapi, methods=["GET"]),
        Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")),
    ]
    for path in dict.fromkeys(row.path for row in rows):
        routes.append(Route(path, _by_method([r for r in rows if r.path == path], gate)))
    return Starlette(
        routes=routes,
        middleware=[Middleware(Shielding), Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))],
        exception_handlers={
            HTTPException: _http_problem,
            ConfigurationError: _bad_request,
            StoreError: _store_problem,
        },
    )


def _by_method(rows: Sequence[Endpoint], gate: Gate) -> type[HTTPEndpoint]:
    """One address with an answer for each of its methods, and 405 for others."""
    # Batches are let in by their own endpoint, which counts those that it refuses.
    answers = {r.method.lower(): r.answer if r.scope == "ingest" else gate.api(r.scope, r.answer) for r in rows}

    def method(answer: Answer) -> Callable[[HTTPEndpoint, Request], Awaitable[Response]]:
        async def handle(_self: HTTPEndpoint, request: Request) -> Response:
            return await answer(request)

        return handle

    return type("ApiEndpoint", (HTTPEndpoint,), {name: method(answer) for name, answer in answers.items()})


async def _http_problem(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "refused")
    return problem(error.status_code, code, error.detail, error.headers)


async def _bad_request(_request: Request, error: Exception) -> Response:
    return problem(400, "parameter", str(error))


async def _store_problem(_request: Request, error: Exception) -> Response:
    return problem(503, "store_failed", str(error), {"Retry-After": "1"})
