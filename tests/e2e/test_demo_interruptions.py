"""The demonstration's scenario without a framework: refused once, interrupted with a notice, killed without, and booked."""

from __future__ import annotations

from pathlib import Path

import pytest

from resolute.wire.rest.extensions import GetLedgerResponse, Instance, LedgerRow
from support.live import LiveCluster, live_cluster, until

STEPS = 90
CHECKPOINT_EVERY = 25
PROVIDER = {
    "type": "local",
    "slots_per_instance": 1,
    "max_instances": 2,
    "boot_delay": "500ms",
    "price_per_hour": 3.6,
    "max_idle_agent_period": "2s",
    "refuse": [{"launch": 1, "error": "no_capacity"}],
    "interruptions": [{"instance": 1, "after_steps": 12, "notice": "20s"}, {"instance": 2, "after_steps": 45}],
}


def all_gone(cluster: LiveCluster) -> tuple[Instance, ...] | None:
    """Every machine that there ever was, once none of them is there any more."""
    found = cluster.client.cluster.instances()
    return found if all(one.state in ("gone", "refused") for one in found) else None


def sum_of_parts(row: LedgerRow) -> float:
    return row.useful_s + row.starting_s + row.checkpointing_s + row.lost_s + row.idle_s


def books_are_right(ledger: GetLedgerResponse) -> None:
    for machine in ledger.instances:
        assert sum_of_parts(machine.row) == pytest.approx(machine.row.paid_s)
        assert machine.paid_from is not None and machine.paid_until is not None
        assert machine.row.paid_s == pytest.approx((machine.paid_until - machine.paid_from).total_seconds())
        assert machine.row.cost == pytest.approx(machine.row.paid_s * 3.6 / 3600)
    assert ledger.totals.paid_s == pytest.approx(sum(machine.row.paid_s for machine in ledger.instances))
    assert sum(ledger.totals.costs.values()) == pytest.approx(ledger.totals.cost)


@pytest.mark.needs("namespaces")
def test_a_trial_survives_a_refusal_a_notice_and_a_kill_and_the_ledger_tells(tmp_path: Path) -> None:
    with live_cluster(tmp_path, pool={"provider": PROVIDER}) as cluster:
        script = [f"report {STEPS} every 0.05s", f"checkpoint every {CHECKPOINT_EVERY}"]
        experiment = cluster.submit({"script": script})
        assert experiment.wait(interval_s=0.2, timeout_s=150) == "COMPLETED"
        api = cluster.client
        instances = until("the pool is empty", lambda: all_gone(cluster))
        assert [i.state for i in instances] == ["refused", "gone", "gone", "gone"]

        (trial,) = experiment.list_trials()
        first, second, third = trial.list_allocations()
        assert [a.instance_ids[0] for a in (first, second, third)] == [i.id for i in instances[1:]]
        assert first.notice is not None
        assert second.notice is None
        saved = {c.uuid: int(c.metadata["steps_completed"]) for c in trial.list_checkpoints()}
        assert second.steps_at_start == first.steps_at_end  # the notice: saved where it stood
        assert second.steps_at_start in saved.values()
        assert third.steps_at_start == CHECKPOINT_EVERY  # the kill: back to the last checkpoint
        assert third.steps_at_end == STEPS

        ledger = api.cluster.ledger()
        books_are_right(ledger)
        noticed, killed = ledger.interruptions
        assert (noticed.noticed, noticed.steps_lost) == (True, 0)
        assert (killed.noticed, killed.steps_saved) == (False, CHECKPOINT_EVERY)
        reported = {r.total_batches for r in trial.iter_metrics("training") if r.trial_run_id == second.run_id}
        # Marks of steps may be ahead of the reports that the machine took along.
        assert 0 <= killed.steps_lost - (max(reported) - CHECKPOINT_EVERY) <= 20
        assert ledger.totals.lost_s > 0
        cluster.stop()
        assert cluster.left_over() == []
