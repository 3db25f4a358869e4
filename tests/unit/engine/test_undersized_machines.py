"""A machine that joins with fewer slots than its offer promises: a broken device, a missing driver, a wrong configuration."""

from __future__ import annotations

import pytest

from resolute.clock import FixedClock
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import PoolBelief
from resolute_master.domain.commands import RecordObservation
from resolute_master.domain.instance import Instance
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine.engine import Engine
from resolute_master.store.memory import MemoryStore
from resolute_provisioner import risk
from resolute_provisioner.model import Intent, Market, Observed, Offer, OfferBelief, PoolScaling
from support.cluster import T0
from support.engines import DEFAULT, AgentByHand, a_config, a_user, an_engine, an_experiment, launched, running


def _offer(name: str, price: float) -> Offer:
    return Offer(
        offer_id=name, instance_type=name, zone="z", market=Market.ON_DEMAND, slots=8, price_per_hour=price, family=name
    )


async def _joins(engine: Engine, clock: FixedClock, brought: int) -> Instance:
    """The next machine that is asked for starts, and its agent finds so many slots."""
    with engine.watch("", "") as watch:
        while not (wanted := [i for i in engine.state.all(Instance) if i.joined_at is None and i.intent is Intent.RUN]):
            assert await watch.changed(10.0)
    (machine,) = wanted
    clock.advance(5.0)
    await launched(engine, machine, clock.now())
    await AgentByHand(engine, machine.id, slots=brought, instance=machine.id).register()
    return machine


def _belief(engine: Engine, offer: str) -> OfferBelief:
    return next(known.belief for known in engine.state.all(PoolBelief) if known.belief.offer_id == offer)


def _an_engine(clock: FixedClock, *offers: Offer) -> Engine:
    scaling = PoolScaling(pool="default", offers=offers, max_instances=3)
    return an_engine(MemoryStore(), pools={DEFAULT: PoolPolicy(name=DEFAULT, scaling=scaling)}, clock=clock)


@pytest.mark.parametrize(("brought", "single_node"), [(7, False), (4, True), (0, False)])
async def test_the_next_offer_is_asked_when_a_machine_does_not_hold_what_it_is_for(
    brought: int, single_node: bool
) -> None:
    clock = FixedClock(T0)
    async with running(_an_engine(clock, _offer("cheap", 1.0), _offer("dear", 2.0))) as engine:
        await an_experiment(engine, await a_user(engine), a_config(slots=8, is_single_node=single_node))
        assert (await _joins(engine, clock, brought)).offer_id == "cheap"
        assert (await _joins(engine, clock, 8)).offer_id == "dear"
        (allocation,) = engine.state.all(Allocation)
        assert allocation.assigned_at is not None
        block = risk.block(_belief(engine, "cheap"), clock.now())
        assert block is not None
        assert block.reason == f"the last machine joined with {brought} of 8 slots, fewer than its offer has"


async def test_each_machine_in_a_row_that_is_too_small_makes_the_next_one_wait_longer() -> None:
    clock = FixedClock(T0)
    async with running(_an_engine(clock, _offer("only", 1.0))) as engine:
        await an_experiment(engine, await a_user(engine), a_config(slots=8))
        waits_s = []
        for _ in range(3):
            await _joins(engine, clock, 7)
            until = _belief(engine, "only").boot_backoff_until
            assert until is not None
            waits_s.append((until - clock.now()).total_seconds())
            clock.advance(waits_s[-1])
            for machine in engine.state.all(Instance):
                await _is_gone(engine, machine)
        assert waits_s[0] * 2 == waits_s[1] and waits_s[1] * 2 == waits_s[2]


async def _is_gone(engine: Engine, machine: Instance) -> None:
    assert machine.intent is Intent.STOP, "it is of no use"
    await engine.submit(
        RecordObservation(
            instance=machine.id,
            provider_id=machine.id,
            observed=Observed.GONE,
            paid_from=None,
            paid_until=None,
            message="",
            refusal=None,
        )
    )


@pytest.mark.parametrize("slots", [0, 1, 7])
async def test_what_holds_its_work_all_the_same_is_no_failure(slots: int) -> None:
    clock = FixedClock(T0)
    async with running(_an_engine(clock, _offer("only", 1.0))) as engine:
        await an_experiment(engine, await a_user(engine), a_config(slots=slots))
        await _joins(engine, clock, 7)
        with engine.watch("", "") as watch:
            while any(a.assigned_at is None for a in engine.state.all(Allocation)):
                assert await watch.changed(10.0)
        belief = _belief(engine, "only")
        assert belief.consecutive_boot_failures == 0 and risk.block(belief, clock.now()) is None
