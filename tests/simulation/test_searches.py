"""A large search in virtual time, through the production engine: trials fail, slots are few, and the master dies on the way."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from resolute.wire.states import ExperimentState
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import ExperimentId, PoolName
from resolute_master.domain.pool import PoolPolicy
from resolute_master.domain.search import SearchTrial, boards_of
from resolute_master.searcher.methods import make
from resolute_master.store.base import TrialQuery
from resolute_master.store.memory import MemoryStore, MemoryTables
from resolute_sim.fault_plan import NO_FAULTS, Fault, FaultPlan
from resolute_sim.simulation import Outcome, simulate
from resolute_sim.workload import METRIC, TIME_METRIC, Submission, Workload
from support.effort import repeated

POOL = PoolName("fixed")
STEPS = 16
LOST_ABOVE = 0.95
"""Trials with a larger hyperparameter fail."""

BY_TIME: dict[str, Any] = {"max_time": STEPS, "time_metric": TIME_METRIC}
BY_LENGTH: dict[str, Any] = {"max_length": STEPS}
UNSETTLED = replace(
    NO_FAULTS, gaps={Fault.KILL_MASTER: 300.0, Fault.DIE_BEFORE_COMMIT: 900.0, Fault.DIE_AFTER_COMMIT: 600.0}
)
"""The master dies again and again."""


def a_search(trials: int, **more: Any) -> Submission:
    searcher = {"name": "adaptive_asha", "metric": METRIC, "smaller_is_better": True, "divisor": 4, "max_rungs": 3}
    config: dict[str, Any] = {
        "name": "search",
        "hyperparameters": {"x": {"type": "double", "minval": 0.0, "maxval": 1.0}},
        "searcher": {**searcher, "mode": "standard", "max_concurrent_trials": 64, "max_trials": trials, **more},
        "resources": {"slots_per_trial": 1},
        "max_restarts": 0,
        "preemption_timeout": 60,
        "environment": {"environment_variables": ["RESOLUTE_SCRIPT=pull 1s"]},
        "data": {
            "steps": STEPS,
            "step_s": 5.0,
            "save_every": 1,
            "save_s": 0.5,
            "failures": [],
            "floor_by_x": True,
            "by_length": "max_length" in more,
            "lost_above": LOST_ABOVE,
            "worker_fails_after_s": 0.0,
            "invalid_below": 0.0,
            "leaves_when_invalid": False,
            "deaf": False,
            "stuck_s": 0.0,
        },
    }
    return Submission(at_s=0.0, config=config, pool=POOL, priority=42, max_slots=None, seed=1, activate=True)


def run(
    search: Submission, fault_plan: FaultPlan, *, rules_every: int = 1, with_replay: bool = False
) -> tuple[Outcome, Any]:
    workload = Workload(pools={POOL: PoolPolicy(name=POOL)}, submissions=(search,), fixed_machines=((POOL, 16),) * 4)
    tables: list[MemoryTables] = []
    outcome = simulate(
        1,
        workload=workload,
        fault_plan=fault_plan,
        snapshot_every=50,
        rules_every=rules_every,
        with_replay=with_replay,
        look=tables.append,
    )
    return outcome, MemoryStore(tables[0])


async def judged(store: Any, search: Submission) -> list[SearchTrial]:
    """What holds at the end of every such search; its rows."""
    experiment = await store.experiment(ExperimentId(1))
    assert isinstance(experiment, Experiment)
    assert experiment.state is ExperimentState.COMPLETED
    assert experiment.progress == 1.0
    rows = list(await store.search_rows(ExperimentId(1)))
    trials = {t.task_id: t for t in (await store.page_trials(TrialQuery(experiment_id=ExperimentId(1)))).rows}
    assert len(rows) == len(trials) == search.config["searcher"]["max_trials"]
    for row in rows:
        trial = trials[row.id]
        assert trial.state is (ExperimentState.ERROR if trial.hparams["x"] > LOST_ABOVE else ExperimentState.COMPLETED)
    boards = boards_of(rows)
    plan = make(search.config["searcher"], search.config["hyperparameters"])
    for bracket in range(2):
        told = [len(boards.places((ExperimentId(1), f"{bracket}/{rung}"))) for rung in range(3)]
        assert told == sorted(told, reverse=True), "nobody comes to a rung but from the one below"
        assert all(after < before for before, after in pairwise(told) if after), "and not everybody"
    assert sum(each.trials for each in plan.plan()) == len(rows)
    best = min(rows, key=lambda row: (trials[row.id].hparams["x"], row.number))
    assert trials[best.id].steps_completed == STEPS, "the best trial is trained to the end"
    return rows


@pytest.mark.timeout(900)
def test_a_large_search_completes_while_the_master_dies_on_the_way() -> None:
    search = a_search(repeated(push=200, night=2000), **BY_TIME)
    outcome, store = run(search, replace(UNSETTLED, faults_s=3000.0), rules_every=200)
    assert not outcome.violations
    assert outcome.masters > 5
    asyncio.run(judged(store, search))


@pytest.mark.parametrize(
    "more", [BY_TIME, {**BY_LENGTH, "stop_once": True}, BY_LENGTH], ids=["time", "stop", "promote"]
)
def test_a_search_goes_on_after_every_death_of_its_master_and_its_journal_replays(more: dict[str, Any]) -> None:
    search = a_search(100, **more)
    outcome, store = run(search, replace(UNSETTLED, faults_s=1500.0), with_replay=True)
    assert not outcome.violations
    assert outcome.masters > 2
    assert outcome.replayed >= outcome.commits
    asyncio.run(judged(store, search))
