"""The journal of a real master that was killed twice replays in a fresh process, from the database alone."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from resolute.testing.diary import read_diary
from support.live import LiveCluster, live_cluster, until


def replay(database: Path, config_file: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "resolute_master.engine.replay", str(database)]
    if config_file is not None:
        command += ["--config-file", str(config_file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def simulated(source: Path, config_file: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """As a person does it, with the state directory or the database."""
    command = [sys.executable, "-m", "resolute_cli.main", "simulate", "--journal", str(source)]
    command += ["--config-file", str(config_file), *more]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def entries(database: Path) -> int:
    with sqlite3.connect(database) as connection:
        return int(connection.execute("select count(*) from journal").fetchone()[0])


def copied(cluster: LiveCluster, name: str) -> Path:
    """The database as the dead master has left it, with what its log holds beside it."""
    source = cluster.directory / "state" / "resolute.db"
    target = cluster.directory / name
    target.mkdir()
    for file in source.parent.glob("resolute.db*"):
        shutil.copy(file, target / file.name)
    return target / "resolute.db"


@pytest.mark.needs("namespaces")
def test_a_killed_master_replays_from_its_journal_alone(tmp_path: Path) -> None:
    with live_cluster(tmp_path) as cluster:
        diary = cluster.storage / "diary"
        hparams = {"script": ["report 40 every 0.05s", "checkpoint every 5"], "diary": "/determined_shared_fs/diary/"}
        experiments = [cluster.submit(hparams, max_restarts=3) for _ in range(2)]
        until("they work", lambda: len(read_diary(diary)) > 8)
        cluster.kill_master()
        cluster.start()
        experiments.append(cluster.submit({"script": ["exit 3"]}, max_restarts=1))
        until("they work on", lambda: len(read_diary(diary)) > 30)
        for experiment in experiments:
            experiment.wait(interval_s=0.2, timeout_s=120)
        cluster.kill_master()
        database = copied(cluster, "dead")
        _replays(database, cluster.config_file)
        _tells_what_was_changed(database, cluster.config_file)


def _replays(database: Path, config_file: Path) -> None:
    recorded = entries(database)
    again = replay(database, config_file)
    assert again.returncode == 0, again.stdout + again.stderr
    # The snapshot of an empty cluster stands before the first cycle, so that every cycle is run again.
    assert again.stdout.startswith(f"{recorded} cycle(s), 1 to {recorded}, came out as recorded")
    assert recorded > 50
    told = simulated(database.parent, config_file)
    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stdout == again.stdout


def _tells_what_was_changed(database: Path, config_file: Path) -> None:
    """A replay that could not fail would show nothing."""
    with sqlite3.connect(database) as connection:
        connection.execute("update journal set entropy = 'another' where sequence > 20")
    changed = replay(database, config_file)
    assert changed.returncode == 1
    assert "came out otherwise" in changed.stdout
    out = database.parent / "replay.json"
    told = simulated(database, config_file, "--json", str(out))
    assert told.returncode == 1 and "came out otherwise" in told.stdout and "--config-file" in told.stdout
    report = json.loads(out.read_text())
    # Not every cycle draws on its entropy.
    assert report["as_recorded"] is False and report["divergence"]["sequence"] == report["cycles"] + 1 > 20


def test_what_cannot_be_replayed_is_said(tmp_path: Path) -> None:
    nothing = replay(tmp_path / "no.db")
    assert nothing.returncode == 2
    assert "there is no such database file" in nothing.stderr
    told = simulated(tmp_path, tmp_path / "master.yaml")
    assert told.returncode == 1 and f"{tmp_path} has no resolute.db; name a master's state directory" in told.stderr
