"""The store: one database behind an SQLAlchemy URL, SQLite in WAL mode unless told otherwise, or PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from replaywatch.collector.layout import bring_up
from replaywatch.contract.errors import ConfigurationError, StoreError

CONNECT_SECONDS: Final = 5
DIALECTS: Final = ("sqlite", "postgresql")
# A cable that is pulled resets nothing: by themselves both ends wait for a quarter of an hour and more, the server with
# the locks of what was under way. Here for seconds, shorter than a lease, so that another worker can take over.
_DRIVER: Final = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": 4,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
_SESSION: Final = (
    "SET tcp_keepalives_idle = 4",
    "SET tcp_keepalives_interval = 2",
    "SET tcp_keepalives_count = 3",
    "SET tcp_user_timeout = 10000",
)


class Store:
    """An open database with its tables in place."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @staticmethod
    def open(url: str) -> Store:
        """Open a database and bring its tables to the layout of this release.

        Raises: ConfigurationError for a URL that cannot work, StoreError when the database cannot be used.
        """
        store = Store(_engine(url))
        try:
            bring_up(store._engine, store.address)
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

    @property
    def is_postgresql(self) -> bool:
        """Whether the database is PostgreSQL."""
        return self._engine.dialect.name == "postgresql"

    def session(self) -> Session:
        """A new session; objects stay readable after its end."""
        return Session(self._engine, expire_on_commit=False)

    def writing(self) -> Session:
        """A new session that may write from its beginning.

        SQLite would else take the lock at the first write, and refuse where another process wrote since the first read.
        """
        return Session(self._engine.execution_options(begin="BEGIN IMMEDIATE"), expire_on_commit=False)

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
                return session.scalar(text("SELECT version_num FROM alembic_version")) is not None
        except SQLAlchemyError:
            return False

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


def reason(error: SQLAlchemyError) -> str:
    """What the database itself said, in one line, without statement and parameters."""
    text = str(getattr(error, "orig", None) or error)
    return " ".join(text.split())[:200] or type(error).__name__


def _engine(url: str) -> Engine:
    """An engine; `postgresql://` takes psycopg 3."""
    if url.startswith(("postgresql://", "postgres://")):
        url = "postgresql+psycopg://" + url.partition("://")[2]
    try:
        if url.startswith("postgresql"):
            asked = make_url(url).query
            given = {name: value for name, value in _DRIVER.items() if name not in asked}
            engine = create_engine(url, pool_pre_ping=True, connect_args=given)
            event.listen(engine, "connect", _prepare_postgresql)
        else:
            engine = create_engine(url)
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise ConfigurationError(
            f"the store URL cannot be used ({type(error).__name__}); give for example sqlite:///replaywatch.db or "
            "postgresql://user@host/name, and install replaywatch[postgres] for the latter"
        ) from None
    if engine.dialect.name not in DIALECTS:
        raise ConfigurationError(f"the store URL names {engine.dialect.name}; SQLite and PostgreSQL are supported")
    if engine.dialect.name == "sqlite":
        if not engine.url.database or engine.url.database == ":memory:":
            raise ConfigurationError("the store URL names no file; give for example sqlite:///replaywatch.db")
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_postgresql(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    for statement in _SESSION:
        cursor.execute(statement)
    cursor.close()
    connection.commit()


def _prepare_sqlite(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    # The driver must not open transactions by itself: it would do so too late for savepoints to work
    # (SQLAlchemy's documentation of the SQLite dialect, "Serializable isolation / Savepoints").
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in ("busy_timeout=5000", "journal_mode=WAL", "synchronous=FULL", "temp_store=MEMORY"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))
