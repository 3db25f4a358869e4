"""Brings a database to the version of this code: forward only, in one transaction.

The version is looked at first and costs one query; Alembic is imported only when there is something to do.
"""

from __future__ import annotations

import threading
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from resolute.errors import FailedPrecondition

HEAD = "0013"
"""The newest migration under `migrations/versions`."""

VERSION_TABLE = "alembic_version"
MIGRATIONS = Path(__file__).with_name("migrations")

_one_at_a_time = threading.Lock()
"""Alembic keeps the migration it is running in module globals."""


def migrate(connection: Connection, where: str, key: str) -> None:
    """Creates or upgrades the tables; `where` names the database in errors, `key` what to configure.

    Raises `FailedPrecondition` when the database is another program's, or a newer version's. The caller's transaction
    takes all of it or nothing.
    """
    version = current_version(connection, where, key)
    if version != HEAD:
        _upgrade(connection, where, version)


def current_version(connection: Connection, where: str, key: str) -> str | None:
    """None for an empty database."""
    names = inspect(connection).get_table_names()
    if not names:
        return None
    if VERSION_TABLE not in names:
        raise FailedPrecondition(
            f"{where} belongs to another program (it has the tables {', '.join(sorted(names)[:5])}); "
            f"give the master its own database ({key})"
        )
    version: str | None = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one_or_none()
    return version


def _upgrade(connection: Connection, where: str, version: str | None) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if version is not None and version not in known:
        raise FailedPrecondition(
            f"{where} was written by a newer version of Resolute (schema {version}, this version knows up to {HEAD}); "
            "start that version, or restore a backup made by this one"
        )
    config.attributes["connection"] = connection
    with _one_at_a_time:
        command.upgrade(config, "head")
