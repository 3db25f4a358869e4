"""The journal of a real master that was killed twice replays in a fresh process, from the database alone."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest

from resolute.testing.event_log import read_event_log
from support.live import LiveCluster, live_cluster, until
from support.new_db import NewDb


def replay(database: Path | str, config_file: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "resolute_master.replay", str(database)]
    if config_file is not None:
        command += ["--config-file", str(config_file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def simulated(source: Path | str, config_file: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """As a person does it, with the state directory or the database."""
    command = [sys.executable, "-m", "resolute_cli.main", "simulate", "--journal", str(source)]
    command += ["--config-file", str(config_file), *more]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dead:
    """What a dead master has left: `database` as a replay takes it, and another way to name it as a person does."""

    database: Path | str
    also_called: Path | str

    def ask(self, statement: str) -> Any:
        """The first value of the first row, None where there is none."""
        if isinstance(self.database, str):
            return asyncio.run(_ask_server(self.database, statement))
        with sqlite3.connect(self.database) as connection:
            row = connection.execute(statement).fetchone()
        return None if row is None else row[0]


async def _ask_server(url: str, statement: str) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def copied(cluster: LiveCluster, name: str) -> Path:
    """The database as the dead master has left it, with what its log holds beside it."""
    source = cluster.directory / "state" / "resolute.db"
    target = cluster.directory / name
    target.mkdir()
    for file in source.parent.glob("resolute.db*"):
        shutil.copy(file, target / file.name)
    return target / "resolute.db"


def left_by(cluster: LiveCluster, settings: Mapping[str, Any]) -> Dead:
    """The file with what its log holds beside it, copied; or the URL of the database on its server."""
    if "db" not in settings:
        database = copied(cluster, "dead")
        return Dead(database=database, also_called=database.parent)
    db = settings["db"]
    url = f"postgresql://{db['user']}:{quote(db['password'], safe='')}@{db['host']}:{db['port']}/{db['name']}"
    return Dead(database=url, also_called=url.replace("postgresql:", "postgres:"))


@pytest.mark.needs("namespaces")
def test_a_killed_master_replays_from_its_journal_alone(tmp_path: Path, new_db: NewDb) -> None:
    settings = new_db()
    with live_cluster(tmp_path, **settings) as cluster:
        event_log = cluster.storage / "event_log"
        hparams = {
            "script": ["report 40 every 0.05s", "checkpoint every 5"],
            "event_log": "/determined_shared_fs/event_log/",
        }
        experiments = [cluster.submit(hparams, max_restarts=3) for _ in range(2)]
        until("they work", lambda: len(read_event_log(event_log)) > 8)
        cluster.kill_master()
        cluster.start()
        experiments.append(cluster.submit({"script": ["exit 3"]}, max_restarts=1))
        until("they work on", lambda: len(read_event_log(event_log)) > 30)
        for experiment in experiments:
            experiment.wait(interval_s=0.2, timeout_s=120)
        cluster.kill_master()
        dead = left_by(cluster, settings)
        _replays(dead, cluster.config_file)
        _tells_what_was_changed(dead, cluster.config_file, tmp_path / "replay.json")


def _replays(dead: Dead, config_file: Path) -> None:
    recorded = dead.ask("select count(*) from journal")
    again = replay(dead.database, config_file)
    assert again.returncode == 0, again.stdout + again.stderr
    # The snapshot of an empty cluster stands before the first cycle, so that every cycle is run again.
    assert again.stdout.startswith(f"{recorded} cycle(s), 1 to {recorded}, are as recorded")
    assert recorded > 50
    told = simulated(dead.also_called, config_file)
    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stdout == again.stdout


def _tells_what_was_changed(dead: Dead, config_file: Path, out: Path) -> None:
    """A replay that could not fail would show nothing."""
    dead.ask("update journal set entropy = 'another' where sequence > 20")
    changed = replay(dead.database, config_file)
    assert changed.returncode == 1
    assert "differs: recorded" in changed.stdout
    told = simulated(dead.database, config_file, "--json", str(out))
    assert told.returncode == 1 and "differs: recorded" in told.stdout and "--config-file" in told.stdout
    report = json.loads(out.read_text())
    # Not every cycle draws on its entropy.
    assert report["as_recorded"] is False and report["divergence"]["sequence"] == report["cycles"] + 1 > 20


def test_what_cannot_be_replayed_is_said(tmp_path: Path) -> None:
    nothing = replay(tmp_path / "no.db")
    assert nothing.returncode == 2
    assert "there is no such database file" in nothing.stderr
    told = simulated(tmp_path, tmp_path / "master.yaml")
    assert told.returncode == 1 and f"{tmp_path} has no resolute.db; name a master's state directory" in told.stderr
