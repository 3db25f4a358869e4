"""Prices of the moment, and offers that leave the configuration while machines of them live."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from resolute.ids import SeededIds
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import PoolBelief
from resolute_master.domain.commands import MasterStarted
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, InstanceId, PoolName
from resolute_master.domain.instance import EarlierPrice, Instance
from resolute_master.domain.machines import PriceWord, RecordPrices, RecordStray
from resolute_master.domain.pool import PoolPolicy
from resolute_master.lifecycle import instances, prices
from resolute_master.lifecycle.apply import apply
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.lifecycle.cost import line_of_machine
from resolute_master.lifecycle.ledger import Books
from resolute_master.lifecycle.step import Step
from resolute_master.pools.policies import found_again
from resolute_provisioner.model import Intent, Launch, Market, Observed, Offer, OfferBelief, PoolScaling, ScalePlan
from support.cluster import T0, a_running_allocation, an_agent, an_instance, at

POOL = PoolName("default")


def an_offer(offer_id: str, **changes: Any) -> Offer:
    given: dict[str, Any] = {
        "offer_id": offer_id,
        "instance_type": "t",
        "zone": "z",
        "market": Market.SPOT,
        "slots": 1,
        "region": "here",
    }
    return Offer(**{**given, **changes})


OLD, NEW = an_offer("aws/z/old/spot"), an_offer("aws/z/new/spot")


def a_step(*entities: Any, offers: tuple[Offer, ...] = (NEW,), later_s: float = 0.0) -> Step:
    scaling = PoolScaling(pool=POOL, offers=offers)
    pools = {POOL: PoolPolicy(name=POOL, scaling=scaling)}
    return Step(ClusterState(entities), now=at(later_s), ids=SeededIds(1), sequence=1, pools=pools)


def told(step: Step, price: float, *, offer: Offer = NEW, after_s: float = 0.0) -> None:
    word = PriceWord(offer_id=offer.offer_id, per_hour=price, as_of=T0 + timedelta(seconds=after_s))
    apply(step, RecordPrices(pool=POOL, source="the cloud", prices=(word,)))


def belief(step: Step, offer: Offer = NEW) -> Any:
    return instances.beliefs(step, POOL).get(offer.offer_id)


def test_a_price_is_kept_with_its_source_and_time() -> None:
    step = a_step()
    told(step, 0.4)
    known = belief(step)
    assert (known.price_per_hour, known.price_source, known.price_as_of) == (0.4, "the cloud", T0)


def test_an_older_word_and_one_of_an_offer_that_is_gone_change_nothing() -> None:
    step = a_step()
    told(step, 0.4)
    told(step, 0.2, after_s=-60)
    told(step, 0.1, offer=OLD)
    assert belief(step).price_per_hour == 0.4
    assert belief(step, OLD) is None


def test_a_word_that_is_known_already_is_not_stored_again() -> None:
    step = a_step()
    told(step, 0.4)
    again = Step(ClusterState(step.all(PoolBelief)), now=T0, ids=SeededIds(1), sequence=2, pools=step.pools)
    told(again, 0.4)
    assert again.upserts() == ()
    told(again, 0.5, after_s=1)
    assert [type(each) for each in again.upserts()] == [PoolBelief]


def test_what_was_learnt_of_an_offer_outlives_its_prices() -> None:
    step = a_step()
    told(step, 0.4)
    update = replace(belief(step), launches=3)
    step.put(PoolBelief(id=prices.belief_key(POOL, NEW.offer_id), pool=POOL, belief=update))
    told(step, 0.6, after_s=1)
    assert (belief(step).launches, belief(step).price_per_hour) == (3, 0.6)


def test_a_machine_is_booked_at_the_price_of_the_moment_and_remembers_its_offer() -> None:
    step = a_step()
    told(step, 0.4)
    plan = ScalePlan(launches=(Launch(offer_id=NEW.offer_id, gang_tokens=(), reason="why not"),))
    scaling = step.pools[POOL].scaling
    assert scaling is not None
    instances.apply_plan(step, scaling, plan)
    (machine,) = step.all(Instance)
    assert (machine.price_per_hour, machine.offer) == (0.4, NEW)


# ------------------------------------------------------------------------------------ machines that follow the market


def a_machine(name: str = "m", **changes: Any) -> Instance:
    given = {"offer_id": NEW.offer_id, "offer": NEW, "price_per_hour": 0.4, "paid_from": T0, "launched_at": T0}
    return an_instance(name, **{**given, **changes})


def test_what_lives_on_the_market_costs_what_the_market_asks_from_then_on() -> None:
    step = a_step(a_machine(), later_s=600)
    told(step, 0.6)
    (machine,) = step.all(Instance)
    assert machine.price_per_hour == 0.6
    assert machine.earlier_prices == (EarlierPrice(per_hour=0.4, until=at(600)),)
    assert machine.cost(T0, at(1200)) == pytest.approx((0.4 + 0.6) / 6)


@pytest.mark.parametrize(
    "machine",
    [
        a_machine(offer=replace(NEW, price_is_fixed=True)),
        a_machine(offer=replace(NEW, market=Market.ON_DEMAND)),
        a_machine(offer=None),
        a_machine(offer=OLD, offer_id=OLD.offer_id),
        a_machine(pool=PoolName("other")),
        a_machine(observed=Observed.GONE, paid_until=at(60)),
        a_machine(observed=Observed.GONE, paid_from=None, refused="no capacity"),
        a_machine(price_per_hour=0.6),
    ],
    ids=["fixed", "on demand", "before offers were kept", "another offer", "another pool", "gone", "refused", "known"],
)
def test_what_has_a_price_of_its_own_keeps_it(machine: Instance) -> None:
    step = a_step(machine, later_s=600)
    told(step, 0.6)
    assert step.all(Instance) == (machine,)


def test_an_offer_whose_price_the_operator_has_fixed_meanwhile_moves_nothing() -> None:
    step = a_step(a_machine(), offers=(replace(NEW, price_per_hour=0.1, price_is_fixed=True),), later_s=600)
    told(step, 0.6)
    assert step.need(Instance, InstanceId("m")) == a_machine()


def test_a_price_that_becomes_known_counts_from_then_on() -> None:
    step = a_step(a_machine(price_per_hour=None), later_s=600)
    told(step, 0.6)
    machine = step.need(Instance, InstanceId("m"))
    line = line_of_machine(machine, Books(()), now=at(1200))
    assert line.cost == pytest.approx(0.1)
    assert line.cost_unknown_s == 600.0


def test_what_holds_slots_of_it_pays_the_new_price() -> None:
    machine = a_machine(slots=4, agent_id=AgentId("agent-1"))
    held = replace(a_running_allocation(), price_per_hour=0.1)
    agent = replace(an_agent("agent-1"), instance_id=machine.id)
    step = a_step(machine, agent, held, later_s=600)
    told(step, 0.8)
    assert step.need(Allocation, held.id).price_per_hour == pytest.approx(0.8 / 4 * len(prices.slots_of(held)))


def test_a_gang_pays_on_for_a_machine_that_died_under_it() -> None:
    here = a_machine("m2", agent_id=AgentId("agent-2"))
    gang = replace(a_running_allocation(members=2), price_per_hour=0.8)
    step = a_step(here, replace(an_agent("agent-2"), instance_id=here.id), gang, later_s=600)
    told(step, 0.5)
    assert step.need(Allocation, gang.id).price_per_hour == pytest.approx(0.4 + 0.5)


def test_a_gang_pays_what_a_machine_out_of_contact_costs_now() -> None:
    lost, here = a_machine("m1"), a_machine("m2", agent_id=AgentId("agent-2"))
    gang = replace(a_running_allocation(members=2), price_per_hour=0.8)
    step = a_step(lost, here, replace(an_agent("agent-2"), instance_id=here.id), gang, later_s=600)
    told(step, 0.5)
    assert step.need(Allocation, gang.id).price_per_hour == pytest.approx(1.0)


def test_a_machine_that_is_found_again_costs_what_the_market_asks_since_then() -> None:
    over = a_machine(observed=Observed.GONE, paid_until=at(60), token="t")
    step = a_step(over, later_s=600)
    told(step, 0.6)
    apply(
        step,
        RecordStray(pool=POOL, provider_id="vm", token="t", instance_id=InstanceId("m"), paid_from=T0),
    )
    machine = step.need(Instance, InstanceId("m"))
    assert (machine.price_per_hour, machine.earlier_prices[-1].until) == (0.6, at(600))


def test_a_master_that_starts_lets_machines_follow_what_it_knew_already() -> None:
    """One from before machines followed the market; and one whose configured price is another now."""
    belief = OfferBelief(offer_id=NEW.offer_id, price_per_hour=0.6, price_as_of=T0)
    known = PoolBelief(id=prices.belief_key(POOL, NEW.offer_id), pool=POOL, belief=belief)
    step = a_step(a_machine(), known, later_s=600)
    apply(step, MasterStarted(version="1"))
    assert step.need(Instance, InstanceId("m")).price_per_hour == 0.6
    again = Step(ClusterState(step.all(Instance)), now=at(700), ids=SeededIds(1), sequence=2, pools=a_step().pools)
    apply(again, MasterStarted(version="1"))
    assert again.need(Instance, InstanceId("m")).price_per_hour == 0.6, "a price that is not known any more stays"


# --------------------------------------------------------------------------------------------- offers that left


def started(machine: Instance) -> Instance:
    step = a_step(machine)
    apply(step, MasterStarted(version="1"))
    (found,) = step.all(Instance)
    return found


def test_a_confirmed_machine_of_a_retired_offer_works_on() -> None:
    machine = an_instance(offer_id=OLD.offer_id, offer=OLD, launched_at=T0)
    assert started(machine) == machine


def test_one_that_was_never_confirmed_is_given_back_before_it_comes() -> None:
    asked_for = an_instance(offer_id=OLD.offer_id, offer=OLD, observed=Observed.UNKNOWN)
    found = started(asked_for)
    assert found.intent is Intent.STOP
    assert found.stop_reason == "its offer aws/z/old/spot has left the configuration of the pool"
    wanted = an_instance(offer_id=NEW.offer_id, offer=NEW, observed=Observed.UNKNOWN)
    assert started(wanted).intent is Intent.RUN


@pytest.mark.parametrize(
    ("bought", "known", "found"),
    [
        (OLD, (NEW,), True),
        (OLD, (an_offer("aws/y/new/spot", region="elsewhere"),), False),
        (OLD, (an_offer("gcp/z/new/spot"),), False),
        (an_offer("gcp/z/old/spot"), (an_offer("gcp/y/new/spot", region="elsewhere"),), True),
        (an_offer("local"), (an_offer("local"),), True),
        (OLD, (), False),
    ],
    ids=["another type", "another region of AWS", "another cloud", "another region of GCP", "local", "no provider"],
)
def test_a_machine_is_found_again_where_its_cloud_is_still_asked(
    bought: Offer, known: tuple[Offer, ...], found: bool
) -> None:
    assert found_again(an_instance(offer_id=bought.offer_id, offer=bought), known) is found


def test_a_machine_from_before_offers_were_kept_needs_its_offer() -> None:
    assert found_again(an_instance(offer_id=OLD.offer_id), (OLD,))
    assert not found_again(an_instance(offer_id=OLD.offer_id), (NEW,))
