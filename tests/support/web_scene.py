"""Experiments for every kind of page, and texts that would run as scripts on an unsafe page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from resolute.wire.states import ContainerState
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.trial import Trial
from support.api import a_config, a_file, settled
from support.web import Browser

NASTY = (
    "<script>window.owned=1</script>",
    '"><img src=x onerror="window.owned=1">',
    "{{ 7*7 }}",
    "javascript:window.owned=1",
    '</title><svg/onload="window.owned=1">',
    "' autofocus onfocus='window.owned=1",
    "</textarea></pre><script>window.owned=1</script>",
)
"""Each sets a variable of the window if a page does not treat it as text."""

MARKDOWN = """# Plan
[run](javascript:window.owned=1) ![picture](https://elsewhere.example/a.png)

| rate | loss |
|:-----|-----:|
| 0.1  | 0.25 |
"""
"""Forbidden in notes: links with scripts, loaded resources, styles."""

CODE = b'"""Train."""\nimport sys\n\nNAME = "</pre><script>window.owned=1</script>"\n\n\ndef main() -> None:\n    print(NAME)\n'

EVERYWHERE = (
    "/det/",
    "/det/experiments",
    "/det/experiments/new",
    "/det/compare",
    "/det/queue",
    "/det/clusters",
    "/det/resourcepool/default",
    "/det/resourcepool/default/advice",
    "/det/money",
    "/det/admin/users",
    "/det/admin/workspaces",
    "/det/admin/templates",
    "/det/admin/configuration",
    "/det/admin/health",
    "/det/admin/logs",
)
"""Pages of an empty cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The created objects, and every page that shows them."""

    pages: Sequence[str]


async def populate(browser: Browser, *, many: int = 0) -> Scene:
    """One experiment with a reporting trial, one search, one pending; and `many` paused ones."""
    world = browser.world
    agent = await world.agent("agent-1", slots=8)
    text = NASTY[0]
    files = [a_file("train.py", CODE), a_file(NASTY[2].replace("/", ""), b"x = 1\n")]
    single = await world.create(
        a_config(
            name=NASTY[0],
            description=NASTY[1],
            labels=list(NASTY[:2]),
            hyperparameters={"lr": 0.125, NASTY[4]: NASTY[5]},
            entrypoint="python3 train.py",
        ),
        modelDefinition=files,
    )
    await world.call("PATCH", f"/api/v1/experiments/{single['id']}", {"notes": f"{MARKDOWN}\n\n{' '.join(NASTY)}"})
    space = {
        "lr": {"type": "log", "minval": -4, "maxval": -1, "base": 10},
        "net": {"type": "categorical", "vals": [*NASTY[:3]]},
    }
    halving = {"name": "async_halving", "metric": "loss", "num_rungs": 2, "divisor": 2, "max_trials": 4}
    halving |= {"max_concurrent_trials": 4, "max_length": {"batches": 20}}
    search = await world.create(a_config(name=NASTY[1], searcher=halving, hyperparameters=space))
    await settled(world)
    for container in agent.containers():
        await agent.report(container, ContainerState.RUNNING)
    for number, trial in enumerate((*_trials(browser, single["id"]), *_trials(browser, search["id"]))):
        await _report(browser, trial, number)
    waiting = await world.create(a_config(name="waits", resources={"slots_per_trial": 8}))
    for number in range(many):
        await world.create(a_config(name=f"{NASTY[number % len(NASTY)]} {number}"), activate=False)
    await world.call("PUT", "/api/v1/templates/small", {"name": "small", "config": {"description": text}})
    await settled(world)
    (trial,) = _trials(browser, single["id"])
    first, other = f"/det/experiments/{single['id']}", f"/det/experiments/{search['id']}"
    tabs = [f"{first}{tab}" for tab in ("", "/configuration", "/code", "/fork", "/notes", "/ask/kill")]
    searched = [f"{other}{tab}" for tab in ("", "/trials", "/search")]
    own = [f"{first}/trials/{trial.id}", f"{first}/trials/{trial.id}/logs"]
    more = [f"/det/compare?experiment={single['id']}&experiment={search['id']}", f"/det/queue/{waiting['jobId']}"]
    return Scene(pages=(*EVERYWHERE, *tabs, *searched, *own, *more, "/det/admin/templates?name=small"))


def _trials(browser: Browser, experiment: int) -> Sequence[Trial]:
    return browser.world.engine.state.find(Trial, "trials_of_experiment", experiment)


async def _report(browser: Browser, trial: Trial, number: int) -> None:
    world = browser.world
    found = world.engine.state.find(Allocation, "allocations_of_task", trial.task_id)
    task = world.context.tokens.issue_allocation(found[-1].id, world.owner_id)
    for step in range(2, 21, 2):
        values = {"loss": math.exp(-step / 10) + number / 10, NASTY[3]: float(step)}
        metrics = {"trialId": trial.id, "trialRunId": 1, "stepsCompleted": step, "metrics": {"avgMetrics": values}}
        body = {"group": "validation", "metrics": metrics}
        await world.post(f"/api/v1/trials/{trial.id}/metrics", body, token="", task=task)
    lines = [
        {"taskId": trial.task_id, "log": f"{each}\n", "level": "LOG_LEVEL_ERROR", "rankId": rank}
        for rank, each in enumerate(NASTY)
    ]
    await world.post("/api/v1/task/logs", {"logs": lines}, token="", task=task)
