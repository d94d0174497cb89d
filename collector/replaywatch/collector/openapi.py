"""The OpenAPI description of the API, made from its table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from replaywatch.collector.documents import SCHEMA_VERSION
from replaywatch.collector.endpoints import Endpoint

OPENAPI: Final = "3.1.0"
_ERROR: Final = {
    "type": "object",
    "required": ["schema_version", "error"],
    "properties": {
        "schema_version": {"type": "integer"},
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
        },
    },
}
_ALWAYS: Final = {
    400: "A parameter or the body does not fit.",
    401: "Show a token.",
    403: "The token lacks the scope.",
    503: "The store does not answer; see Retry-After.",
}


def description(rows: Iterable[Endpoint]) -> dict[str, Any]:
    """The description of some endpoints, as JSON values."""
    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row)
    return {
        "openapi": OPENAPI,
        "info": {
            "title": "Replaywatch collector",
            "version": _release(),
            "description": "Times are RFC 3339 in UTC, ratios in 0..1; what is unknown is null.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": _ERROR, "Document": _document()},
        },
    }


def _operation(row: Endpoint) -> dict[str, Any]:
    answers = _ALWAYS | dict(row.answers)
    if not any(200 <= status < 300 for status in answers):
        answers[200] = row.summary + "."
    parameters = [_in_path(name) for name in re.findall(r"{(\w+)}", row.path)]
    parameters += [{"name": n, "in": "query", "schema": dict(schema)} for n, schema in row.query.items()]
    operation: dict[str, Any] = {
        "operationId": f"{row.method.lower()}{re.sub(r'[^a-z]+', '_', row.path.removeprefix('/v1'))}".rstrip("_"),
        "summary": row.summary,
        "description": f"Needs the scope `{row.scope}`.",
        "security": [{"token": []}] if row.scope == "write" else [{}, {"token": []}],
        "parameters": parameters,
        "responses": {str(s): _response(s, text) for s, text in sorted(answers.items())},
    }
    if row.body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": dict(row.body)}}}
    return operation


def _in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _response(status: int, text: str) -> Mapping[str, Any]:
    schema = "Document" if status < 300 else "Error"
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    return {"description": text, "content": content}


def _document() -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["schema_version"],
        "properties": {"schema_version": {"type": "integer", "enum": [SCHEMA_VERSION]}},
    }


def _release() -> str:
    try:
        return version("replaywatch")
    except PackageNotFoundError:
        return "0"
