"""What `plan_scale` promises for every pool, whatever its machines and its work look like."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from resolute.wire.states import NoticeKind
from resolute_provisioner.model import (
    Cause,
    Demand,
    Gang,
    InstanceNotice,
    InstanceView,
    Intent,
    Market,
    Observed,
    OfferBelief,
    PoolScaling,
    Termination,
)
from resolute_provisioner.planning.markets import REPLACEMENT_PREFIX
from resolute_provisioner.planning.plan import plan_scale
from resolute_provisioner.planning.standing import judge
from support.effort import examples
from support.provisioner import NOW, ago, an_offer

QUICK = settings(max_examples=examples(150))

moments = st.sampled_from([5.0, 20.0, 60.0, 500.0, 4000.0]).map(ago)
maybe_moments = st.none() | moments


@st.composite
def pools(draw: st.DrawFn) -> PoolScaling:
    sizes = draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    prices = st.none() | st.sampled_from([0.5, 1.0, 2.5])
    offers = tuple(
        replace(an_offer(f"offer-{index}", slots=size, price=draw(prices)), market=draw(st.sampled_from(Market)))
        for index, size in enumerate(sizes)
    )
    high = draw(st.integers(1, 6))
    return PoolScaling(
        pool="p",
        offers=offers,
        min_instances=draw(st.integers(0, high)),
        max_instances=high,
        idle_timeout_s=300.0,
        boot_timeout_s=120.0,
        max_aux_per_instance=draw(st.integers(0, 2)),
    )


@st.composite
def machines(draw: st.DrawFn, pool: PoolScaling, index: int) -> InstanceView:
    offer = draw(st.sampled_from(pool.offers))
    has_joined = draw(st.booleans())
    used = draw(st.integers(0, offer.slots)) if has_joined else 0
    # Slots that were closed while work ran on them.
    closed = draw(st.sampled_from([0, 0, 1])) if used else 0
    connected = has_joined and draw(st.integers(0, 4)) > 0
    notice = None
    if has_joined and draw(st.integers(0, 4)) == 0:
        deadline = draw(st.none() | st.sampled_from([-90.0, 30.0]).map(lambda s: NOW + timedelta(seconds=s)))
        notice = InstanceNotice(kind=draw(st.sampled_from(NoticeKind)), deadline=deadline)
    return InstanceView(
        instance_id=f"i-{index}",
        token=f"t-{index}",
        offer_id=offer.offer_id,
        slots=offer.slots - closed,
        intent=draw(st.sampled_from([Intent.RUN, Intent.RUN, Intent.RUN, Intent.STOP])),
        observed=draw(st.sampled_from(Observed)),
        requested_at=draw(moments),
        launched_at=draw(maybe_moments),
        joined_at=draw(moments) if has_joined else None,
        agent_connected=connected,
        disconnected_since=draw(moments) if has_joined and not connected else None,
        slots_in_use=used,
        closed_slots_in_use=closed,
        occupants=(f"g-{index}",) if used and draw(st.booleans()) else (),
        idle_since=draw(moments) if has_joined and not used else None,
        notice=notice,
        draining_since=draw(st.none() | st.none() | moments),
        reserved_for=(f"g-{draw(st.integers(0, 7))}",) if draw(st.booleans()) else (),
    )


@st.composite
def gangs(draw: st.DrawFn, index: int) -> Gang:
    return Gang(
        token=f"g-{index}",
        slots=draw(st.integers(0, 8)),
        submitted_at=draw(moments),
        single_machine=draw(st.booleans()),
        slots_per_machine=draw(st.none() | st.none() | st.integers(1, 3)),
        priority=draw(st.sampled_from([1, 42])),
        excluded_instances=frozenset(draw(st.sets(st.sampled_from(["i-0", "i-1"]), max_size=1))),
        markets=draw(st.sampled_from([frozenset(Market), frozenset(Market), frozenset({Market.ON_DEMAND})])),
    )


@st.composite
def beliefs(draw: st.DrawFn, offer_id: str) -> OfferBelief:
    until = draw(st.none() | st.sampled_from([-1.0, 7.0]).map(lambda s: NOW + timedelta(seconds=s)))
    wrong = "no such image" if draw(st.integers(0, 6)) == 0 else ""
    return OfferBelief(
        offer_id=offer_id,
        backoff_until=until,
        misconfigured=wrong,
        consecutive_refusals=draw(st.sampled_from([0, 0, 1, 3])) if until is None else 1,
        gang_backoff_until=draw(st.none() | st.none() | st.just(NOW + timedelta(seconds=40))),
        partial_gangs=1,
    )


World = tuple[PoolScaling, list[InstanceView], list[Gang], dict[str, OfferBelief]]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    pool = draw(pools())
    instances = [draw(machines(pool, index)) for index in range(draw(st.integers(0, 6)))]
    work = [draw(gangs(index)) for index in range(draw(st.integers(0, 6)))]
    known = {offer.offer_id: draw(beliefs(offer.offer_id)) for offer in pool.offers if draw(st.booleans())}
    return pool, instances, work, known


def alive(instances: list[InstanceView]) -> list[InstanceView]:
    return [each for each in instances if each.observed is not Observed.GONE]


@QUICK
@given(worlds(), st.randoms(use_true_random=False))
def test_same_input_in_any_order_gives_the_same_plan(world: World, shuffler: random.Random) -> None:
    pool, instances, work, known = world
    first = plan_scale(pool, instances, Demand(gangs=tuple(work)), known, NOW)
    shuffler.shuffle(instances)
    shuffler.shuffle(work)
    reordered = dict(reversed(known.items()))
    assert plan_scale(pool, instances, Demand(gangs=tuple(work)), reordered, NOW) == first


@QUICK
@given(worlds())
def test_machines_that_no_rule_judges_are_in_order(world: World) -> None:
    """Each is in one list; of a pool that is over its maximum all are judged, and then these are found to stay and take work."""
    pool, instances, _, _ = world
    fleet = judge(pool, instances, NOW)
    assert sorted(view.instance_id for view in fleet.views()) == sorted(each.instance_id for each in alive(instances))
    judged = {each.view.instance_id: each for each in judge(replace(pool, max_instances=-1), instances, NOW).others}
    assert len(judged) == len(alive(instances))
    for view in (*fleet.full, *fleet.open):
        standing = judged[view.instance_id]
        assert standing.staying and standing.capacity and standing.counts and not standing.suspect
    assert all(view.occupied and view.free_slots == 0 and view.idle_since is None for view in fleet.full)
    assert all(view.free_slots > 0 or not view.slots_in_use for view in fleet.open if view.idle_since is None)


@QUICK
@given(worlds())
def test_limits_hold(world: World) -> None:
    pool, instances, work, known = world
    plan = plan_scale(pool, instances, Demand(gangs=tuple(work)), known, NOW)
    living = alive(instances)
    under_notice = [each for each in living if each.notice is not None]
    if plan.launches:
        assert len(living) - len(under_notice) + len(plan.launches) <= pool.max_instances
    named = [each.instance_id for each in plan.terminations]
    assert len(named) == len(set(named)) and set(named) <= {each.instance_id for each in living}
    by_id = {each.instance_id: each for each in living}
    assert all(by_id[name].intent is Intent.RUN for name in named)

    staying = [
        each
        for each in living
        if each.intent is Intent.RUN
        and each.observed is not Observed.STOPPING
        and each.notice is None
        and each.draining_since is None
    ]
    causes = {each.cause for each in plan.terminations}
    if causes & {Cause.IDLE, Cause.MAKE_ROOM}:
        kept = {each.instance_id for each in staying} - set(named)
        making_room = [each for each in plan.terminations if each.cause is Cause.MAKE_ROOM]
        broken = {each.instance_id for each in plan.terminations if each.cause in (Cause.NEVER_JOINED, Cause.LOST)}
        healthy = {each.instance_id for each in staying} - broken
        # Only work that the machines cannot serve takes their place, one for one; what is bought meanwhile is for work, too.
        assert len(kept) + len(making_room) >= min(pool.min_instances, len(healthy))
        assert work or not making_room
        assert len(kept) >= pool.min_instances or all(each.gang_tokens for each in plan.launches)
    for each in plan.terminations:
        view = by_id[each.instance_id]
        # Nobody's work is cut off while its machine is healthy.
        if view.occupied and not each.drain:
            assert each.cause in (Cause.LOST, Cause.NOTICE, Cause.DRAINED)
    assert plan.revisit_at is None or plan.revisit_at > NOW


@QUICK
@given(worlds())
def test_gangs_are_bought_whole_and_from_offers_that_may_be_asked(world: World) -> None:
    pool, instances, work, known = world
    plan = plan_scale(pool, instances, Demand(gangs=tuple(work)), known, NOW)
    offers = {offer.offer_id: offer for offer in pool.offers}
    by_token = {gang.token: gang for gang in work}
    for launch in plan.launches:
        belief = known.get(launch.offer_id)
        assert belief is None or not belief.misconfigured
        assert belief is None or belief.backoff_until is None or belief.backoff_until <= NOW
        assert launch.gang_tokens or pool.min_instances > 0
        demanded = sum(
            by_token[token].slots
            for token in launch.gang_tokens
            if token in by_token and by_token[token].slots <= offers[launch.offer_id].slots
        )
        if not any(gang.slots_per_machine for gang in work):
            assert demanded <= offers[launch.offer_id].slots
    bought = Counter(token for launch in plan.launches for token in launch.gang_tokens)
    for launch in plan.launches:
        assert all(offers[launch.offer_id].market in by_token[t].markets for t in launch.gang_tokens if t in by_token)
    for offer_id, count in Counter(launch.offer_id for launch in plan.launches).items():
        assert count == 1 or not known.get(offer_id, OfferBelief(offer_id=offer_id)).consecutive_refusals
    for token, count in bought.items():
        gang = by_token.get(token)
        assert count == 1 or all(
            known.get(each.offer_id, OfferBelief(offer_id=each.offer_id)).gang_backoff_until is None
            for each in plan.launches
            if token in each.gang_tokens
        )
        if gang is None:
            assert token.startswith(REPLACEMENT_PREFIX) and count == 1
        elif gang.single_machine:
            assert count == 1
    unserved = {each.subject for each in plan.notes if "waits for" not in each.text}
    assert not unserved & set(bought)


def carried(each: InstanceView, order: Termination | None) -> InstanceView:
    """A request that is withdrawn before the cloud has answered stays without an answer."""
    if order is None:
        return each
    if order.drain:
        return replace(each, draining_since=NOW)
    unanswered = each.observed is Observed.UNKNOWN and each.launched_at is None
    ending = each.observed if unanswered else max(each.observed, Observed.STOPPING, key=lambda o: o.order)
    return replace(each, intent=Intent.STOP, observed=ending)


@QUICK
@given(worlds())
def test_carrying_out_a_plan_asks_for_nothing_more(world: World) -> None:
    """The machines of one plan absorb the work of the next: nothing is bought twice for the same demand."""
    pool, instances, work, known = world
    plan = plan_scale(pool, instances, Demand(gangs=tuple(work)), known, NOW)
    slots = {offer.offer_id: offer.slots for offer in pool.offers}
    ended = {each.instance_id: each for each in plan.terminations}
    carried_out = [carried(each, ended.get(each.instance_id)) for each in instances]
    new = [
        InstanceView(
            instance_id=f"n-{index}",
            token=f"n-{index}",
            offer_id=launch.offer_id,
            slots=slots[launch.offer_id],
            intent=Intent.RUN,
            observed=Observed.UNKNOWN,
            requested_at=NOW,
            reserved_for=launch.gang_tokens,
        )
        for index, launch in enumerate(plan.launches)
    ]
    again = plan_scale(pool, [*carried_out, *new], Demand(gangs=tuple(work)), known, NOW)
    # What the pool keeps as its minimum may complete a gang that could not be bought whole, and that takes others' places.
    minimum = [each for each in plan.launches if not each.gang_tokens]
    unserved = {gang.token for gang in work} - {token for each in plan.launches for token in each.gang_tokens}
    assert not again.launches or (minimum and unserved)
    later = {Cause.MAKE_ROOM}
    if pool.min_instances and plan.launches:
        later |= {Cause.UNWANTED, Cause.STRANDED}  # it was the minimum until what was launched is
    assert not [each for each in again.terminations if each.cause not in later]


@QUICK
@given(worlds())
def test_every_gang_is_served_or_told_why_not(world: World) -> None:
    pool, instances, work, known = world
    plan = plan_scale(pool, instances, Demand(gangs=tuple(work)), known, NOW)
    told = {each.subject for each in plan.notes} | {token for each in plan.launches for token in each.gang_tokens}
    connected_free = [each for each in alive(instances) if each.joined_at is not None and each.intent is Intent.RUN]
    if not connected_free:
        assert {gang.token for gang in work} <= told


def test_a_long_outage_of_every_offer_is_revisited() -> None:
    pool = PoolScaling(pool="p", offers=(an_offer(),))
    later: datetime = NOW + timedelta(hours=3)
    known = {"small": OfferBelief(offer_id="small", backoff_until=later)}
    gang = Gang(token="g", slots=1, submitted_at=NOW)
    assert plan_scale(pool, (), Demand(gangs=(gang,)), known, NOW).revisit_at == later
