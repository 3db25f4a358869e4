"""What searches remember, in every store."""

from __future__ import annotations

import math

import pytest

from resolute.wire.states import ExperimentState
from resolute_master.domain.change import key_of
from resolute_master.domain.ids import ExperimentId
from resolute_master.domain.search import Standing
from support.stores import STORES, StoreHome, a_change, a_search, a_search_trial, an_experiment, store_home


@pytest.fixture(params=STORES)
async def home(request: pytest.FixtureRequest) -> StoreHome:
    return await store_home(request)


async def test_rows_of_a_search_come_back_exactly_and_in_the_order_in_which_trials_were_made(home: StoreHome) -> None:
    store = await home.open()
    standing = Standing(board="0/0", score=math.inf, order=-3)
    made = [
        a_search_trial(2, request_id, number=number, standings=(standing,), completed_metric=-math.inf, own={"rung": 1})
        for number, request_id in enumerate("cab")
    ]
    search = a_search(2, own={"brackets": [[1, [2]]]}, progress=2**40)
    await store.commit(a_change(1, upserts=(an_experiment(2), search, a_search_trial(1), *made)))
    assert await store.search_rows(ExperimentId(2)) == tuple(made)
    assert await store.search_rows(ExperimentId(9)) == ()
    assert search in (await store.load()).entities
    await store.commit(a_change(2, deletes=(("search", 2), ("search_trial", made[0].id))))
    assert await store.search_rows(ExperimentId(2)) == tuple(made[1:])
    assert search not in (await store.load()).entities
    await store.close()


async def test_only_searches_of_experiments_that_are_not_over_are_loaded(home: StoreHome) -> None:
    store = await home.open()
    states = (ExperimentState.STOPPING_KILLED, ExperimentState.COMPLETED, ExperimentState.DELETING)
    experiments = [an_experiment(number, state=state) for number, state in enumerate(states, start=1)]
    rows = [each for number in (1, 2, 3) for each in (a_search(number), a_search_trial(number, "a"))]
    await store.commit(a_change(1, upserts=(*experiments, *rows)))
    assert [key_of(each) for each in (await store.load()).entities] == [1, 3, 1, 3, "1.a", "3.a"]
    assert await store.experiment_entities(ExperimentId(2)) == (experiments[1], *rows[2:4])
    await store.close()
