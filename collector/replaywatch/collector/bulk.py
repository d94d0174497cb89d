"""Appending many rows at once: COPY on PostgreSQL, one prepared statement on SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session


def append_rows(session: Session, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Append rows to a table. Names of table and columns must be constants of the program.

    Raises: SQLAlchemyError.
    """
    if not rows:
        return
    connection = session.connection()
    names = ", ".join(columns)
    if connection.dialect.name == "postgresql":
        statement = f"COPY {table} ({names}) FROM STDIN"
        raw: Any = connection.connection
        try:
            with raw.cursor() as cursor, cursor.copy(statement) as copy:
                for row in rows:
                    copy.write_row(row)
        except connection.dialect.loaded_dbapi.Error as error:
            # The driver is used past SQLAlchemy here, so its errors do not come wrapped.
            raise OperationalError(statement, None, error) from error
        return
    marks = ", ".join("?" * len(columns))
    connection.exec_driver_sql(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(rows))
