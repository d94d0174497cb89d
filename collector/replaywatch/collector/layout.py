"""Bringing a database to the layout that this release uses, by the migrations in the folder of that name."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect, text

from replaywatch.contract.errors import StoreError

FOLDER: Final = Path(__file__).parent / "migrations"
# Any number will do, as long as nothing else in the database locks by it.
MIGRATION_LOCK: Final = 7_411_930_001


def bring_up(engine: Engine, address: str) -> None:
    """Run the migrations that are missing; of several collectors that start together, one does, the others wait.

    Raises: StoreError for a database that a newer release, or something else, laid out; SQLAlchemyError.
    """
    with engine.connect().execution_options(begin="BEGIN EXCLUSIVE") as connection, connection.begin():
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
        settings = Config()
        settings.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
        settings.attributes["connection"] = connection
        if _is_behind(connection, ScriptDirectory.from_config(settings), address):
            command.upgrade(settings, "head")


def _is_behind(connection: Connection, scripts: ScriptDirectory, address: str) -> bool:
    found = MigrationContext.configure(connection).get_current_revision()
    known = {script.revision for script in scripts.walk_revisions()}
    if found is not None and found not in known:
        raise StoreError(
            f"the database {address} has layout {found}, which this release does not know; "
            "use the release that wrote it or a newer one, or another database"
        )
    if found is None and inspect(connection).has_table("batches"):
        raise StoreError(
            f"the database {address} has tables of this name that this release did not lay out; use another database"
        )
    return found != scripts.get_current_head()
