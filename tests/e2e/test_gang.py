"""A gang for real: one trial whose two ranks run on two machines, stand and fall together, and go on together."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from resolute.testing.event_log import read_event_log
from support.event_log_checker import check
from support.live import LiveCluster, gone, kill_pid, live_cluster, record_of, until
from support.new_db import NewDb

STEPS = 60
CHECKPOINT_EVERY = 5
PEER_ENDS_WITHIN_S = 5.0
"""Promised to users: a gang that has lost a rank does not hold its other slots."""

Entry = dict[str, Any]


def of_run(event_log: Path, run: int, event: str) -> dict[int, list[Entry]]:
    """The entries of one run by rank."""
    found: dict[int, list[Entry]] = {0: [], 1: []}
    for entry in read_event_log(event_log):
        if (entry["trial_run_id"], entry["event"]) == (run, event):
            found[entry["rank"]].append(entry)
    return found


def last_step(event_log: Path, run: int) -> int:
    """The last step that every rank of the run has written down."""
    return min(max((e["step"] for e in entries), default=0) for entries in of_run(event_log, run, "step").values())


def processes_of(cluster: LiveCluster, run: int) -> dict[int, int]:
    """The machine's number of each rank's process: the one that it knows of itself may be that of a PID namespace."""
    found = {}
    for process in cluster.tasks():
        if process.environ()["DET_TRIAL_RUN_ID"] == str(run):
            gang = Path("/proc", str(process.pid), "root", "run/determined/info/rendezvous.json")
            found[json.loads(gang.read_text())["container_rank"]] = process.pid
    return found


def killed_rank_takes_the_other_along(cluster: LiveCluster, *, run: int, rank: int) -> None:
    """Kills one rank of a run that has done a few steps after a save, and waits for the other."""
    event_log = cluster.event_log
    until("both ranks step", lambda: last_step(event_log, run) >= CHECKPOINT_EVERY * 2 + 2)
    pids = processes_of(cluster, run)
    kill_pid(pids[rank])
    killed_at = time.monotonic()
    until("the peer has ended", lambda: gone(pids[1 - rank]), every_s=0.02)
    assert time.monotonic() - killed_at < PEER_ENDS_WITHIN_S


def test_a_gang_on_two_machines_stands_and_falls_together(tmp_path: Path, new_db: NewDb) -> None:
    with live_cluster(tmp_path, **new_db()) as cluster:
        event_log = cluster.event_log
        script = [f"report {STEPS} every 0.05s", f"checkpoint every {CHECKPOINT_EVERY}"]
        experiment = cluster.submit(
            {"script": script, "event_log": f"{event_log}/"}, resources={"slots_per_trial": 2}, max_restarts=2
        )
        killed_rank_takes_the_other_along(cluster, run=1, rank=1)
        until("it was started again", lambda: last_step(event_log, 2) > 0)
        killed_rank_takes_the_other_along(cluster, run=2, rank=0)
        assert experiment.wait(interval_s=0.2, timeout_s=120) == "COMPLETED"

        entries = read_event_log(event_log)
        record = record_of(experiment, steps=STEPS)
        for rank in (0, 1):
            assert check([e for e in entries if e["rank"] == rank], [record]) == []
        for run in (1, 2, 3):
            started = of_run(event_log, run, "start")
            assert [len(of_rank) for of_rank in started.values()] == [1, 1], f"run {run}"
            assert started[0][0]["step"] == started[1][0]["step"], f"run {run}"
        saved = [e["step"] for e in of_run(event_log, 1, "save")[0]]
        assert of_run(event_log, 2, "start")[0][0]["step"] == max(saved) > 0
        (trial,) = experiment.list_trials()
        trial.reload()
        assert trial.details.restarts == 2
    assert cluster.left_over() == []
