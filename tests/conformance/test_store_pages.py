"""What every store promises of its pages: filters, order, offsets, sums."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Any

import pytest

from resolute.errors import InvalidInput
from resolute.wire.states import CheckpointState, ExperimentState
from resolute_master.domain.change import Entity
from resolute_master.domain.ids import ExperimentId, PoolName, UserId
from resolute_master.domain.trial import Validation
from resolute_master.store.base import ExperimentNumbers, ExperimentQuery, Page, Store, TrialQuery
from resolute_master.store.listing import EXPERIMENT_SORTS, TRIAL_SORTS
from support.stores import (
    STORES,
    a_change,
    a_checkpoint,
    a_job,
    a_trial,
    an_experiment,
    moment,
    store_home,
)


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    store = await (await store_home(request)).open()
    yield store
    await store.close()


def ids(page: Page[Any]) -> list[int]:
    return [row.id for row in page.rows]


async def experiments(store: Store, **query: Any) -> list[int]:
    return ids(await store.page_experiments(ExperimentQuery(**query)))


async def trials(store: Store, experiment: int = 1, **query: Any) -> list[int]:
    return ids(await store.page_trials(TrialQuery(experiment_id=ExperimentId(experiment), **query)))


# ------------------------------------------------------------------------------------------------------------- pages


@pytest.mark.parametrize(
    ("offset", "limit", "rows", "begins"),
    [
        (0, None, [1, 2, 3, 4, 5], 0),
        (0, 2, [1, 2], 0),
        (3, 10, [4, 5], 3),
        (5, 10, [], 5),
        (99, 10, [], 5),
        (-2, None, [4, 5], 3),
        (-2, 1, [4], 3),
        (-99, 2, [1, 2], 0),
        (1, 0, [], 1),
    ],
)
async def test_offsets_count_from_either_end_and_stay_within_the_rows(
    store: Store, offset: int, limit: int | None, rows: list[int], begins: int
) -> None:
    await store.commit(a_change(1, upserts=tuple(an_experiment(n) for n in range(1, 6))))
    page = await store.page_experiments(ExperimentQuery(offset=offset, limit=limit))
    assert (ids(page), page.offset, page.total) == (rows, begins, 5)


async def test_a_page_of_experiments_is_a_hundred_unless_asked_otherwise(store: Store) -> None:
    await store.commit(a_change(1, upserts=tuple(an_experiment(n) for n in range(1, 131))))
    page = await store.page_experiments(ExperimentQuery())
    assert (len(page.rows), page.total) == (100, 130)


async def test_pages_walk_through_all_rows_without_overlap_also_when_all_are_equal(store: Store) -> None:
    await store.commit(a_change(1, upserts=tuple(an_experiment(n, name="same") for n in range(1, 8))))
    for descending in (False, True):
        walked: list[int] = []
        for offset in range(0, 7, 2):
            walked += await experiments(store, offset=offset, limit=2, sort_by="name", descending=descending)
        assert walked == [1, 2, 3, 4, 5, 6, 7]


async def test_an_empty_store_has_empty_pages(store: Store) -> None:
    assert await store.page_experiments(ExperimentQuery(offset=-3)) == Page(rows=(), offset=0, total=0)
    assert await store.page_trials(TrialQuery(experiment_id=ExperimentId(1))) == Page(rows=(), offset=0, total=0)


# ----------------------------------------------------------------------------------------------------------- filters


async def test_each_experiment_filter_selects_its_rows(store: Store) -> None:
    await store.commit(
        a_change(
            1,
            upserts=(
                an_experiment(1, name="Big ÖLPREIS_model", labels=("nightly", "a")),
                an_experiment(2, archived=True, owner=UserId(2), description="The 50% run"),
                an_experiment(3, state=ExperimentState.COMPLETED, project_id=7, workspace_id=5, labels=("A",)),
                an_experiment(4, state=ExperimentState.ERROR, name="bigXmodel", description="the 500 run"),
            ),
        )
    )
    assert await experiments(store, archived=True) == [2]
    assert await experiments(store, archived=False) == [1, 3, 4]
    assert await experiments(store, states=(ExperimentState.COMPLETED, ExperimentState.ERROR)) == [3, 4]
    assert await experiments(store, owners=(2, 3)) == [2]
    assert await experiments(store, labels=("a", "other")) == [1]
    assert await experiments(store, labels=("a", "A")) == [1, 3]
    assert await experiments(store, name="BIG") == [1, 4]
    assert await experiments(store, name="ölpreis") == [1]
    assert await experiments(store, name="s_m") == [1]
    assert await experiments(store, description="THE 50%") == [2]
    assert await experiments(store, project_id=7) == [3]
    assert await experiments(store, not_in_workspace=1) == [3]
    assert await experiments(store, project_id=7, not_in_workspace=5) == []
    assert await experiments(store, ids=(4, 1, 9)) == [1, 4]
    assert await experiments(store, exclude_ids=(1, 2)) == [3, 4]
    assert await experiments(store, ids=(1, 2), exclude_ids=(2,), archived=False) == [1]
    page = await store.page_experiments(ExperimentQuery(archived=False, limit=1))
    assert (ids(page), page.total) == ([1], 3)


async def test_a_label_that_was_taken_off_is_not_found_any_more(store: Store) -> None:
    await store.commit(a_change(1, upserts=(an_experiment(1, labels=("x", "y", "x")),)))
    await store.commit(a_change(2, upserts=(an_experiment(1, labels=("y",)),)))
    assert await experiments(store, labels=("x",)) == []
    assert await experiments(store, labels=("y",)) == [1]


async def test_trials_are_those_of_their_experiment_in_the_states_asked_for(store: Store) -> None:
    await store.commit(
        a_change(
            1,
            upserts=(
                a_trial(1),
                a_trial(2, state=ExperimentState.ERROR),
                a_trial(3, state=ExperimentState.COMPLETED),
                a_trial(4, experiment=2),
            ),
        )
    )
    assert await trials(store) == [1, 2, 3]
    assert await trials(store, states=(ExperimentState.ERROR, ExperimentState.COMPLETED)) == [2, 3]
    assert await trials(store, offset=-1) == [3]


# ------------------------------------------------------------------------------------------------------------ sorting


MIXED_SEARCHES: tuple[Entity, ...] = (
    an_experiment(
        1,
        name="b",
        description="z",
        started_at=moment(30),
        ended_at=moment(90),
        state=ExperimentState.ERROR,
        progress=0.5,
        owner=UserId(3),
        project_id=2,
        workspace_id=2,
        parent_id=ExperimentId(2),
        best_validation=0.5,
    ),
    an_experiment(
        2,
        name="B",
        description="y",
        started_at=moment(10),
        state=ExperimentState.ACTIVE,
        progress=1.0,
        owner=UserId(2),
        project_id=3,
        workspace_id=1,
        best_validation=math.nan,
    ),
    an_experiment(
        3,
        name="a",
        description="x",
        started_at=moment(20),
        ended_at=moment(80),
        state=ExperimentState.COMPLETED,
        progress=0.0,
        owner=UserId(1),
        project_id=1,
        workspace_id=3,
        parent_id=ExperimentId(1),
        best_validation=-0.5,
    ),
    a_job(1, pool=PoolName("p2")),
    a_job(2, pool=PoolName("p1")),
    a_job(3, pool=PoolName("p3")),
    a_trial(1, experiment=3),
    a_trial(2, experiment=3),
    a_trial(3, experiment=2),
    a_checkpoint("a", experiment=2, resources={"f": 10}),
    a_checkpoint("b", experiment=2, resources={"f": 10}),
    a_checkpoint("c", experiment=2, resources={"f": 999}, state=CheckpointState.DELETED),
    a_checkpoint("d", experiment=3, resources={"f": 100}),
)
"""Three experiments that every sort puts in another order."""


async def test_experiments_are_sorted_by_every_name_of_the_contract(store: Store) -> None:
    await store.commit(a_change(1, upserts=MIXED_SEARCHES))
    expected = {
        "id": [1, 2, 3],
        "name": [2, 3, 1],
        "description": [3, 2, 1],
        "start_time": [2, 3, 1],
        "end_time": [3, 1, 2],
        "state": [2, 3, 1],
        "progress": [3, 1, 2],
        "user": [3, 2, 1],
        "num_trials": [1, 2, 3],
        "resource_pool": [2, 1, 3],
        "project_id": [3, 1, 2],
        "workspace_id": [2, 1, 3],
        "forked_from": [3, 1, 2],
        "checkpoint_count": [1, 3, 2],
        "checkpoint_size": [1, 2, 3],
        "searcher_metric_val": [3, 1, 2],
    }
    assert set(expected) == set(EXPERIMENT_SORTS)
    without_a_value = {"end_time": 2, "forked_from": 2, "searcher_metric_val": 2}
    for name, order in expected.items():
        assert await experiments(store, sort_by=name) == order, name
        last = without_a_value.get(name)
        down = [id_ for id_ in reversed(order) if id_ != last] + ([] if last is None else [last])
        assert await experiments(store, sort_by=name, descending=True) == down, name


async def test_trials_are_sorted_by_every_name_of_the_contract(store: Store) -> None:
    def validation(metric: float) -> Validation:
        return Validation(steps_completed=1, metric=metric, at=moment(0), metrics={})

    await store.commit(
        a_change(
            1,
            upserts=(
                a_trial(
                    1,
                    started_at=moment(5),
                    ended_at=moment(50),
                    state=ExperimentState.COMPLETED,
                    best_validation=validation(0.25),
                    latest_validation=validation(0.75),
                    steps_completed=30,
                    restarts=2,
                ),
                a_trial(
                    2,
                    started_at=moment(3),
                    ended_at=moment(60),
                    state=ExperimentState.ACTIVE,
                    best_validation=validation(0.5),
                    latest_validation=validation(math.nan),
                    steps_completed=10,
                    restarts=1,
                ),
                a_trial(3, started_at=moment(4), state=ExperimentState.PAUSED, steps_completed=20, restarts=3),
                a_checkpoint("a", trial=1, resources={"f": 10}),
                a_checkpoint("b", trial=1, resources={"f": 10}),
                a_checkpoint("c", trial=3, resources={"f": 15}),
                a_checkpoint("d", trial=3, resources={"f": 90}, state=CheckpointState.DELETED),
            ),
        )
    )
    expected = {
        "id": [1, 2, 3],
        "start_time": [2, 3, 1],
        "end_time": [1, 2, 3],
        "state": [2, 3, 1],
        "best_validation_metric": [1, 2, 3],
        "latest_validation_metric": [1, 2, 3],
        "batches_processed": [2, 3, 1],
        "duration": [1, 2, 3],
        "restarts": [2, 1, 3],
        "checkpoint_size": [2, 3, 1],
    }
    assert set(expected) == set(TRIAL_SORTS)
    for name, order in expected.items():
        assert await trials(store, sort_by=name) == order, name
    assert await trials(store, sort_by="end_time", descending=True) == [2, 1, 3]
    assert await trials(store, sort_by="best_validation_metric", descending=True) == [2, 1, 3]
    assert await trials(store, sort_by="restarts", descending=True) == [3, 1, 2]


async def test_an_unknown_column_is_refused_by_name(store: Store) -> None:
    with pytest.raises(InvalidInput, match=r"sort_by: 'loss'.*num_trials"):
        await store.page_experiments(ExperimentQuery(sort_by="loss"))
    with pytest.raises(InvalidInput, match=r"sort_by: 'name'.*restarts"):
        await store.page_trials(TrialQuery(experiment_id=ExperimentId(1), sort_by="name"))


# --------------------------------------------------------------------------------------------------------------- sums


async def test_numbers_of_experiments_are_summed_over_what_is_not_deleted(store: Store) -> None:
    await store.commit(
        a_change(
            1,
            upserts=(
                an_experiment(1),
                an_experiment(2),
                a_trial(1),
                a_trial(2),
                a_checkpoint("a", resources={"f": 10, "g/": 0}),
                a_checkpoint("b", resources={"f": 5}, state=CheckpointState.PARTIALLY_DELETED),
                a_checkpoint("c", resources={"f": 7}, state=CheckpointState.DELETED),
            ),
        )
    )
    one, two, unknown = ExperimentId(1), ExperimentId(2), ExperimentId(3)
    assert await store.experiment_numbers([one, two, unknown]) == {
        one: ExperimentNumbers(trials=2, checkpoints=2, checkpoint_bytes=15),
        two: ExperimentNumbers(),
        unknown: ExperimentNumbers(),
    }
    assert await store.experiment_numbers([]) == {}
