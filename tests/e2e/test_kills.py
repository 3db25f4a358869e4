"""Killed with -9: master, agents, tasks, machines and the database, at seeded moments, while scripted work runs.

A small part of `make campaign`: half of the kills are placed inside of a commit, a launch, an upload or a checkpoint. What the
tasks wrote down is compared with what master, cloud, storage and database have: nothing lost, nothing twice, nothing left.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from campaign.__main__ import campaign
from campaign.kill_plan import Kind
from campaign.report import shortfalls

from resolute.testing.event_log import read_event_log
from support.effort import repeated
from support.event_log_checker import check
from support.live import kill, live_cluster, record_of, until
from support.new_db import NewDb
from support.postgres import PostgresServer, postgres_server

SEED = 20260101
EACH = repeated(push=1, night=5)
KILLS = {
    "sqlite": {Kind.MASTER: EACH + 1, Kind.AGENT: EACH, Kind.TASK: EACH, Kind.MACHINE: EACH},
    "postgres": {Kind.MASTER: EACH, Kind.AGENT: EACH, Kind.TASK: EACH, Kind.MACHINE: EACH, Kind.DATABASE: 2 * EACH},
}


@pytest.fixture(
    params=[
        pytest.param("sqlite", marks=pytest.mark.nightly),
        pytest.param("postgres", marks=pytest.mark.needs("postgres")),
    ]
)
def store(request: pytest.FixtureRequest) -> Iterator[tuple[str, PostgresServer | None]]:
    if request.param == "sqlite":
        yield request.param, None
        return
    with postgres_server() as server:
        yield request.param, server


@pytest.mark.timeout(900)
def test_nothing_is_lost_nothing_runs_twice_and_nothing_is_left(
    store: tuple[str, PostgresServer | None], tmp_path: Path
) -> None:
    name, server = store
    done = campaign(tmp_path / "cluster", SEED, KILLS[name], server)
    found = done.found
    assert (found.lost, found.doubled, found.leaked) == ([], [], [])
    assert shortfalls([done]) == []
    assert found.seen["machines"] > 0 and found.seen["saves in event logs"] > 0 and found.seen["log lines"] > 0


def test_running_tasks_survive_a_master_restart_and_an_agent_restart(tmp_path: Path, every_new_db: NewDb) -> None:
    patient = {"agent_reconnect_wait": "600s"}  # a master may be slow to come back
    with live_cluster(tmp_path, pool=patient, **every_new_db()) as cluster:
        # However long the restarts take, it is at work still when the agent is back.
        steps, go = 120, cluster.storage / "go"
        script = ["report 100 every 0.05s", "wait for /determined_shared_fs/go", "report 20", "checkpoint every 20"]
        experiment = cluster.submit({"script": script, "event_log": "/determined_shared_fs/event_log/"}, max_restarts=0)
        (task,) = until("the task runs", lambda: cluster.tasks() or None)
        until("it makes steps", lambda: len(read_event_log(cluster.storage / "event_log")) > 5)
        cluster.kill_master()
        cluster.start()
        (agent,) = cluster.agents()
        kill(agent)
        until("its machine starts the agent again", lambda: [a for a in cluster.agents() if a.pid != agent.pid] or None)
        assert psutil.pid_exists(task.pid)
        go.touch()
        assert experiment.wait(interval_s=0.2, timeout_s=120) == "COMPLETED"
        assert {entry["trial_run_id"] for entry in read_event_log(cluster.storage / "event_log")} == {1}
        assert check(read_event_log(cluster.storage / "event_log"), [record_of(experiment, steps=steps)]) == []
    assert cluster.left_over() == []
