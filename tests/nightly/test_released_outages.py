"""The master, and then its database, is away for five minutes while a trial of the released harness trains: nothing is lost.

The harness repeats a request 20 times. Where nothing listens, its pauses double to 120 s, 26 minutes in all; after an answer with
`Retry-After` it pauses for just that long, so requests of tasks are held, not refused. `RESOLUTE_TEST_AWAY_S` shortens both.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from support.api_released import COMPAT, ENVIRONMENT, ReleasedDet
from support.live import PASSWORD, LiveCluster, until
from support.postgres import PostgresServer, postgres_server

pytestmark = [
    pytest.mark.needs("determined"),
    pytest.mark.needs("namespaces"),
    pytest.mark.needs("postgres"),
    pytest.mark.timeout(2400),
]

AWAY_S = float(os.environ.get("RESOLUTE_TEST_AWAY_S", "300"))
STEPS = 200
RETRIES_S = 2 * AWAY_S + 180.0
"""After so long at the latest the harness has repeated its request, and trained to the end."""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as made:
        yield made


@pytest.fixture
def cluster(tmp_path: Path, server: PostgresServer) -> Iterator[LiveCluster]:
    """The pool's agents keep tasks for longer than the master is away: its default of 25 s starts them elsewhere."""
    wait = f"{AWAY_S + 300:.0f}s"
    made = LiveCluster(
        tmp_path / "cluster", pool={"agent_reconnect_wait": wait}, db=server.db_config(server.new_database())
    )
    made.start()
    try:
        yield made
    finally:
        made.stop()
    assert made.left_over() == []


def submitted(tmp_path: Path, cluster: LiveCluster) -> tuple[ReleasedDet, int]:
    """A trial that may not restart, and its experiment."""
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "released_trial.py").write_bytes((COMPAT / "released_trial.py").read_bytes())
    config = {
        "name": "outage",
        "entrypoint": "python3 released_trial.py",
        "hyperparameters": {"steps": STEPS},
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": STEPS}},
        "max_restarts": 0,
        "environment": {"python": str(ENVIRONMENT)},
    }
    (directory / "config.json").write_text(json.dumps(config))
    det = ReleasedDet(tmp_path / "home", cluster.url, "determined", PASSWORD)
    printed = det("experiment", "create", str(directory / "config.json"), str(directory))
    return det, int(next(line.split()[2] for line in printed.splitlines() if line.startswith("Created experiment ")))


def trains(cluster: LiveCluster, experiment: int) -> int:
    """The trial, when it has made some steps."""
    (trial,) = until("there is a trial", lambda: cluster.client.experiments.trials(experiment))
    until("it trains", lambda: cluster.client.trials.get(trial.id).total_batches_processed >= 10)
    assert cluster.client.trials.get(trial.id).total_batches_processed < STEPS
    return int(trial.id)


def check(cluster: LiveCluster, experiment: int, trial: int) -> None:
    """It ends without a restart; each report is there once, and the log goes to its end."""
    client = cluster.client

    def ended() -> bool:
        return client.experiments.get(experiment).experiment.state.name in ("COMPLETED", "ERROR", "CANCELED")

    until("the experiment ends", ended, within_s=RETRIES_S, every_s=1.0)
    assert client.experiments.get(experiment).experiment.state.name == "COMPLETED"
    shown = client.trials.get(trial)
    assert (shown.restarts, shown.total_batches_processed) == (0, STEPS)
    assert len(client.trials.allocations(trial)) == 1, "it was started again"
    reports = list(client.trials.metrics([trial], "training"))
    assert [report.total_batches for report in reports] == list(range(1, STEPS + 1))


def test_the_master_is_away(tmp_path: Path, cluster: LiveCluster) -> None:
    det, experiment = submitted(tmp_path, cluster)
    trial = trains(cluster, experiment)
    cluster.kill_master()
    time.sleep(AWAY_S)
    cluster.start()
    check(cluster, experiment, trial)
    logs = det("experiment", "logs", str(experiment))
    assert "run 1 begins at step 0" in logs and f"finished at step {STEPS}" in logs and "run 2" not in logs


def test_the_database_is_away(tmp_path: Path, server: PostgresServer, cluster: LiveCluster) -> None:
    det, experiment = submitted(tmp_path, cluster)
    trial = trains(cluster, experiment)
    server.stop()
    time.sleep(AWAY_S)
    refused = httpx.post(f"{cluster.url}/api/v1/auth/login", json={"username": "determined", "password": PASSWORD})
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "3"), refused.text
    server.start()
    check(cluster, experiment, trial)
    logs = det("experiment", "logs", str(experiment))
    assert "run 1 begins at step 0" in logs and f"finished at step {STEPS}" in logs and "run 2" not in logs
