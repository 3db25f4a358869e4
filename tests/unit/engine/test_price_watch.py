"""Who asks clouds for prices: what it tells, how it waits, and what a failure does."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from resolute.clock import FixedClock
from resolute_master.domain.change import PoolBelief
from resolute_master.domain.instance import Instance
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine.engine import Engine
from resolute_master.engine.price_watch import FIRST_RETRY_S, JITTER, LONGEST_RETRY_S, PriceWatch
from resolute_master.engine.replay import replay_store
from resolute_master.store.memory import MemoryStore
from resolute_provisioner.clouds.base import Transient
from resolute_provisioner.model import Market, Offer, PoolScaling
from resolute_provisioner.prices import LivePrice
from support.cluster import T0
from support.engines import DEFAULT, a_user, an_engine, an_experiment, running

SPOT = Offer(offer_id="aws/z/t/spot", instance_type="t", zone="z", market=Market.SPOT, slots=1)
OWN = replace(SPOT, offer_id="aws/z/own/spot", price_per_hour=0.2, price_is_fixed=True)
ON_DEMAND = replace(SPOT, offer_id="aws/z/t/on_demand", market=Market.ON_DEMAND)
OFFERS = (SPOT, OWN, ON_DEMAND)
POOLS = {DEFAULT: PoolPolicy(name=DEFAULT, scaling=PoolScaling(pool=DEFAULT, offers=OFFERS))}


class ScriptedPrices:
    """Answers with what it is given, in order; an error is raised."""

    name = "scripted prices"

    def __init__(self, *answers: tuple[LivePrice, ...] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, ...]] = []

    async def spot_prices(self, offers: Sequence[Offer]) -> tuple[LivePrice, ...]:
        self.asked.append(tuple(offer.offer_id for offer in offers))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def a_price(per_hour: float, *, after_s: float = 0.0) -> tuple[LivePrice, ...]:
    return (LivePrice(offer_id=SPOT.offer_id, per_hour=per_hour, as_of=T0 + timedelta(seconds=after_s)),)


def a_watch(engine: Engine, source: ScriptedPrices) -> PriceWatch:
    return PriceWatch(
        engine, DEFAULT, source, offers=OFFERS, period_s=300.0, clock=FixedClock(T0), rng=random.Random(1)
    )


def prices(engine: Engine) -> dict[str, float | None]:
    return {known.belief.offer_id: known.belief.price_per_hour for known in engine.state.all(PoolBelief)}


async def test_spot_prices_that_nobody_has_fixed_are_asked_for_and_told() -> None:
    source = ScriptedPrices(a_price(0.4), a_price(0.5, after_s=60))
    async with running(an_engine(MemoryStore(), pools=POOLS)) as engine:
        watch = a_watch(engine, source)
        await watch.ask()
        assert prices(engine) == {SPOT.offer_id: 0.4}
        await watch.ask()
        assert prices(engine) == {SPOT.offer_id: 0.5}
        assert source.asked == [(SPOT.offer_id,)] * 2
        assert (watch.status.answered_at, watch.status.failures, watch.status.error) == (T0, 0, "")


async def test_a_price_that_stays_is_said_once() -> None:
    async with running(an_engine(MemoryStore(), pools=POOLS)) as engine:
        watch = a_watch(engine, ScriptedPrices(a_price(0.4), a_price(0.4), ()))
        await watch.ask()
        told = engine.memory.sequence
        await watch.ask()
        await watch.ask()
        assert engine.memory.sequence == told
        assert prices(engine) == {SPOT.offer_id: 0.4}


async def test_prices_are_in_the_journal_and_come_out_again() -> None:
    store = MemoryStore()
    async with running(an_engine(store, pools=POOLS)) as engine:
        watch = a_watch(engine, ScriptedPrices(a_price(0.4), a_price(0.5, after_s=60)))
        await watch.ask()
        await an_experiment(engine, await a_user(engine))
        await watch.ask()
        (machine,) = engine.state.all(Instance)
        assert (machine.offer_id, machine.price_per_hour) == (OWN.offer_id, 0.2)
    again = await replay_store(store, POOLS)
    assert again.divergence is None
    assert again.cycles > 3


@pytest.mark.parametrize("error", [Transient("asked too often"), RuntimeError("a bug of the SDK")])
async def test_a_failure_is_seen_and_changes_nothing_else(error: Exception) -> None:
    async with running(an_engine(MemoryStore(), pools=POOLS)) as engine:
        watch = a_watch(engine, ScriptedPrices(a_price(0.4), error, error, a_price(0.6, after_s=1)))
        await watch.ask()
        for failures in (1, 2):
            await watch.ask()
            assert watch.status.failures == failures
            assert str(error) in watch.status.error
            assert prices(engine) == {SPOT.offer_id: 0.4}
        await watch.ask()
        assert (watch.status.failures, watch.status.error) == (0, "")
        assert prices(engine) == {SPOT.offer_id: 0.6}


async def test_after_failures_it_waits_longer_each_time_and_never_for_ever() -> None:
    watch = a_watch(an_engine(MemoryStore(), pools=POOLS), ScriptedPrices(*[Transient("no")] * 40))
    assert watch.wait_s() == pytest.approx(300.0, rel=JITTER)
    waits = []
    for _ in range(40):
        await watch.ask()
        waits.append(watch.wait_s())
    assert waits[0] == pytest.approx(FIRST_RETRY_S, rel=JITTER)
    assert waits[3] == pytest.approx(8 * FIRST_RETRY_S, rel=JITTER)
    assert waits[-1] == pytest.approx(LONGEST_RETRY_S, rel=JITTER)
    assert len(set(waits[-5:])) == 5  # pools of one account do not ask together
