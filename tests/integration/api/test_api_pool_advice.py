"""What other settings of a pool would save: by its own history, played by the real twin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from resolute.errors import Unavailable
from resolute_master.api.queue.advice import FRESH_S, RETRY_S, PoolAdvices
from resolute_master.forecast.history import MOST_ATTEMPTS
from support.agent_processes import eventually
from support.api import World, an_api
from support.pool_past import NOW_S, POOL, Past, Twin, advised, kept_pool

PATH = "/api/v1/resource-pools/default/advice"
CONFIG = {"launch_error": False, "resource_pools": [{"pool_name": "default"}]}


@asynccontextmanager
async def a_pool(storage: Path, twin: Twin, *, runs: int = 40, **options: Any) -> AsyncIterator[World]:
    store = Past(runs)
    given = {"pools": kept_pool(), "config": CONFIG, "advices": advised(twin), **options}
    async with an_api(storage, store=store, clock=store.clock, **given) as world:
        yield world


async def renewed(world: World) -> dict[str, Any]:
    """The answer when none is being made any more."""
    async with asyncio.timeout(60):
        while True:
            found: dict[str, Any] = await world.get(PATH)
            if not found["computing"]:
                return found
            await asyncio.sleep(0.01)


async def test_advice_says_what_each_change_would_save_and_cost(tmp_path: Path) -> None:
    async with a_pool(tmp_path, Twin()) as world:
        found = await world.get(PATH)
        assert (found["pool"], found["computing"], found["reason"]) == ("default", False, "")
        advice = found["advice"]
        # 40 runs of ten minutes, one every two hours; one machine of 3.60 an hour stays all the time.
        assert (advice["jobs"], advice["leftOut"], advice["bootS"]) == (40, 0, 180.0)
        assert advice["days"] == pytest.approx(40 * 7200 / 86_400)
        assert advice["costAMonth"] == pytest.approx(3.6 * 24 * 30, rel=0.02)
        (change,) = advice["changes"]
        assert (change["key"], change["now"], change["value"]) == ("min_instances", "1", "0")
        assert change["savesAMonth"] == pytest.approx(change["share"] * advice["costAMonth"])
        assert change["share"] > 0.8
        assert advice["waitMeanS"] < 10.0 < change["waitMeanS"] <= 180.0


async def test_an_answer_is_remembered_for_an_hour(tmp_path: Path) -> None:
    twin = Twin()
    async with a_pool(tmp_path, twin) as world:
        first = await world.get(PATH)
        assert await world.get(PATH) == first and len(twin.questions) == 1
        world.context.clock.advance(FRESH_S)  # type: ignore[attr-defined]
        twin.open.clear()
        old = await world.get(PATH)
        assert old["advice"] == first["advice"] and old["computing"], "the old one, at once"
        twin.open.set()
        newer = await renewed(world)
        assert newer["advice"]["computedAt"] > first["advice"]["computedAt"] and len(twin.questions) == 2


async def test_one_history_is_played_at_a_time_and_nobody_waits_longer_than_they_want(tmp_path: Path) -> None:
    twin = Twin()
    twin.open.clear()
    advices = advised(twin)
    async with a_pool(tmp_path, twin, advices=advices) as world:
        api, policy = world.context, kept_pool()[POOL]
        asked = [advices.of_pool(api.engine, api.store, policy, api.clock, max_wait_s=0.01) for _ in range(5)]
        told = await asyncio.gather(*asked)
        assert [(each.computing, each.advice, each.reason) for each in told] == [(True, None, "")] * 5
        await eventually(lambda: len(twin.questions) == 1)  # the history is read first, in a thread
        twin.open.set()
        assert (await world.get(PATH))["advice"]["jobs"] == 40 and len(twin.questions) == 1


async def test_the_newest_attempts_are_played_and_no_more(tmp_path: Path) -> None:
    twin = Twin()
    twin.error = Unavailable("nothing is played here")
    store = Past(MOST_ATTEMPTS + 1, every_s=900.0)
    given: dict[str, Any] = {"pools": kept_pool(), "config": CONFIG, "advices": advised(twin)}
    async with an_api(tmp_path, store=store, clock=store.clock, **given) as world:
        await world.get(PATH)
    (question,) = twin.questions
    # The end of the oldest of them is the beginning: what ran before is not known.
    assert len(question.jobs) == MOST_ATTEMPTS - 1
    assert question.days == pytest.approx((MOST_ATTEMPTS * 900.0 - 660.0) / 86_400.0)


async def test_a_short_history_is_no_basis(tmp_path: Path) -> None:
    twin = Twin()
    async with a_pool(tmp_path, twin, runs=19) as world:
        found = await world.get(PATH)
        assert found["advice"] is None and not found["computing"] and not twin.questions
        assert "the history of pool 'default' is too short: 19 piece(s) of work" in found["reason"]
        assert "advice needs 20" in found["reason"]


async def test_a_pool_without_prices_and_one_without_machines_to_buy_are_told_so(tmp_path: Path) -> None:
    async with a_pool(tmp_path, Twin(), pools=kept_pool(price=None)) as world:
        assert "no price of its offers is known; give prices" in (await world.get(PATH))["reason"]
    async with an_api(tmp_path, advices=advised(Twin())) as world:
        found = await world.get(PATH)
        assert found["advice"] is None and "pool 'default' has no provider" in found["reason"]
    async with a_pool(tmp_path, Twin(), advices=PoolAdvices()) as world:
        assert (await world.get(PATH))["reason"] == "this master has no simulator"


async def test_a_failure_is_told_and_tried_again_later(tmp_path: Path) -> None:
    twin = Twin()
    twin.error = Unavailable("it took longer than it may")
    async with a_pool(tmp_path, twin) as world:
        assert (await world.get(PATH))["reason"] == "it took longer than it may"
        twin.error = None
        assert (await world.get(PATH))["advice"] is None and len(twin.questions) == 1
        world.context.clock.advance(RETRY_S)  # type: ignore[attr-defined]
        found = await world.get(PATH)
        assert found["advice"]["jobs"] == 40 and found["reason"] == ""
        twin.error = ValueError("a fault")
        world.context.clock.advance(FRESH_S)  # type: ignore[attr-defined]
        found = await renewed(world)
        assert found["advice"]["jobs"] == 40 and "the master's log has the details" in found["reason"]


async def test_what_runs_now_is_a_part_of_the_history(tmp_path: Path) -> None:
    twin = Twin()
    async with a_pool(tmp_path, twin) as world:
        await world.started(await world.agent())
        world.context.clock.advance(600.0)  # type: ignore[attr-defined]
        await world.get(PATH)
        (question,) = twin.questions
        newest = question.jobs[-1]
        assert len(question.jobs) == 41 and newest.duration_s == 600.0
        assert newest.submit_s == pytest.approx(question.days * 86_400 - 600.0) and newest.submit_s < NOW_S


async def test_a_pool_that_is_not_there_is_not_found(world: World) -> None:
    assert "resource pool 'x'" in await world.error("GET", "/api/v1/resource-pools/x/advice", status=404)
