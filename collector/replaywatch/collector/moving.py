"""Taking everything out of one store and putting it into another, of either kind: backup, restore, and moving house.

The file is gzip over lines of JSON: a head, then rows as ``[table, {column: value}]`` with bytes in base64. It is read
and written row by row, so that its size does not matter.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import zlib
from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Final

from sqlalchemy import LargeBinary, Table, func, insert, inspect, select, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from replaywatch.collector.day_partitions import TABLES, add_days, day_of
from replaywatch.collector.store import Store, reason
from replaywatch.collector.tables import Base, LeaseRow, WorkerRow
from replaywatch.contract.errors import StoreError

FORMAT: Final = "replaywatch store 1"
CHUNK: Final = 500
# Who works now is not worth keeping.
_LEFT_OUT: Final = {LeaseRow.__tablename__, WorkerRow.__tablename__}


def export_store(store: Store, path: Path) -> int:
    """Write a store, as it is at one moment, into a file; how many rows. Raises: StoreError.

    The file appears under its name only when it is whole.
    """
    part = path.with_name(path.name + ".part")
    rows = 0
    try:
        with store.reading() as session, gzip.open(part, "wt", compresslevel=6, encoding="ascii") as out:
            if store.is_postgresql:
                session.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"))
            head = {"format": FORMAT, "layout": _layout(session)}
            out.write(json.dumps(head) + "\n")
            for line in _lines(session):
                out.write(line)
                rows += 1
            out.write(json.dumps({"rows": rows}) + "\n")
        os.replace(part, path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written ({error.strerror or error})") from None
    finally:
        part.unlink(missing_ok=True)
    return rows


def import_store(store: Store, path: Path) -> int:
    """Read a file into an empty store, wholly or not at all; how many rows. Raises: StoreError."""
    try:
        with gzip.open(path, "rt", encoding="ascii") as lines, store.writing() as session, session.begin():
            _check_empty(session, store)
            _check_head(next(lines, ""), session, path)
            rows = _read_rows(session, lines, path)
            _move_counters_on(session)
    except (OSError, EOFError, UnicodeError, zlib.error, ValueError) as error:
        raise StoreError(f"{path} cannot be read ({error}); it is no export, or damaged") from None
    except SQLAlchemyError as error:
        raise StoreError(f"{path} does not fit into {store.address} ({reason(error)})") from None
    return rows


def _tables() -> list[Table]:
    return [t for t in Base.metadata.sorted_tables if t.name not in _LEFT_OUT]


def _layout(session: Session) -> str:
    return session.scalar(text("SELECT version_num FROM alembic_version")) or ""


def _lines(session: Session) -> Iterator[str]:
    for table in _tables():
        found = session.execute(select(table).order_by(*table.primary_key), execution_options={"yield_per": CHUNK})
        for row in found.mappings():
            values = {k: base64.b64encode(v).decode() if isinstance(v, bytes) else v for k, v in row.items()}
            yield json.dumps([table.name, values], separators=(",", ":")) + "\n"


def _check_empty(session: Session, store: Store) -> None:
    for table in _tables():
        if session.scalar(select(func.count()).select_from(table)):
            raise StoreError(f"the database {store.address} is not empty; import into a new one")


def _check_head(line: str, session: Session, path: Path) -> None:
    head = json.loads(line or "{}")
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise StoreError(f"{path} is no export of a store")
    if head.get("layout") != _layout(session):
        raise StoreError(
            f"{path} has layout {head.get('layout')}, this release {_layout(session)}; import with the release that "
            "exported, then upgrade"
        )


def _read_rows(session: Session, lines: Iterator[str], path: Path) -> int:
    tables = {t.name: t for t in _tables()}
    days: set[int] = set()
    rows = 0
    for name, group in groupby(_parsed(lines), key=lambda line: line[0]):
        if not name:
            # Reading on to the end of the file makes gzip compare its checksum.
            told = [values.get("rows") for _, values in group]
            if told == [rows] and next(lines, None) is None:
                return rows
            break
        if name not in tables:
            raise StoreError(f"{path} has rows of {name}, which this release does not know")
        while some := [_row(tables[name], values) for _, values in islice(group, CHUNK)]:
            _make_room(session, name, some, days)
            session.execute(insert(tables[name]), some)
            rows += len(some)
    raise StoreError(f"{path} is cut short; nothing was imported")


def _parsed(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows as (table, values); the last line as ("", values)."""
    for line in lines:
        found = json.loads(line)
        yield ("", found) if isinstance(found, dict) else (found[0], found[1])


def _row(table: Table, values: dict[str, Any]) -> dict[str, Any]:
    binary = {c.name for c in table.columns if isinstance(c.type, LargeBinary)}
    return {k: base64.b64decode(v) if k in binary and v is not None else v for k, v in values.items()}


def _make_room(session: Session, name: str, rows: list[dict[str, Any]], days: set[int]) -> None:
    if name in TABLES and session.get_bind().dialect.name == "postgresql":
        new = {day_of(row["received_ns"]) for row in rows} - days
        add_days(session, sorted(new))
        days |= new


def _move_counters_on(session: Session) -> None:
    """Let new rows be numbered after the imported ones; SQLite does by itself."""
    if session.get_bind().dialect.name != "postgresql":
        return
    for table in _tables():
        key = inspect(table).primary_key.columns[0]
        sequence = session.scalar(text("SELECT pg_get_serial_sequence(:t, :c)"), {"t": table.name, "c": key.name})
        last = session.scalar(select(func.max(key)))
        if sequence is not None and last is not None:
            session.execute(text("SELECT setval(:s, :n)"), {"s": sequence, "n": last})
