"""Log policies with real programs: a machine that is excluded is given back for another, over a master that is killed."""

from __future__ import annotations

from pathlib import Path

from support.live import live_cluster, until
from support.new_db import NewDb

PROGRAM = """
import os, sys, time
if os.environ["DET_TRIAL_RUN_ID"] == "1":
    print("Xid 79: bad gpu", flush=True)
    time.sleep(2)
else:
    print("data.csv: no such file", flush=True)
sys.exit(1)
"""


def test_an_excluded_machine_is_given_back_and_a_hopeless_failure_is_the_last(tmp_path: Path, new_db: NewDb) -> None:
    provider = {"type": "local", "slots_per_instance": 1, "max_instances": 1, "max_idle_agent_period": "60s"}
    with live_cluster(tmp_path, pool={"provider": provider}, **new_db()) as cluster:
        experiment = cluster.client.create_experiment(
            {
                "name": "unlucky",
                "entrypoint": ["python3", "-c", PROGRAM],
                "searcher": {"name": "single", "metric": "loss"},
                "max_restarts": 5,
                "log_policies": [
                    {"name": "broken GPU", "pattern": r"Xid \d+: bad gpu", "action": "exclude_node"},
                    {"name": "hopeless", "pattern": "no such file$", "action": "cancel_retries"},
                ],
            }
        )
        (trial,) = until("the trial is there", lambda: experiment.list_trials() or None)
        until("its first line is stored", lambda: any("bad gpu" in line for line in trial.iter_logs()))
        cluster.kill_master()
        cluster.start()
        until("it has ended", lambda: experiment.reload() or experiment.state == "ERROR")
        trial.reload()
        first, second = trial.list_allocations()
        assert first.instance_ids and second.instance_ids
        assert set(first.instance_ids).isdisjoint(second.instance_ids)
        assert trial.details.log_policy_matched == "hopeless" and trial.details.restarts == 1
        log = "\n".join(trial.iter_logs())
        assert log.count("No later run of trial 1 will be placed on agent") == 1
        assert (
            "No retry of trial 1: a line of its log matches the log policy 'no such file$': data.csv: no such file"
            in log
        )
    assert cluster.left_over() == []
