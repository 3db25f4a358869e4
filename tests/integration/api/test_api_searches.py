"""Searches over the API: lengths that trials ask for, who waits without slots, and what people are shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from resolute.wire.states import ExperimentState
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.search import SearchTrial
from resolute_master.domain.trial import Trial
from support.api import World, a_config, settled
from support.engines import AgentByHand

HALVING = {
    "name": "async_halving",
    "metric": "loss",
    "num_rungs": 2,
    "divisor": 2,
    "max_trials": 2,
    "max_concurrent_trials": 2,
}
BY_LENGTH = {**HALVING, "max_length": {"batches": 10}}
BY_TIME = {**HALVING, "max_time": 10, "time_metric": "batches"}


async def trials_of(world: World, agent: AgentByHand, searcher: dict[str, Any]) -> list[Trial]:
    """The first trials of a search, running."""
    experiment = await world.create(a_config(searcher=searcher))
    await settled(world)
    for trial in (found := list(world.engine.state.find(Trial, "trials_of_experiment", experiment["id"]))):
        await world.next_run(agent, trial)
    return found


def token_of(world: World, trial: Trial) -> str:
    allocations = world.engine.state.find(Allocation, "allocations_of_task", trial.task_id)
    return world.context.tokens.issue_allocation(allocations[-1].id, world.owner_id)


def allocations_of(world: World, trial: Trial) -> list[Allocation]:
    found = world.engine.state.find(Allocation, "allocations_of_task", trial.task_id)
    return [allocation for allocation in found if not allocation.ended]


class Script:
    """A trial's own process, over the calls of the harness before release 0.38."""

    def __init__(self, world: World, trial: Trial) -> None:
        self.world, self.trial = world, trial
        self.token = token_of(world, trial)
        self.path = f"/api/v1/trials/{trial.id}/searcher"

    async def operation(self) -> tuple[int, bool]:
        answer = await self.world.get(f"{self.path}/operation", task=self.token)
        return int(answer["op"]["validateAfter"]["length"]), answer["completed"]

    async def complete(self, length: int | str, metric: Any, **options: Any) -> Any:
        body = {"op": {"length": length}, "searcherMetric": metric}
        return await self.world.call(
            "POST", f"{self.path}/completed_operation", body, task=self.token, **{"status": 200, **options}
        )

    async def leave(self, agent: AgentByHand) -> None:
        """Says that it has nothing to do, and exits with 0."""
        (allocation,) = allocations_of(self.world, self.trial)
        await self.world.post(f"/api/v1/allocations/{allocation.id}/signals/ack_preemption", task=self.token)
        for container in allocation.containers:
            await agent.end(container)


async def test_a_trial_waits_without_slots_until_it_is_promoted(world: World) -> None:
    agent = await world.agent()
    first, second = await trials_of(world, agent, BY_LENGTH)
    one, other = Script(world, first), Script(world, second)
    assert await one.operation() == (5, False)
    assert await one.complete("5", 0.1) == {}
    assert await one.operation() == (5, True)
    await one.leave(agent)
    await settled(world)
    waiting = world.engine.state.get(Trial, first.id)
    assert waiting is not None and waiting.state is ExperimentState.ACTIVE
    assert allocations_of(world, first) == [], "it holds no slots and asks for none"
    assert await other.complete(5, 0.2) == {}
    trial, _, _ = await world.next_run(agent, first)
    assert trial.run_id == 2
    again = Script(world, trial)
    assert await again.operation() == (10, False)
    assert await other.operation() == (5, True)
    assert await again.complete(10, 0.05) == {}
    found = (await world.get(f"/api/v1/experiments/{first.experiment_id}/search"))["trials"]
    assert [(each["state"], each["rung"], each["rank"]) for each in found] == [("stopped", 1, 1), ("stopped", 0, 2)]
    await again.leave(agent)
    await other.leave(agent)
    experiment = (await world.get(f"/api/v1/experiments/{first.experiment_id}"))["experiment"]
    assert (experiment["state"], experiment["progress"]) == ("STATE_COMPLETED", 1)
    shown = await world.get(f"/api/v1/experiments/{first.experiment_id}/search")
    assert shown["bestTrialId"] == first.id
    assert [each["metric"] for each in shown["trials"]] == [0.05, 0.2]
    assert shown["trials"][1]["reason"] == "it was stopped at rung 0 (5): rank 2, not promoted"


async def test_a_length_is_completed_once_and_repeats_are_harmless(world: World) -> None:
    agent = await world.agent()
    first, _ = await trials_of(world, agent, {**BY_LENGTH, "stop_once": True})
    one = Script(world, first)
    await one.complete(5, 0.5)
    await one.complete(5, 0.5)
    assert await one.operation() == (10, False)
    for length, metric, said in (
        (5, 0.4, "op.length: 5 is not what trial"),
        (7, 0.5, "op.length: 7"),
        ("x", 0.5, "op.length: 'x' is no whole number"),
        (True, 0.5, "op.length: True"),
        (10, "good", "searcherMetric: 'good' is no number"),
        (10, None, "searcherMetric: None"),
    ):
        assert said in str(await one.complete(length, metric, status=400))
    await one.complete(10, "NaN")
    assert await one.operation() == (10, True)


async def test_a_trial_without_lengths_is_told_so(world: World) -> None:
    agent = await world.agent()
    trial, _, task = await world.started(agent)
    path = f"/api/v1/trials/{trial.id}/searcher"
    text = await world.error("GET", f"{path}/operation", task=task, status=400)
    assert "searcher.max_length" in text
    body = {"op": {"length": 1}, "searcherMetric": 1}
    text = await world.error("POST", f"{path}/completed_operation", body, task=task, status=400)
    assert "searcher.max_length" in text


def validation(trial: Trial, steps: int, **metrics: Any) -> dict[str, Any]:
    report = {"trialId": trial.id, "trialRunId": 1, "stepsCompleted": steps, "metrics": {"avgMetrics": metrics}}
    return {"group": "validation", "metrics": report}


async def test_validations_with_their_time_stop_trials(world: World) -> None:
    agent = await world.agent()
    first, second = await trials_of(world, agent, BY_TIME)
    for trial, loss in ((first, 0.1), (second, 0.2)):
        body = validation(trial, 5, loss=loss, batches=5)
        await world.post(f"/api/v1/trials/{trial.id}/metrics", body, task=token_of(world, trial))
    (running,), (stopping,) = allocations_of(world, first), allocations_of(world, second)
    assert running.preempt is None
    assert stopping.preempt is not None and stopping.preempt.reason == "the search needs no more of this trial"


async def test_a_validation_without_its_time_ends_the_experiment_in_error_and_is_stored(world: World) -> None:
    agent = await world.agent()
    first, _ = await trials_of(world, agent, BY_TIME)
    path = f"/api/v1/trials/{first.id}/metrics"
    assert await world.post(path, validation(first, 5, loss=0.1), task=token_of(world, first)) == {}
    experiment = (await world.get(f"/api/v1/experiments/{first.experiment_id}"))["experiment"]
    assert experiment["state"] in ("STATE_STOPPING_ERROR", "STATE_ERROR")


@pytest.mark.parametrize(
    ("searcher", "expected"),
    [
        ({"name": "single"}, [(1, None)]),
        ({"name": "grid", "max_length": {"epochs": 2}}, [(6, ("epochs", 2))]),
        (BY_TIME, [(1, ("batches", 5)), (1, ("batches", 10))]),
        (
            {"name": "adaptive_asha", "max_trials": 10, "max_time": 100, "time_metric": "epochs"},
            [(6, ("epochs", 25)), (4, ("epochs", 100))],
        ),
        ({**BY_LENGTH, "max_length": 10}, [(1, ("units", 5)), (1, ("units", 10))]),
    ],
)
async def test_a_preview_says_how_many_trials_train_how_far(
    world: World, searcher: dict[str, Any], expected: list[Any]
) -> None:
    space = {
        "a": {"type": "int", "minval": 1, "maxval": 9, "count": 2},
        "b": {"type": "categorical", "vals": [1, 2, 3]},
    }
    config = a_config(searcher={"metric": "loss", **searcher}, hyperparameters=space)
    summary = (await world.post("/api/v1/preview-hp-search", {"config": config}))["summary"]
    shown = [
        (each["count"], None if each["unit"]["maxLength"] else (each["unit"]["name"], each["unit"]["value"]))
        for each in summary["trials"]
    ]
    assert shown == expected


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"searcher": {**BY_TIME, "max_time": 0}}, "searcher.max_time: must be at least 1"),
        ({"searcher": {**BY_TIME, "num_rungs": 1000}}, "1000 rungs are over the limit"),
        ({"searcher": {"name": "grid", "metric": "loss"}}, "grid search has no hyperparameter to search"),
        (
            {
                "searcher": {"name": "grid", "metric": "loss"},
                "hyperparameters": {
                    name: {"type": "double", "minval": 0, "maxval": 1, "count": 1000} for name in ("a", "b")
                },
            },
            "the grid has 1000000 points",
        ),
    ],
)
async def test_what_cannot_be_searched_is_refused_before_anything_is_stored(
    world: World, changes: dict[str, Any], said: str
) -> None:
    await world.agent()
    body = {"config": json.dumps(a_config(**changes))}
    assert said in await world.error("POST", "/api/v1/experiments", body, status=400)
    assert (await world.get("/api/v1/experiments"))["experiments"] == []
    assert said in await world.error("POST", "/api/v1/preview-hp-search", {"config": a_config(**changes)}, status=400)


async def test_people_see_how_likely_the_search_goes_on_with_a_trial(world: World) -> None:
    first, second = await trials_of(world, await world.agent(), BY_LENGTH)
    await Script(world, first).complete(5, 0.5)
    shown = (await world.get(f"/api/v1/experiments/{first.experiment_id}/search"))["trials"]
    waits, fresh = (next(each for each in shown if each["trialId"] == trial.id) for trial in (first, second))
    assert (waits["state"], waits["likelihood"]) == ("waiting", None)
    assert (fresh["state"], fresh["likelihood"]) == ("training", 0.5)
    assert fresh["reason"] == "it has reported no result yet, and trains for rung 0 (5)"
    await Script(world, second).complete(5, 0.1)
    shown = (await world.get(f"/api/v1/experiments/{first.experiment_id}/search"))["trials"]
    assert next(each for each in shown if each["trialId"] == second.id)["likelihood"] == 1.0
    row = world.engine.state.get(SearchTrial, second.task_id)
    (allocation,) = allocations_of(world, second)
    assert row is not None
    assert allocation.worth == row.worth, "the scheduler sees the same"
