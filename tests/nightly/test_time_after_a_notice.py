"""Work on a machine with a notice of a minute: it saves, trains on, saves again and continues elsewhere at the exact step."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from resolute.grace_period import MARGIN_S
from resolute.testing.event_log import read_event_log
from support.event_log_checker import check
from support.live import live_cluster, record_of
from support.new_db import NewDb

STEPS, TOLD_AT, NOTICE_S = 700, 20, 65.0


def test_work_trains_on_until_shortly_before_its_machine_goes_away(tmp_path: Path, new_db: NewDb) -> None:
    provider = {
        "type": "local",
        "slots_per_instance": 1,
        "max_instances": 2,
        "max_idle_agent_period": "1s",
        "interruptions": [{"instance": 1, "after_steps": TOLD_AT, "notice": f"{NOTICE_S:g}s"}],
    }
    with live_cluster(tmp_path, pool={"provider": provider}, **new_db()) as cluster:
        script = [f"report {STEPS} every 0.1s"]
        experiment = cluster.submit({"script": script, "event_log": f"{cluster.event_log}/"}, max_restarts=0)
        assert experiment.wait(interval_s=0.5, timeout_s=300) == "COMPLETED"
        event_log = read_event_log(cluster.event_log)
        assert check(event_log, [record_of(experiment, steps=STEPS, lost=cluster.lost_machines())]) == []
        (trial,) = experiment.list_trials()
        first, second = trial.list_allocations()
        (lost,) = (each for each in cluster.client.cluster.instances() if each.id in first.instance_ids)
    assert first.preempted and first.exit_code == 0 and first.instance_ids != second.instance_ids
    at_the_notice, at_the_end = (e for e in event_log if (e["trial_run_id"], e["event"]) == (1, "save"))
    assert at_the_end["step"] > at_the_notice["step"] >= TOLD_AT
    assert second.steps_at_start == first.steps_kept == at_the_end["step"]
    assert lost.notice is not None and lost.notice.deadline is not None
    (end,) = (e for e in event_log if (e["trial_run_id"], e["event"]) == (1, "end"))
    ended_at = datetime.fromisoformat(end["at"].replace("Z", "+00:00"))
    assert 0.0 < (lost.notice.deadline - ended_at).total_seconds() < NOTICE_S - MARGIN_S
