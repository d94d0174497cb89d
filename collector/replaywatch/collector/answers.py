"""How the API answers: JSON documents, and errors with a code for programs and a sentence for people."""

from __future__ import annotations

import json
from collections.abc import Mapping

from starlette.responses import Response

from replaywatch.collector.documents import SCHEMA_VERSION


def document(content: Mapping[str, object], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer; what it holds changes with every tick, so it is not cached."""
    body = json.dumps({"schema_version": SCHEMA_VERSION, **content}, separators=(",", ":"), default=str)
    return Response(body, status, {"Cache-Control": "no-store", **(headers or {})}, "application/json")


def problem(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error."""
    return document({"error": {"code": code, "message": message}}, status, headers)
