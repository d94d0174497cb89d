"""The table of the API: which address answers what, to whom; routes and the OpenAPI description are made from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from starlette.requests import Request
from starlette.responses import Response

from replaywatch.collector.api import LIMIT_MAX, SEVERITIES, VERDICTS, ReadApi
from replaywatch.collector.changes import COMMENT_MAX, Changes
from replaywatch.collector.incidents import STATES
from replaywatch.collector.messages_api import MessagesApi
from replaywatch.collector.outbox import STATES as OUTBOX_STATES
from replaywatch.collector.query import LAST_ID, TEXT_MAX
from replaywatch.collector.receive import BatchEndpoint
from replaywatch.collector.silences import FIELDS, KINDS
from replaywatch.collector.tokens import Scope

Answer = Callable[[Request], Awaitable[Response]]
Schema = Mapping[str, Any]
TEXT: Final[Schema] = {"type": "string", "maxLength": TEXT_MAX}
TIME: Final[Schema] = {
    "anyOf": [{"type": "string", "format": "date-time"}, {"type": "number", "minimum": 0, "maximum": 4e9}]
}
COMMENT: Final[Schema] = {"type": "string", "maxLength": COMMENT_MAX, "pattern": "^[ -~]*$"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One row. `query` gives the schema of each parameter, `answers` what each status means."""

    path: str
    answer: Answer
    scope: Scope
    summary: str
    method: Literal["GET", "POST", "PUT", "DELETE"] = "GET"
    query: Mapping[str, Schema] = field(default_factory=dict)
    body: Schema | None = None
    answers: Mapping[int, str] = field(default_factory=dict)


def endpoints(batches: BatchEndpoint, api: ReadApi, changes: Changes, messages: MessagesApi) -> tuple[Endpoint, ...]:
    """All rows of the API."""
    return (*_reads(api), _messages(messages), *_changes(changes), _ingest(batches))


def _whole(least: int, most: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


def _reads(api: ReadApi) -> tuple[Endpoint, ...]:
    page = {"limit": _whole(0, LIMIT_MAX), "offset": _whole(0, LAST_ID)}
    missing = {404: "There is no such thing."}
    who = {"namespace": TEXT, "node": TEXT, "model_name": TEXT, "engine": TEXT}
    found = {"workload": TEXT, "detector": TEXT, "severity": {"type": "string", "enum": list(SEVERITIES)}}
    states = {"type": "array", "items": {"type": "string", "enum": list(STATES)}}
    verdict = {"type": "string", "enum": list(VERDICTS)}
    series = {"from": TIME, "to": TIME, "points": _whole(1, LIMIT_MAX)}
    rows: tuple[tuple[str, Answer, str, Mapping[str, Schema], Mapping[int, str]], ...] = (
        ("/v1/workloads", api.workloads, "Workloads, worst first", {**page, **who, "verdict": verdict, "q": TEXT}, {}),
        ("/v1/workloads/{id}", api.workload, "A workload with its verdict", {}, missing),
        ("/v1/workloads/{id}/windows", api.windows, "Sums over slices of time", series, missing),
        ("/v1/incidents", api.incidents, "Incidents, last changed first", {**page, **found, "state": states}, {}),
        ("/v1/incidents/{id}", api.incident, "An incident with its history", {}, missing),
        ("/v1/incidents/{id}/members", api.members, "Workloads of an incident", page, missing),
        ("/v1/silences", api.silences, "Silences and maintenance windows", page, {}),
        ("/v1/audit", api.audit, "Who changed what", {"limit": page["limit"], "before": page["offset"]}, {}),
        ("/v1/senders", api.senders, "Nodes that send, and how far their clocks are off", {}, {}),
    )
    return tuple(
        Endpoint(path=path, answer=answer, scope="read", summary=summary, query=query, answers=answers)
        for path, answer, summary, query, answers in rows
    )


def _messages(messages: MessagesApi) -> Endpoint:
    states = {"type": "array", "items": {"type": "string", "enum": list(OUTBOX_STATES)}}
    return Endpoint(
        path="/v1/notifications",
        answer=messages.notifications,
        scope="read",
        summary="Messages by what became of them; state=dead are those given up",
        query={"state": states, "destination": TEXT, "limit": _whole(0, LIMIT_MAX), "offset": _whole(0, LAST_ID)},
    )


def _changes(changes: Changes) -> tuple[Endpoint, ...]:
    missing = {404: "There is no such thing."}
    silence = {
        "type": "object",
        "required": ["matchers", "ends"],
        "properties": {
            "kind": {"type": "string", "enum": list(KINDS)},
            "matchers": {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": False,
                "properties": {f: {"type": "string", "minLength": 1, "maxLength": TEXT_MAX} for f in FIELDS},
            },
            "starts": TIME,
            "ends": TIME,
            "comment": COMMENT,
        },
    }
    comment = {"type": "object", "properties": {"comment": COMMENT}}
    mark = "/v1/incidents/{id}/acknowledgement"
    return (
        Endpoint(
            path=mark,
            answer=changes.acknowledge,
            scope="write",
            method="PUT",
            summary="Acknowledge an incident",
            body=comment,
            answers=missing,
        ),
        Endpoint(
            path=mark,
            answer=changes.unacknowledge,
            scope="write",
            method="DELETE",
            summary="Take an acknowledgement back",
            answers=missing,
        ),
        Endpoint(
            path="/v1/silences",
            answer=changes.silence,
            scope="write",
            method="POST",
            summary="Silence incidents, or plan a maintenance window",
            body=silence,
            answers={201: "The silence."},
        ),
        Endpoint(
            path="/v1/silences/{id}",
            answer=changes.unsilence,
            scope="write",
            method="DELETE",
            summary="End a silence now",
            answers=missing,
        ),
    )


def _ingest(batches: BatchEndpoint) -> Endpoint:
    body = {
        "type": "object",
        "required": ["v", "key", "sent_ns", "windows"],
        "properties": {
            "v": {"type": "integer", "enum": [1]},
            "key": {"type": "string", "minLength": 1, "maxLength": 200},
            "sent_ns": _whole(0, LAST_ID),
            "windows": {"type": "array", "items": {"type": "object"}, "maxItems": 10_000},
        },
    }
    return Endpoint(
        path="/v1/batches",
        answer=batches.receive,
        scope="ingest",
        method="POST",
        summary="Store a batch of windows, once per key",
        body=body,
        answers={
            408: "The body took too long.",
            409: "Another wire version; the answer lists those that are spoken.",
            413: "Too large.",
            415: "Not JSON, or an unknown encoding.",
            429: "The token's rate or quota is used up; see Retry-After.",
            503: "Too busy, or the store does not answer; see Retry-After.",
        },
    )
