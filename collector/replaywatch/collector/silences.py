"""Silences and maintenance windows: times during which nobody is told of matching incidents.

A silence matches an incident when each of its matchers matches the incident's workload. Matchers are names of
`FIELDS` with shell patterns (`chat-*`); the incident itself opens and shows as ever.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from replaywatch.collector.audit import write_audit
from replaywatch.collector.remembered import recall
from replaywatch.collector.tables import IncidentRow, MemberRow, SilenceRow
from replaywatch.contract.errors import ConfigurationError
from replaywatch.contract.window import Workload

FIELDS: Final = ("namespace", "pod", "container", "node", "engine", "model_name", "detector", "severity")
KINDS: Final = ("silence", "maintenance")
PATTERN_MAX: Final = 200
LONGEST_NS: Final = 366 * 24 * 3600 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """When, for what, why and by whom."""

    id: int
    kind: str
    matchers: Mapping[str, str]
    starts_ns: int
    ends_ns: int
    comment: str
    created_ns: int
    created_by: str


def checked_matchers(given: object) -> dict[str, str]:
    """Matchers that can be used. Raises: ConfigurationError."""
    if not isinstance(given, Mapping) or not given:
        raise ConfigurationError(f"matchers must be an object with at least one of {', '.join(FIELDS)}")
    for name, pattern in given.items():
        if name not in FIELDS:
            raise ConfigurationError(f"a matcher must be one of {', '.join(FIELDS)}")
        if not isinstance(pattern, str) or not 0 < len(pattern) <= PATTERN_MAX:
            raise ConfigurationError(f"the pattern of {name} must have 1 to {PATTERN_MAX} characters")
    return {str(k): str(v) for k, v in given.items()}


def add_silence(
    session: Session,
    *,
    kind: str,
    matchers: Mapping[str, str],
    starts_ns: int,
    ends_ns: int,
    comment: str,
    who: str,
    at_ns: int,
) -> Silence:
    """Begin a silence, now or later. Raises: ConfigurationError."""
    if kind not in KINDS:
        raise ConfigurationError(f"kind must be one of {', '.join(KINDS)}")
    if not starts_ns < ends_ns or ends_ns <= at_ns or ends_ns - starts_ns > LONGEST_NS:
        raise ConfigurationError("a silence must end after its start, in the future, and within a year")
    row = SilenceRow(
        kind=kind,
        matchers=json.dumps(dict(matchers)),
        starts_ns=starts_ns,
        ends_ns=ends_ns,
        comment=comment,
        created_ns=at_ns,
        created_by=who,
    )
    session.add(row)
    session.flush()
    write_audit(session, at_ns, who, f"{kind} added", f"silence {row.id}", row.matchers)
    return _silence_of(row)


def end_silence(session: Session, silence_id: int, who: str, at_ns: int) -> Silence | None:
    """End a silence now; None when there is none."""
    row = session.get(SilenceRow, silence_id)
    if row is None:
        return None
    if row.ends_ns > at_ns:
        row.ends_ns = at_ns
        row.starts_ns = min(row.starts_ns, at_ns)
        write_audit(session, at_ns, who, f"{row.kind} ended", f"silence {row.id}", row.matchers)
    return _silence_of(row)


def find_silences(session: Session, *, at_ns: int | None = None, limit: int = 100, offset: int = 0) -> list[Silence]:
    """Silences, newest first; those that are in force at a time where one is given."""
    query = select(SilenceRow).order_by(SilenceRow.id.desc()).limit(limit).offset(offset)
    if at_ns is not None:
        query = query.where(SilenceRow.starts_ns <= at_ns, SilenceRow.ends_ns > at_ns)
    return [_silence_of(row) for row in session.scalars(query)]


def silenced_until_ns(session: Session, incident_id: int, silences: Iterable[Silence]) -> int | None:
    """Until when nobody is to be told of an incident: when each member that is open, or all, match a silence."""
    row = session.get(IncidentRow, incident_id)
    silences = list(silences)
    if row is None or not silences:
        return None
    query = select(MemberRow).where(MemberRow.incident_id == incident_id)
    alive = session.scalars(query.where(MemberRow.state != "closed")).all() or session.scalars(query).all()
    ends = []
    for member in alive:
        who = recall(Workload, member.who, f"workload {member.workload_id}")
        hits = [s.ends_ns for s in silences if who is not None and _matches(s, who, member.detector, member.severity)]
        if not hits:
            return None
        ends.append(max(hits))
    return min(ends) if ends else None


def _matches(silence: Silence, workload: Workload, detector: str, severity: str) -> bool:
    known = {"detector": detector, "severity": severity}
    return all(
        fnmatchcase(known[name] if name in known else str(getattr(workload, name) or ""), pattern)
        for name, pattern in silence.matchers.items()
    )


def _silence_of(row: SilenceRow) -> Silence:
    return Silence(
        id=row.id,
        kind=row.kind,
        matchers=json.loads(row.matchers),
        starts_ns=row.starts_ns,
        ends_ns=row.ends_ns,
        comment=row.comment,
        created_ns=row.created_ns,
        created_by=row.created_by,
    )
