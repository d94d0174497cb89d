"""The audit trail: who changed what, and when."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from replaywatch.collector.tables import AuditRow


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One change by a person or program."""

    id: int
    at_ns: int
    who: str
    action: str
    subject: str
    detail: str


def write_audit(session: Session, at_ns: int, who: str, action: str, subject: str, detail: str) -> None:
    """Add a line, in the transaction of the change."""
    session.add(AuditRow(at_ns=at_ns, who=who[:100], action=action, subject=subject[:200], detail=detail[:2000]))


def read_audit(session: Session, limit: int, before_id: int | None) -> list[AuditLine]:
    """Lines, newest first, those before an id where one is given."""
    query = select(AuditRow).order_by(AuditRow.id.desc()).limit(limit)
    if before_id is not None:
        query = query.where(AuditRow.id < before_id)
    return [AuditLine(r.id, r.at_ns, r.who, r.action, r.subject, r.detail) for r in session.scalars(query)]
