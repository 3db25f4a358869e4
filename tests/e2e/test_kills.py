"""Killed with -9: master, agents, tasks and machines, at seeded moments, while scripted work runs.

The checker compares what the tasks wrote down with what store and API say: nothing lost, nothing run twice.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import psutil
import pytest

from resolute.client.sdk import Experiment
from resolute.testing.diary import read_diary
from support.diary_checker import TrialRecord, check
from support.live import LiveCluster, kill, live_cluster, until

KILLS_EACH = 20
STEPS = 60
CHECKPOINT_EVERY = 5
SEED = 20260101

IN_TASKS = "/determined_shared_fs"
"""Where tasks find the checkpoint storage."""


def work(cluster: LiveCluster) -> Experiment:
    """Its diary lies on the shared directory: a task's `/tmp` is its own."""
    script = [f"report {STEPS} every 0.03s", f"checkpoint every {CHECKPOINT_EVERY}"]
    return cluster.submit({"script": script, "diary": f"{IN_TASKS}/diary/"}, max_restarts=1000)


class Campaign:
    """Keeps work running and kills one thing after the other."""

    def __init__(self, cluster: LiveCluster, seed: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.experiments: list[Experiment] = []
        self.kills = {"master": 0, "agent": 0, "task": 0, "machine": 0}

    def keep_busy(self) -> None:
        """Always more experiments than slots."""
        open_ = 0
        for experiment in self.experiments[-6:]:
            experiment.reload()
            open_ += experiment.state not in ("COMPLETED", "ERROR")
        for _ in range(3 - open_):
            self.experiments.append(work(self.cluster))

    def strike(self, what: str) -> None:
        time.sleep(self.random.uniform(0.0, 0.6))
        if what == "master":
            self.cluster.kill_master()
            self.cluster.start()
        else:
            victims = {
                "agent": self.cluster.agents,
                "task": self.cluster.tasks,
                # Only machines with work: some that die while they boot make the pool (rightly) wait before it asks for more.
                "machine": self.cluster.working_machines,
            }[what]
            kill(self.random.choice(until(f"there is a {what} to kill", lambda: victims() or None)))
        self.kills[what] += 1

    def run(self) -> None:
        order = [what for what in self.kills for _ in range(KILLS_EACH)]
        self.random.shuffle(order)
        for what in order:
            self.keep_busy()
            self.strike(what)


@pytest.mark.timeout(900)
def test_nothing_is_lost_and_nothing_runs_twice(tmp_path: Path) -> None:
    pool = {
        "agent_reconnect_wait": "20s",
        "provider": {
            "type": "local",
            "slots_per_instance": 1,
            "max_instances": 2,
            "max_idle_agent_period": "4s",
            "price_per_hour": 1,
        },
    }
    with live_cluster(tmp_path, pool=pool) as cluster:
        campaign = Campaign(cluster, SEED)
        campaign.run()
        for experiment in campaign.experiments:
            assert experiment.wait(interval_s=0.5, timeout_s=300) == "COMPLETED"
        problems = check(read_diary(cluster.storage / "diary"), [record(cluster, e) for e in campaign.experiments])
        assert problems == []
        assert min(campaign.kills.values()) >= KILLS_EACH
        until("the pool is empty", lambda: not cluster.machines(), within_s=60)
        tokens = [i.token for i in cluster.client.cluster.instances()]
        assert len(tokens) == len(set(tokens))
    assert cluster.left_over() == []


def record(cluster: LiveCluster, experiment: Experiment) -> TrialRecord:
    """One trial, as the API tells it."""
    (trial,) = experiment.list_trials()
    trial.reload()
    return TrialRecord(
        trial_id=trial.id,
        state=trial.state,
        steps=STEPS,
        reported={r.total_batches: r.trial_run_id for r in trial.iter_metrics("training") if not r.archived},
        checkpoints={c.uuid: int(c.metadata["steps_completed"]) for c in trial.list_checkpoints()},
        resumed={
            a.run_id: a.steps_at_start
            for a in trial.list_allocations()
            if a.run_id is not None and a.steps_at_start is not None
        },
    )


def test_running_tasks_survive_a_master_restart_and_an_agent_restart(tmp_path: Path) -> None:
    with live_cluster(tmp_path) as cluster:
        experiment = work(cluster)
        (task,) = until("the task runs", lambda: cluster.tasks() or None)
        until("it makes steps", lambda: len(read_diary(cluster.storage / "diary")) > 5)
        cluster.kill_master()
        cluster.start()
        (agent,) = cluster.agents()
        kill(agent)
        until("its machine starts the agent again", lambda: [a for a in cluster.agents() if a.pid != agent.pid] or None)
        assert psutil.pid_exists(task.pid)
        assert experiment.wait(interval_s=0.2, timeout_s=120) == "COMPLETED"
        assert {entry["trial_run_id"] for entry in read_diary(cluster.storage / "diary")} == {1}
        assert check(read_diary(cluster.storage / "diary"), [record(cluster, experiment)]) == []
    assert cluster.left_over() == []
