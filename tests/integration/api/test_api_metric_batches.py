"""Many reports in one request: stored like single ones, refused by name."""

from __future__ import annotations

import re
from typing import Any

import pytest

from resolute_master.domain.trial import Trial
from support.api import World


def a_batch(*steps: int, **changes: Any) -> dict[str, Any]:
    reports = [{"stepsCompleted": step, "metrics": {"loss": step / 2}} for step in steps]
    return {"group": "training", "trialRunId": 1, "reports": reports, **changes}


def path(trial: Trial) -> str:
    return f"/api/v1/trials/{trial.id}/metrics/batch"


async def test_a_batch_is_stored_as_single_reports_are(world: World) -> None:
    trial, _, task = await world.started(await world.agent())
    answer = await world.post(path(trial), a_batch(1, 2, 3), token="", task=task)
    assert answer == {"stored": 3, "conflictingSteps": []}
    rows = await world.context.store.metrics(trial.id)
    assert [(row.steps_completed, row.metrics) for row in rows] == [(n, {"loss": n / 2}) for n in (1, 2, 3)]
    now = world.engine.state.get(Trial, trial.id)
    assert now is not None and now.steps_completed == 3


async def test_repeats_are_harmless_and_other_values_are_named(world: World) -> None:
    trial, _, task = await world.started(await world.agent())
    await world.post(path(trial), a_batch(1, 2), token="", task=task)
    other = a_batch(1, 2, 3)
    other["reports"][1]["metrics"]["loss"] = 99.0
    assert await world.post(path(trial), other, token="", task=task) == {"stored": 2, "conflictingSteps": [2]}


async def test_validations_in_a_batch_reach_the_search(world: World) -> None:
    trial, _, task = await world.started(await world.agent())
    await world.post(path(trial), a_batch(4, 2, group="validation"), token="", task=task)
    now = world.engine.state.get(Trial, trial.id)
    assert now is not None and now.best_validation is not None
    assert (now.best_validation.metric, now.best_validation.steps_completed) == (1.0, 2)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"group": "a.b"}, "group: 'a.b' must be a name"),
        ({"group": "gpu"}, "group: 'gpu' must be a name"),
        ({"trialRunId": 7}, "trialRunId: trial .* is at run 1, not 7"),
        ({"reports": []}, "reports: 0 reports; send 1 to 5000"),
        ({"reports": [{"stepsCompleted": -1, "metrics": {}}]}, "not a batch of reports: .*stepsCompleted"),
        ({"reports": [{"metrics": {}}]}, "not a batch of reports: .*stepsCompleted"),
        (
            {"reports": [{"stepsCompleted": 1, "metrics": {"epoch": "one"}}]},
            "reports.metrics.epoch: 'one' must be a number",
        ),
        ({"reports": [{"stepsCompleted": 1, "metrics": {"n" * 5000: 1}}]}, "one name has more than"),
        ({"reports": [{"stepsCompleted": 1, "metrics": {"deep": [[[[[2**70]]]]]}}]}, "does not fit in 64 bits"),
        ({"surprise": 1}, "not a batch of reports: .*surprise"),
    ],
)
async def test_what_is_wrong_is_named_and_nothing_is_stored(world: World, changes: dict[str, Any], text: str) -> None:
    trial, _, task = await world.started(await world.agent())

    said = await world.error("POST", path(trial), a_batch(1, **changes), status=400, token="", task=task)
    assert re.search(text, said), said
    assert await world.context.store.metrics(trial.id) == ()


async def test_a_task_reports_for_its_own_trial_only(world: World) -> None:
    agent = await world.agent(slots=4)
    _, _, task = await world.started(agent)
    other, _, _ = await world.started(agent)
    await world.error("POST", path(other), a_batch(1), status=403, token="", task=task)
