"""The database server restarts, is killed and stays away while a live cluster works: the books end exact."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from resolute.testing.event_log import read_event_log
from support.event_log_checker import check
from support.live import LiveCluster, live_cluster, record_of, until
from support.postgres import PostgresServer, postgres_server

pytestmark = [pytest.mark.needs("postgres"), pytest.mark.needs("namespaces")]

STEPS = 120
AWAY_S = 4.0
"""Longer than a lost connection takes to be noticed and a read to be refused."""


def test_work_goes_on_over_restarts_of_the_database_server(tmp_path: Path) -> None:
    with postgres_server() as server:
        database = server.new_database()
        with live_cluster(tmp_path, db=server.db_config(database)) as cluster:
            script = [f"report {STEPS} every 0.05s", "checkpoint every 10"]
            hparams = {"script": script, "event_log": f"{cluster.event_log}/"}
            experiments = [cluster.submit(hparams) for _ in range(2)]
            for disturb in (server.restart, lambda: _killed(server), lambda: _away(server, cluster)):
                done = len(read_event_log(cluster.event_log))
                until("they make steps", lambda done=done: len(read_event_log(cluster.event_log)) > done + 15)
                disturb()
            for experiment in experiments:
                assert experiment.wait(interval_s=0.2, timeout_s=120) == "COMPLETED"
            records = [record_of(experiment, steps=STEPS, lost=cluster.lost_machines()) for experiment in experiments]
            assert check(read_event_log(cluster.event_log), records) == []
            # Nobody was taken for lost because the database was: each trial ran once, to its end.
            assert {entry["trial_run_id"] for entry in read_event_log(cluster.event_log)} == {1}
            until("the pool is empty", lambda: not cluster.machines())
            cluster.kill_master()
            _replays(server.url(database), cluster.config_file)
    assert cluster.left_over() == []


def _killed(server: PostgresServer) -> None:
    server.kill()
    server.start()


def _away(server: PostgresServer, cluster: LiveCluster) -> None:
    """For a while: the master says that it is not ready, and lives."""
    server.stop()
    try:
        until("it is said", lambda: httpx.get(f"{cluster.url}/ready", timeout=10, verify=False).status_code == 503)
        time.sleep(AWAY_S)
    finally:
        server.start()
    until(
        "the master is ready again",
        lambda: httpx.get(f"{cluster.url}/ready", timeout=10, verify=False).status_code == 200,
    )


def _replays(url: str, config_file: Path) -> None:
    command = [sys.executable, "-m", "resolute_master.replay", url, "--config-file", str(config_file)]
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "are as recorded" in again.stdout
