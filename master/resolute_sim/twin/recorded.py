"""Replays a recorded journal, and compares the decisions of every cycle with the recorded ones."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from resolute.errors import InvalidInput
from resolute_master.engine.replay import Replay
from resolute_master.replay import replay_database

DATABASE = "resolute.db"
"""File name of the database in a state directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedJournal:
    """The result of a replay."""

    database: str
    replay: Replay

    @property
    def as_recorded(self) -> bool:
        return self.replay.divergence is None

    @property
    def sentence(self) -> str:
        found = self.replay
        if found.divergence is None:
            last = found.first + found.cycles - 1
            return f"{found.cycles} cycle(s), {found.first} to {last}, are as recorded; digest {found.digest}"
        recorded, replayed = found.divergence.recorded, found.divergence.replayed
        return (
            f"cycle {found.divergence.sequence} differs: recorded {recorded}, replayed {replayed}; the "
            f"{found.cycles} cycle(s) before it are as recorded. Use the version and the configuration "
            "(--config-file) that recorded it."
        )

    def as_json(self) -> dict[str, Any]:
        return {"database": self.database, "as_recorded": self.as_recorded, **asdict(self.replay)}


def replay_recorded(source: str, config_file: Path | None) -> ReplayedJournal:
    """`source` is a state directory, a database file, or the URL of a database. Raises `InvalidInput` if it does not exist."""
    database = _database(source)
    return ReplayedJournal(database=database, replay=asyncio.run(replay_database(database, config_file)))


def _database(source: str) -> str:
    if source.startswith(("postgresql:", "postgres:")):
        return source
    path = Path(source)
    if path.is_dir():
        path = path / DATABASE
        if not path.is_file():
            raise InvalidInput(
                f"--journal: {source} has no {DATABASE}; name a master's state directory, or its database"
            )
    if not path.is_file():
        raise InvalidInput(
            f"--journal: {source} is neither a directory nor a file; name a state directory or a database"
        )
    return str(path)
