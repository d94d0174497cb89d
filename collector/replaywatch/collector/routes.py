"""Which address leads where, and how errors are told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from replaywatch.collector.answers import problem
from replaywatch.collector.api import ReadApi
from replaywatch.collector.health import Health
from replaywatch.collector.pages import Pages
from replaywatch.collector.receive import BatchEndpoint
from replaywatch.collector.shielding import Shielding
from replaywatch.contract.errors import ConfigurationError, StoreError


def application(
    batches: BatchEndpoint, api: ReadApi, pages: Pages, health: Health, registry: CollectorRegistry
) -> Starlette:
    """The web application."""

    async def metrics(_request: Request) -> Response:
        return Response(await run_in_threadpool(generate_latest, registry), media_type=CONTENT_TYPE_LATEST)

    reads: dict[str, Callable[[Request], object]] = {
        "/": pages.fleet,
        "/incidents": pages.incidents,
        "/incidents/{id}": pages.incident,
        "/workloads/{id}": pages.workload,
        "/healthz": health.alive,
        "/readyz": health.ready,
        "/metrics": metrics,
        "/v1/workloads": api.workloads,
        "/v1/workloads/{id}": api.workload,
        "/v1/workloads/{id}/windows": api.windows,
        "/v1/incidents": api.incidents,
        "/v1/incidents/{id}": api.incident,
    }
    return Starlette(
        routes=[
            Route("/v1/batches", batches.receive, methods=["POST"]),
            *(Route(path, endpoint, methods=["GET"]) for path, endpoint in reads.items()),
            Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")),
        ],
        middleware=[Middleware(Shielding)],
        exception_handlers={
            HTTPException: _http_problem,
            ConfigurationError: _bad_request,
            StoreError: _store_problem,
        },
    )


async def _http_problem(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "refused")
    return problem(error.status_code, code, error.detail, error.headers)


async def _bad_request(_request: Request, error: Exception) -> Response:
    return problem(400, "parameter", str(error))


async def _store_problem(_request: Request, error: Exception) -> Response:
    return problem(503, "store_failed", str(error), {"Retry-After": "1"})
