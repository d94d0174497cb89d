"""The store: one database behind an SQLAlchemy URL, SQLite in WAL mode unless told otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, create_engine, event, select
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from replaywatch.collector.tables import SCHEMA_VERSION, Base, SchemaRow
from replaywatch.contract.errors import ConfigurationError, StoreError


class Store:
    """An open database with its tables in place."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @staticmethod
    def open(url: str) -> Store:
        """Open a database and lay out its tables where they are missing.

        Raises: ConfigurationError for a URL that cannot work, StoreError when the database cannot be used.
        """
        store = Store(_engine(url))
        try:
            store._lay_out()
        except SQLAlchemyError as error:
            store.close()
            raise StoreError(
                f"the database {store.address} cannot be used ({reason(error)}); check that it is there and writable"
            ) from None
        except StoreError:
            store.close()
            raise
        return store

    @property
    def address(self) -> str:
        """The URL without its password."""
        return self._engine.url.render_as_string(hide_password=True)

    def session(self) -> Session:
        """A new session; objects stay readable after its end."""
        return Session(self._engine, expire_on_commit=False)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session whose failures are StoreError."""
        try:
            with self.session() as session:
                yield session
        except SQLAlchemyError as error:
            raise StoreError(f"the store cannot be read ({reason(error)})") from None

    def answers(self) -> bool:
        """Whether the database answers a query now."""
        try:
            with self.session() as session:
                return session.scalar(select(SchemaRow.version)) is not None
        except SQLAlchemyError:
            return False

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _lay_out(self) -> None:
        Base.metadata.create_all(self._engine)
        with self.session() as session, session.begin():
            found = session.scalar(select(SchemaRow.version))
            if found is None:
                session.add(SchemaRow(version=SCHEMA_VERSION))
            elif found != SCHEMA_VERSION:
                raise StoreError(
                    f"the database {self.address} has layout {found}, this release uses {SCHEMA_VERSION}; "
                    "use the release that wrote it, or another database"
                )


def reason(error: SQLAlchemyError) -> str:
    """What the database itself said, in one line, without statement and parameters."""
    text = str(getattr(error, "orig", None) or error)
    return " ".join(text.split())[:200] or type(error).__name__


def _engine(url: str) -> Engine:
    try:
        engine = create_engine(url, pool_pre_ping=not url.startswith("sqlite"))
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise ConfigurationError(
            f"the store URL cannot be used ({type(error).__name__}); give for example sqlite:///replaywatch.db, "
            "and install the driver of other databases"
        ) from None
    if engine.dialect.name == "sqlite":
        if not engine.url.database or engine.url.database == ":memory:":
            raise ConfigurationError("the store URL names no file; give for example sqlite:///replaywatch.db")
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    # The driver must not open transactions by itself: it would do so too late for savepoints to work
    # (SQLAlchemy's documentation of the SQLite dialect, "Serializable isolation / Savepoints").
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in ("busy_timeout=5000", "journal_mode=WAL", "synchronous=FULL", "temp_store=MEMORY"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")
