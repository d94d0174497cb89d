"""What became of a transaction whose commit was not answered, because the connection ended meanwhile.

PostgreSQL may have committed it. Taking it for failed would store a batch that detection never takes in: its sender is
told to try again, and the second try is a duplicate. The database knows, by the transaction's number.
"""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from replaywatch.collector.store import Store


def number_of(session: Session) -> str | None:
    """The number of a writing transaction; None on SQLite, whose commits are never in doubt, and when it wrote nothing.

    Raises: SQLAlchemyError.
    """
    if session.get_bind().dialect.name != "postgresql":
        return None
    found: str | None = session.scalar(text("SELECT CAST(pg_current_xact_id_if_assigned() AS text)"))
    return found


def was_committed(store: Store, number: str) -> bool | None:
    """Whether a transaction was committed; None while that is not known, as it is under way or the store is away."""
    try:
        with store.session() as session:
            status = session.scalar(text("SELECT pg_xact_status(CAST(:number AS xid8))"), {"number": number})
    except OperationalError:
        return None
    except SQLAlchemyError:
        return False  # another database took this one's place, and never saw the transaction
    return None if status == "in progress" else status == "committed"
