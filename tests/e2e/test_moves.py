"""Work that is moved while it runs: from spot to on demand and back, and together onto fewer machines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from resolute.client.sdk import Experiment
from resolute.testing.event_log import read_event_log
from resolute.wire.rest.extensions import Instance, TrialAllocation
from resolute_provisioner.clouds.local.cloud import order_interruption
from support.event_log_checker import check
from support.live import LiveCluster, live_cluster, record_of, until
from support.new_db import NewDb

STAGE = 15
"""Steps between two moves. The work waits for each move where it stands, however long that takes."""

SPOT_REFUSED = "scripted: launch request 2 is refused"

POOLS: dict[str, dict[str, Any]] = {
    "markets": {
        "price_per_hour": 3.6,
        "spot_price_per_hour": 1.2,
        "spot_fallback": {"return_after": "1s"},
        "refuse": [{"launch": 2, "error": "no_capacity"}],
    },
    "dear": {"price_per_hour": 3.6, "spot_price_per_hour": 1.2},
    "halves": {
        "slots_per_instance": 2,
        "price_per_hour": 3.6,
        "consolidation": {"margin": 1, "restart_cost": "1s"},
    },
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, every_new_db: NewDb) -> Iterator[LiveCluster]:
    common = {"type": "local", "max_instances": 2, "max_idle_agent_period": "1s"}
    given = {
        "resource_pools": [{"pool_name": name, "provider": {**common, **keys}} for name, keys in POOLS.items()],
        "resource_manager": {
            "type": "agent",
            "default_aux_resource_pool": "markets",
            "default_compute_resource_pool": "markets",
        },
    }
    with live_cluster(tmp_path_factory.mktemp("moves"), **given, **every_new_db()) as cluster:
        yield cluster
    assert cluster.left_over() == []


def submit(cluster: LiveCluster, pool: str, *, moves: int, saves: bool = True, **resources: Any) -> Experiment:
    """A trial that waits to be moved so many times. Only what has saved is moved to save money."""
    stage = f"report {STAGE} every 0.02s"
    script = [stage, *[*["checkpoint"] * saves, "wait for preemption", stage] * moves]
    hparams = {"script": script, "event_log": f"{cluster.event_log}/"}
    return cluster.submit(hparams, resources={"slots_per_trial": 1, "resource_pool": pool, **resources})


def attempts(experiment: Experiment) -> tuple[TrialAllocation, ...]:
    (trial,) = experiment.list_trials() or (None,)
    return () if trial is None else trial.list_allocations()


def entries(cluster: LiveCluster, experiment: Experiment) -> list[dict[str, Any]]:
    trials = {trial.id for trial in experiment.list_trials()}
    return [entry for entry in read_event_log(cluster.event_log) if entry["trial_id"] in trials]


def reached(cluster: LiveCluster, experiment: Experiment, step: int) -> bool:
    return any((entry["event"], entry["step"]) == ("step", step) for entry in entries(cluster, experiment))


def machine_of(cluster: LiveCluster, attempt: TrialAllocation) -> Instance:
    (id_,) = attempt.instance_ids
    return next(each for each in cluster.client.cluster.instances() if each.id == id_)


def ended(cluster: LiveCluster, pool: str) -> list[Instance] | None:
    """Every machine of the pool, in the order of their requests, once none is there any more."""
    found = [each for each in cluster.client.cluster.instances() if each.pool == pool]
    return sorted(found, key=lambda each: each.id) if all(each.state in ("gone", "refused") for each in found) else None


def resumed_exactly(cluster: LiveCluster, experiment: Experiment, *, moves: int) -> None:
    """Each run went on at the step at which the one before had saved when it was moved; no step was done or counted twice."""
    steps = STAGE * (moves + 1)
    event_log = entries(cluster, experiment)
    assert check(event_log, [record_of(experiment, steps=steps, lost=cluster.lost_machines())]) == []
    assert [each["step"] for each in event_log if each["event"] == "step"] == list(range(1, steps + 1))
    stages = [STAGE * move for move in range(moves + 1)]
    assert [each["step"] for each in event_log if each["event"] == "start"] == stages
    runs = attempts(experiment)
    assert [each.steps_at_start for each in runs] == stages
    assert [each.preempted for each in runs] == [True] * moves + [False]


def decided(cluster: LiveCluster, pool: str, kind: str) -> dict[str, str]:
    """Subject -> reason of the decisions of that kind, the newest of each subject."""
    found = cluster.client.cluster.decisions(1000)
    return {each.subject: each.reason for each in reversed(found) if (each.pool, each.kind) == (pool, kind)}


def test_work_that_loses_its_spot_machine_falls_back_to_on_demand_and_returns_when_spot_is_offered_again(
    cluster: LiveCluster,
) -> None:
    experiment = submit(cluster, "markets", moves=2)
    until("it has a stage done", lambda: reached(cluster, experiment, STAGE))
    (on_spot,) = attempts(experiment)[0].instance_ids
    order_interruption(cluster.directory / "state" / "pools" / "markets", on_spot, notice_s=60)
    # The first move is the cloud's, the second the pool's own.
    assert experiment.wait(interval_s=0.2, timeout_s=120) == "COMPLETED"
    resumed_exactly(cluster, experiment, moves=2)

    machines = until("the pool is empty", lambda: ended(cluster, "markets"))
    used = [machine_of(cluster, attempt) for attempt in attempts(experiment)]
    assert [each.offer for each in used] == ["local/spot", "local", "local/spot"]
    interrupted, firm, again = used
    assert interrupted.notice is not None and firm.notice is None and again.notice is None
    refused = [each for each in machines if each.state == "refused"]
    assert [each.offer for each in refused] == ["local/spot"], "what replaces it was asked for on spot first"
    assert SPOT_REFUSED in refused[0].end_reason
    assert "return_after" in decided(cluster, "markets", "drain")[firm.id]
    assert again.joined_at is not None and firm.paid_until is not None
    assert again.joined_at < firm.paid_until, "a move begins with the new machine"
    assert len(machines) == 4


def test_work_of_two_half_empty_machines_comes_together_on_one_and_the_other_ends(cluster: LiveCluster) -> None:
    experiments = [submit(cluster, "halves", moves=1) for _ in range(3)]
    until("all have a stage done", lambda: all(reached(cluster, each, STAGE) for each in experiments))
    first = {each.id: machine_of(cluster, attempts(each)[0]).id for each in experiments}
    halves = {machine: [each for each in experiments if first[each.id] == machine] for machine in first.values()}
    (beside, left), (alone,) = sorted(halves.values(), key=len, reverse=True)
    beside.kill()

    def asked_to_leave() -> Experiment | None:
        return next((each for each in (left, alone) if attempts(each)[0].preempted), None)

    moved = until("one of the two is moved", asked_to_leave)
    assert moved.wait(interval_s=0.2, timeout_s=120) == "COMPLETED"
    stayed = left if moved is alone else alone
    resumed_exactly(cluster, moved, moves=1)
    (there,) = attempts(stayed)
    emptied, kept = first[moved.id], first[stayed.id]
    assert attempts(moved)[1].instance_ids == there.instance_ids == (kept,)
    assert there.end_time is None, "what stayed was not disturbed"
    until("the emptied machine is gone", lambda: gone(cluster, emptied))
    assert "fits on other machines" in decided(cluster, "halves", "drain")[emptied]
    assert not gone(cluster, kept)
    stayed.kill()
    assert len(until("the pool is empty", lambda: ended(cluster, "halves"))) == 2, "none was bought for the move"


def gone(cluster: LiveCluster, machine: str) -> bool:
    return next(each.state for each in cluster.client.cluster.instances() if each.id == machine) == "gone"


def test_work_whose_deadline_leaves_no_time_for_spot_goes_on_demand(cluster: LiveCluster) -> None:
    experiment = submit(cluster, "dear", moves=0, deadline="2m", estimated_duration="10m")
    assert experiment.wait(interval_s=0.2, timeout_s=120) == "COMPLETED"
    (attempt,) = attempts(experiment)
    assert machine_of(cluster, attempt).offer == "local", "spot is cheaper, and was never asked for"
    until("the pool is empty", lambda: ended(cluster, "dear"))


def test_a_max_cost_lands_with_a_checkpoint_and_is_not_overspent(cluster: LiveCluster) -> None:
    # A minute is held back for the first save: 0.02, for an operator's own price does not rise. The rest pays for 12 s.
    most = 0.024
    experiment = submit(cluster, "dear", moves=1, saves=False, max_cost=most)
    until("it is paused", lambda: cluster.client.experiments.get(experiment.id).experiment.state.name == "PAUSED")
    until("the pool is empty", lambda: ended(cluster, "dear"))
    (attempt,) = attempts(experiment)
    assert attempt.preempted and machine_of(cluster, attempt).offer == "local/spot"
    (trial,) = experiment.list_trials()
    (saved,) = trial.list_checkpoints()
    # A slow machine spends the limit before the stage is done.
    assert 1 <= saved.metadata["steps_completed"] <= STAGE
    spent = cluster.client.experiments.cost(experiment.id)
    assert 0 < spent.totals.cost <= most and "max_cost" in spent.wind_down_reason
