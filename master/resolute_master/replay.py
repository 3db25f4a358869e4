"""Run a recorded journal again, from its snapshot, and compare every digest.

    python -m resolute_master.replay <database> --config-file master.yaml

where the database is a file, or the URL of one on a server (postgresql://user@host:port/name, the password in PGPASSWORD). It
begins at the oldest snapshot that is kept. The exit code is 0 when every cycle came out as recorded, 1 when one did not, 2 when
there is nothing to replay.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from resolute import printable
from resolute.config import DEFAULT_MASTER_CONFIG_PATH, load_master_config
from resolute.config.layers import chosen_file
from resolute.errors import InvalidInput, ResoluteError
from resolute_master.engine.replay import Replay, replay_store
from resolute_master.pools.instance_types import remembered
from resolute_master.pools.policies import pool_policies
from resolute_master.pools.remembered import recalled
from resolute_master.store.sql import open_store, sqlite_url


async def replay_database(database: str, config_file: Path | None) -> Replay:
    """`database`: a file, or a URL. Raises `InvalidInput` when it is not there or holds nothing to begin at."""
    url = _url_of(database)
    file = chosen_file(config_file, os.environ, DEFAULT_MASTER_CONFIG_PATH)
    config = recalled(load_master_config(file, os.environ, {}))
    store = await open_store(url)
    try:
        return await replay_store(store, pool_policies(config, remembered(config)))
    finally:
        await store.close()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m resolute_master.replay", description="Run a recorded journal again and compare digests."
    )
    parser.add_argument(
        "database", help="the SQLite file of a master that may have been killed, or a postgresql:// URL of its database"
    )
    parser.add_argument("--config-file", type=Path, help="the configuration under which it ran")
    given = parser.parse_args(arguments)
    try:
        found = asyncio.run(replay_database(given.database, given.config_file))
    except ResoluteError as error:
        print(f"replay: {printable.lines(str(error))}", file=sys.stderr)
        return 2
    last = found.first + found.cycles - 1
    if found.divergence is None:
        print(f"{found.cycles} cycle(s), {found.first} to {last}, are as recorded; digest {found.digest}")
        return 0
    recorded, replayed = found.divergence.recorded, found.divergence.replayed
    print(f"cycle {found.divergence.sequence} differs: recorded {recorded}, replayed {replayed}")
    return 1


def _url_of(database: str) -> str:
    if database.startswith(("postgresql:", "postgres:")):
        return database
    if not Path(database).is_file():
        raise InvalidInput(f"{database}: there is no such database file")
    return sqlite_url(Path(database))


if __name__ == "__main__":
    sys.exit(main())
