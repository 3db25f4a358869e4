"""Points from a sampler enter as journalled commands, late or not at all, and the rules wait for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from resolute_master.domain.commands import CompleteOperation, ProposePoints
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import ExperimentId
from resolute_master.domain.search import Search, SearchTrial
from resolute_master.domain.trial import Trial
from resolute_master.engine.engine import Engine
from resolute_master.engine.optuna_sampler import OptunaSampler
from resolute_master.engine.proposals import EvaluatedPoint, Proposals
from resolute_master.engine.replay import replay_store
from resolute_master.searcher.method import PointRequest
from resolute_master.searcher.proposed import SamplerSettings
from resolute_master.store.memory import MemoryStore
from support.engines import POOLS, a_config, a_user, an_engine, an_experiment, running

SPACE: dict[str, Any] = {
    "act": {"type": "categorical", "vals": ["relu", {"type": "custom"}, None]},
    "fixed": [1],
    "net": {"layers": {"type": "int", "minval": 1, "maxval": 9}, "empty": {}},
    "rate": {"type": "log", "minval": -4, "maxval": -1, "base": 10},
    "x": {"type": "double", "minval": 0.0, "maxval": 1.0},
}
ID = ExperimentId(1)


class Scripted:
    """A sampler that answers with the same point, after so many failures."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.asked: list[tuple[int, int]] = []
        self.forgotten: list[int] = []

    def propose(
        self, search: ExperimentId, seed: int, point_request: PointRequest, evaluated: Sequence[EvaluatedPoint]
    ) -> list[Mapping[str, Any]]:
        self.asked.append((point_request.points, len(evaluated)))
        if self.failures:
            self.failures -= 1
            raise ValueError("no idea")
        return [{"lr": 0.5}] * point_request.points

    def forget(self, search: ExperimentId) -> None:
        self.forgotten.append(search)


def a_search(**more: Any) -> dict[str, Any]:
    searcher = {"name": "optuna", "metric": "loss", "max_trials": 6, "max_concurrent_trials": 2, "random_trials": 2}
    return {**a_config(), "searcher": {**searcher, "max_length": 5, **more}}


async def completed(engine: Engine, number: int, metric: float) -> None:
    """The trial ends: it has no slots, so that it need not be waited for."""
    row = sorted(engine.state.all(SearchTrial), key=lambda each: each.number)[number]
    trial = next(trial for trial in engine.state.all(Trial) if trial.task_id == row.id)
    await engine.submit(CompleteOperation(trial=trial.id, length=5, metric=metric))


async def made(engine: Engine, trials: int) -> None:
    """So many trials are there."""
    with engine.watch("", "") as news:
        while len(engine.state.all(SearchTrial)) < trials:
            await news.changed(1.0)


async def test_a_place_that_is_free_is_filled_with_a_proposal_and_the_journal_replays() -> None:
    store, sampler = MemoryStore(), Scripted()
    async with running(an_engine(store)) as engine:
        proposals = Proposals(engine, sampler)
        service = asyncio.create_task(proposals.run())
        await an_experiment(engine, await a_user(engine), a_search())
        assert len(engine.state.all(SearchTrial)) == 2
        for number in range(6):
            await made(engine, number + 1)
            await completed(engine, number, 0.1 * number)
        with engine.watch("", "") as news:
            while (await store.experiment(ID)).state.value != "COMPLETED":  # type: ignore[union-attr]
                await news.changed(1.0)
        service.cancel()
    rows = await store.search_rows(ID)
    assert [row.own["metric"] for row in rows] == pytest.approx([0.1 * number for number in range(6)])
    assert {row.own["point"]["lr"] for row in rows[2:]} == {0.5}
    assert sampler.asked[0] == (1, 2)
    found = await replay_store(store, POOLS)
    assert found.divergence is None and found.cycles > 6


async def test_a_proposal_that_comes_too_late_is_ignored() -> None:
    store = MemoryStore()
    async with running(an_engine(store)) as engine:
        await an_experiment(engine, await a_user(engine), a_search())
        await completed(engine, 0, 0.5)
        for _ in range(2):
            await engine.submit(ProposePoints(experiment=ID, known=2, points=({"lr": 0.1},)))
        assert len(engine.state.all(SearchTrial)) == 3
        await engine.submit(ProposePoints(experiment=ExperimentId(9), known=0, points=({"lr": 0.1},)))


async def test_a_sampler_that_fails_is_asked_again_and_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resolute_master.engine.proposals.RETRY_S", 0.0)
    sampler = Scripted(failures=2)
    async with running(an_engine(MemoryStore())) as engine:
        service = asyncio.create_task(Proposals(engine, sampler).run())
        await an_experiment(engine, await a_user(engine), a_search())
        await completed(engine, 0, 0.5)
        await made(engine, 3)
        service.cancel()
        assert len(sampler.asked) == 3
        assert engine.state.get(Search, ID) is not None
        assert engine.state.get(Experiment, ID) is not None


# ------------------------------------------------------------------------------------------------------------- Optuna


def a_point_request(
    points: int, *, sampler: str = "tpe", multivariate: bool = False, space: Any = None
) -> PointRequest:
    settings = SamplerSettings(sampler=sampler, multivariate=multivariate, smaller_is_better=True)
    return PointRequest(points=points, space=SPACE if space is None else space, settings=settings)


def test_points_of_optuna_are_points_of_the_space() -> None:
    points = OptunaSampler().propose(ID, 7, a_point_request(30), [])
    assert {str(point["act"]) for point in points} <= {"relu", "{'type': 'custom'}", "None"}
    assert all(point["fixed"] == [1] and point["net"]["empty"] == {} for point in points)
    assert all(1 <= point["net"]["layers"] <= 9 and isinstance(point["net"]["layers"], int) for point in points)
    assert all(1e-4 <= point["rate"] <= 1e-1 and 0 <= point["x"] <= 1 for point in points)
    assert [point.keys() for point in points] == [SPACE.keys()] * 30


@pytest.mark.parametrize(("sampler", "multivariate"), [("tpe", False), ("tpe", True), ("cma_es", False)])
@pytest.mark.parametrize("restarted", [False, True])
def test_samplers_of_optuna_learn_also_after_a_restart(sampler: str, multivariate: bool, restarted: bool) -> None:
    space = {name: {"type": "double", "minval": 0.0, "maxval": 1.0} for name in ("x", "y")}
    point_request = a_point_request(1, sampler=sampler, multivariate=multivariate, space=space)
    optuna, evaluated = OptunaSampler(), list[EvaluatedPoint]()
    for number in range(60):
        if restarted and number % 20 == 0:
            optuna = OptunaSampler()
        (point,) = optuna.propose(ID, 3, point_request, evaluated)
        metric = (point["x"] - 0.2) ** 2 + (point["y"] - 0.7) ** 2
        evaluated.append(EvaluatedPoint(request_id=str(number), point=point, metric=metric, open=False))
    early, late = ([each.metric or 0.0 for each in part] for part in (evaluated[:15], evaluated[-15:]))
    assert sum(late) < 0.5 * sum(early)


def test_running_and_failed_trials_and_metrics_that_are_no_numbers_are_understood() -> None:
    optuna = OptunaSampler()
    first, second, third = optuna.propose(ID, 3, a_point_request(3), [])
    evaluated = [
        EvaluatedPoint(request_id="a", point=first, metric=float("nan"), open=False),
        EvaluatedPoint(request_id="b", point=second, metric=None, open=False),
        EvaluatedPoint(request_id="c", point=third, metric=0.5, open=True),
    ]
    assert len(optuna.propose(ID, 3, a_point_request(2), evaluated)) == 2
    assert len(OptunaSampler().propose(ID, 3, a_point_request(2), evaluated)) == 2
    optuna.forget(ID)
    optuna.forget(ID)


CONDITIONAL: dict[str, Any] = {
    "a": {"type": "double", "minval": 0.0, "maxval": 1.0, "when": {"kind": ["near"]}},
    "b": {"type": "int", "minval": 1, "maxval": 3, "when": {"deep": [2]}},
    "deep": {"type": "categorical", "vals": [1, 2], "when": {"kind": ["far"]}},
    "kind": {"type": "categorical", "vals": ["near", "far"]},
}


@pytest.mark.parametrize(("sampler", "multivariate"), [("tpe", False), ("tpe", True), ("cma_es", False)])
@pytest.mark.parametrize("restarted", [False, True])
def test_samplers_of_optuna_propose_only_what_is_there_and_tpe_learns_which_choice_is_best(
    sampler: str, multivariate: bool, restarted: bool
) -> None:
    point_request = a_point_request(1, sampler=sampler, multivariate=multivariate, space=CONDITIONAL)
    optuna, evaluated = OptunaSampler(), list[EvaluatedPoint]()
    for number in range(60):
        if restarted and number % 20 == 0:
            optuna = OptunaSampler()
        (point,) = optuna.propose(ID, 3, point_request, evaluated)
        near = point["kind"] == "near"
        assert ("a" in point, "deep" in point, "b" in point) == (near, not near, point.get("deep") == 2)
        metric = point["a"] if near else 5.0
        evaluated.append(EvaluatedPoint(request_id=str(number), point=point, metric=metric, open=number % 7 == 6))
    # Optuna's CMA-ES draws choices, and what depends on them.
    assert sampler == "cma_es" or sum(each.point["kind"] == "near" for each in evaluated[-20:]) > 10
