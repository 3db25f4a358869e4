"""Which markets waiting work is given, and what is moved between them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from resolute_provisioner.model import (
    Cause,
    Demand,
    Disruption,
    Gang,
    InstanceView,
    Intent,
    Market,
    Observed,
    Offer,
    OfferBelief,
    PoolScaling,
    SpotFallback,
    Window,
)
from resolute_provisioner.planning.deadline import ANY, MARGIN_S, MARGIN_SHARE, ON_DEMAND, SPOT, Work
from resolute_provisioner.planning.markets import (
    MOVE_PREFIX,
    REPLACEMENT_PREFIX,
    SETTLE_S,
    MarketPlan,
    Running,
    Waiting,
    plan_markets,
)
from resolute_provisioner.planning.plan import plan_scale
from support.provisioner import NOW, a_pool, after, ago, an_offer, joined, starting

HOUR = 3600.0


def offers(*, spot: float | None = 0.3, on_demand: float | None = 1.0) -> tuple[Offer, Offer]:
    return an_offer("spot", price=spot), replace(an_offer("firm", price=on_demand), market=Market.ON_DEMAND)


def pool(fallback: SpotFallback | None = None, **prices: float | None) -> PoolScaling:
    return replace(a_pool(*offers(**prices)), spot_fallback=fallback or SpotFallback())


def gang(token: str = "a", slots: int = 2) -> Gang:
    return Gang(token=token, slots=slots, submitted_at=ago(10), single_machine=True)


def plan(
    pool_: PoolScaling,
    *,
    waiting: Waiting | None = None,
    running: tuple[Running, ...] = (),
    instances: tuple[InstanceView, ...] = (),
    beliefs: dict[str, OfferBelief] | None = None,
) -> MarketPlan:
    demand = Demand(gangs=(gang(),) if waiting is not None else ())
    known = {} if waiting is None else {waiting.token: waiting}
    return plan_markets(pool_, instances, demand, known, running, beliefs or {}, NOW)


def markets_of(found: MarketPlan, token: str = "a") -> frozenset[Market]:
    (markets,) = [each.markets for each in found.demand.gangs if each.token == token]
    return markets


def relaxed(**changes: float | None) -> Work:
    """Far ahead of its line."""
    known = {"remaining_s": HOUR, "restart_s": 200.0, **changes}
    return Work(submitted_at=NOW, deadline=after(20 * HOUR), **known)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------- waiting


def test_a_deadline_far_away_waits_for_spot_and_a_near_one_does_not() -> None:
    far = Waiting(token="a", since=NOW, work=relaxed())
    near = replace(far, work=replace(relaxed(), deadline=after(HOUR)))
    assert markets_of(plan(pool(), waiting=far)) == SPOT
    assert markets_of(plan(pool(), waiting=near)) == ON_DEMAND


def backing_off(offer_id: str, seconds: float) -> OfferBelief:
    return OfferBelief(offer_id=offer_id, backoff_until=after(seconds), consecutive_refusals=1)


def test_work_that_must_be_on_demand_takes_spot_rather_than_wait_for_on_demand_to_be_asked_for_again() -> None:
    near = Waiting(token="a", since=NOW, work=relaxed(remaining_s=19.9 * HOUR))
    assert markets_of(plan(pool(), waiting=near)) == ON_DEMAND
    refused = plan(pool(), waiting=near, beliefs={"firm": backing_off("firm", 30)})
    assert markets_of(refused) == ANY and refused.revisit_at == after(30)
    neither = {each: backing_off(each, 30) for each in ("firm", "spot")}
    assert markets_of(plan(pool(), waiting=near, beliefs=neither)) == ON_DEMAND


def asked_of(offer: str, *, asked_s: float, name: str = "m", reserved_for: tuple[str, ...] = ("a",)) -> InstanceView:
    """A machine that was asked for, and of which the cloud has said nothing yet."""
    view = starting(name, asked_s=asked_s, reserved_for=reserved_for)
    return replace(view, offer_id=offer, observed=Observed.UNKNOWN)


@pytest.mark.parametrize(("asked_s", "bought"), [(60.0, ["spot"]), (5.0, [])])
def test_an_offer_that_lets_its_one_request_wait_is_not_waited_for(asked_s: float, bought: list[str]) -> None:
    """What the choice of a market counts as to be had is what may be bought."""
    near = Waiting(token="b", since=NOW, work=relaxed(remaining_s=19.9 * HOUR))
    refused = {"firm": OfferBelief(offer_id="firm", consecutive_refusals=1, backoff_until=ago(61))}
    probe = (asked_of("firm", asked_s=asked_s),)
    work = Demand(gangs=(gang("a"), gang("b")))
    found = plan_markets(pool(), probe, work, {"b": near}, (), refused, NOW)
    scale = plan_scale(pool(), found.instances, found.demand, refused, NOW)
    assert [each.offer_id for each in scale.launches] == bought
    assert markets_of(found, "b") == (ANY if bought else ON_DEMAND)


@pytest.mark.parametrize("spare_s", [-100.0, 100.0, None])
def test_the_machine_on_its_way_is_kept_to_unless_an_interruption_would_cost_the_deadline(
    spare_s: float | None,
) -> None:
    """Spot was taken while nothing on demand could be asked for; then that may be asked again."""
    hours = 10 * HOUR
    remaining_s = None if spare_s is None else hours
    left_s = hours + max(MARGIN_S, MARGIN_SHARE * hours) + 200.0 + (spare_s or 0.0)
    work = replace(relaxed(), remaining_s=remaining_s, deadline=after(left_s))
    near, coming = Waiting(token="a", since=NOW, work=work), (asked_of("spot", asked_s=3.0),)
    assert markets_of(plan(pool(), waiting=near)) == ON_DEMAND
    found = plan(pool(), waiting=near, instances=coming)
    scale = plan_scale(pool(), found.instances, found.demand, {}, NOW)
    if spare_s is not None and spare_s < 0:
        assert markets_of(found) == ON_DEMAND and [each.offer_id for each in scale.launches] == ["firm"]
    else:
        assert markets_of(found) == ANY and scale.launches == ()
        assert found.revisit_at == (None if spare_s is None else after(spare_s))


@pytest.mark.parametrize(
    "change",
    [
        {"reserved_for": ("b",)},
        {"slots": 1},
        {"slots_in_use": 1},
        {"disabled": True},
        {"intent": Intent.STOP},
        {"offer_id": "gone"},
        {"observed": Observed.GONE},
    ],
    ids=str,
)
def test_a_machine_that_does_not_come_for_the_work_keeps_it_from_nothing(change: dict[str, object]) -> None:
    near = Waiting(token="a", since=NOW, work=relaxed(remaining_s=None))
    unfit = replace(asked_of("spot", asked_s=3.0), **change)  # type: ignore[arg-type]
    assert markets_of(plan(pool(), waiting=near, instances=(unfit,))) == ON_DEMAND


@pytest.mark.parametrize("machines", [1, 2])
def test_a_gang_is_kept_to_its_machines_on_spot_when_all_of_them_come(machines: int) -> None:
    near = Waiting(token="a", since=NOW, work=relaxed(remaining_s=None))
    wide = Demand(gangs=(Gang(token="a", slots=4, submitted_at=ago(10)),))
    coming = tuple(asked_of("spot", asked_s=3.0, name=f"m{number}") for number in range(machines))
    found = plan_markets(pool(), coming, wide, {"a": near}, (), {}, NOW)
    assert markets_of(found) == (ANY if machines == 2 else ON_DEMAND)


@pytest.mark.parametrize("of", ["i-1", "i-2"])
def test_a_replacement_on_its_way_is_not_bought_again_on_demand(of: str) -> None:
    """One machine of a gang of two."""
    noticed = joined("i-1", used=2, notice_s=100, occupants=("a",), offer="spot")
    wide = Gang(token="a", slots=4, submitted_at=ago(10))
    work = relaxed(remaining_s=None)
    both = Running(gang=wide, machines=("i-0", "i-1"), market=Market.SPOT, since=ago(HOUR), work=work, leaving=True)
    coming = asked_of("spot", asked_s=3.0, reserved_for=(REPLACEMENT_PREFIX + of,))
    found = plan(pool(), running=(both,), instances=(noticed, coming))
    markets = {each.instance_id: each.successor_markets for each in found.instances}
    assert markets["i-1"] == (ANY if of == "i-1" else ON_DEMAND)


@pytest.mark.parametrize("token", ["a", "b"])
def test_a_machine_on_demand_that_comes_for_the_work_is_not_bought_again_on_spot(token: str) -> None:
    """It was asked for when the deadline was near; since then more is known."""
    far = Waiting(token="a", since=NOW, work=relaxed())
    found = plan(pool(), waiting=far, instances=(asked_of("firm", asked_s=3.0, reserved_for=(token,)),))
    scale = plan_scale(pool(), found.instances, found.demand, {}, NOW)
    assert markets_of(found) == (ANY if token == "a" else SPOT)
    assert [each.offer_id for each in scale.launches] == ([] if token == "a" else ["spot"])


def test_several_machines_are_asked_of_spot_where_on_demand_gives_only_some_of_a_gang() -> None:
    near = Waiting(token="a", since=NOW, work=relaxed(remaining_s=19.9 * HOUR))
    wide = Demand(gangs=(Gang(token="a", slots=4, submitted_at=ago(10)),))
    partial = OfferBelief(offer_id="firm", gang_backoff_until=after(60), partial_gangs=1)
    found = plan_markets(pool(), (), wide, {"a": near}, (), {"firm": partial}, NOW)
    assert markets_of(found) == ANY and found.revisit_at == after(60)
    one = plan(pool(), waiting=near, beliefs={"firm": partial})
    assert markets_of(one) == ON_DEMAND


def test_a_replacement_is_bought_on_spot_where_on_demand_is_left_alone() -> None:
    near = relaxed(remaining_s=19.9 * HOUR)
    noticed = joined("i-1", used=2, notice_s=100, occupants=("a",), offer="spot")
    runs = Running(gang=gang(), machines=("i-1",), market=Market.SPOT, since=ago(HOUR), work=near, leaving=True)
    refused = plan(pool(), running=(runs,), instances=(noticed,), beliefs={"firm": backing_off("firm", 30)})
    assert refused.instances[0].successor_markets == ANY
    granted = plan(pool(), running=(runs,), instances=(noticed,))
    assert granted.instances[0].successor_markets == ON_DEMAND


@pytest.mark.parametrize("most", [5, 3])
def test_a_market_whose_machines_cannot_hold_the_work_is_not_waited_for(most: int) -> None:
    """Four whole machines of two slots on demand: where three are the most, only spot remains, however near the deadline is."""
    spot, firm = offers()
    pool_ = replace(a_pool(replace(spot, slots=4), replace(firm, slots=2)), max_instances=most)
    eight = replace(gang(slots=8), single_machine=False)
    near = Waiting(token="a", since=NOW, work=replace(relaxed(), deadline=after(HOUR)))
    found = plan_markets(pool_, (), Demand(gangs=(eight,)), {"a": near}, (), {}, NOW)
    assert markets_of(found) == (ON_DEMAND if most == 5 else ANY)
    assert plan_scale(pool_, (), found.demand, {}, NOW).launches != ()


@pytest.mark.parametrize("most", [5, 4])
def test_where_other_machines_leave_no_room_the_work_takes_them(most: int) -> None:
    """It takes two spot machines that are idle for work behind it. Otherwise each would wait for the other."""
    spot, firm = offers()
    pool_ = replace(a_pool(replace(spot, slots=1), replace(firm, slots=1)), max_instances=most)
    idle = (joined("m1", slots=1, offer="spot"), joined("m2", slots=1, offer="spot"))
    three = replace(gang(slots=3), single_machine=False)
    near = Waiting(token="a", since=NOW, work=replace(relaxed(), deadline=after(HOUR)))
    found = plan_markets(pool_, idle, Demand(gangs=(three,)), {"a": near}, (), {}, NOW)
    assert markets_of(found) == (ON_DEMAND if most == 5 else ANY)


@pytest.mark.parametrize(
    ("closed", "markets"),
    [({}, SPOT), ({"disabled": True}, ANY), ({"slots": 0}, ANY)],
    ids=["open", "disabled", "no slots"],
)
def test_a_machine_that_takes_no_work_is_no_room_to_wait_for(
    closed: dict[str, Any], markets: frozenset[Market]
) -> None:
    """A full pool of one machine on spot and one on demand, which idles."""
    there = (replace(joined("m1", offer="spot", used=2), **closed), joined("m2", offer="firm"))
    patient = replace(pool(SpotFallback(after_s=600.0)), max_instances=2)
    assert markets_of(plan(patient, waiting=Waiting(token="a", since=NOW), instances=there)) == markets


@pytest.mark.parametrize(("spot", "on_demand"), [(None, 1.0), (1.0, 1.0), (1.2, 1.0), (None, None)])
def test_nothing_waits_for_spot_that_is_not_known_to_be_cheaper(spot: float | None, on_demand: float | None) -> None:
    far = Waiting(token="a", since=NOW, work=relaxed())
    policy = SpotFallback(after_s=600.0)
    assert markets_of(plan(pool(spot=spot, on_demand=on_demand), waiting=far)) == ANY
    assert markets_of(plan(pool(policy, spot=spot, on_demand=on_demand), waiting=replace(far, work=None))) == ANY


def test_the_price_of_the_moment_counts_and_not_that_of_the_table() -> None:
    dear = {"spot": OfferBelief(offer_id="spot", price_per_hour=1.5, price_as_of=NOW)}
    waiting = Waiting(token="a", since=NOW, work=relaxed())
    assert markets_of(plan(pool(), waiting=waiting, beliefs=dear)) == ANY


def test_a_pool_of_one_market_serves_every_deadline_with_it() -> None:
    only_spot = a_pool(offers()[0])
    near = Waiting(token="a", since=NOW, work=replace(relaxed(), deadline=after(HOUR)))
    assert markets_of(plan(only_spot, waiting=near)) == ANY


def test_without_a_deadline_the_pool_says_how_long_to_wait_for_spot() -> None:
    patient = pool(SpotFallback(after_s=600.0))
    waiting = Waiting(token="a", since=ago(599))
    found = plan(patient, waiting=waiting)
    assert markets_of(found) == SPOT
    assert found.revisit_at == after(1)
    assert markets_of(plan(patient, waiting=replace(waiting, since=ago(600)))) == ANY
    assert markets_of(plan(pool(), waiting=waiting)) == ANY, "by default nothing waits"


# --------------------------------------------------------------------------------------------------------------- moves


def runs(market: Market = Market.ON_DEMAND, *, work: Work | None = None, since_s: float = 1000.0) -> Running:
    return Running(gang=gang("r"), machines=("old",), market=market, since=ago(since_s), work=work)


OLD = joined("old", used=2, occupants=("r",), offer="firm")
NEW = replace(joined("new", offer="spot"), reserved_for=(MOVE_PREFIX + "r",))


def test_a_return_to_spot_asks_for_the_machine_first_and_then_drains_the_old_one() -> None:
    asked = plan(pool(), running=(runs(work=relaxed()),), instances=(OLD,))
    assert markets_of(asked, MOVE_PREFIX + "r") == SPOT
    assert asked.drains == ()

    there = plan(pool(), running=(runs(work=relaxed()),), instances=(OLD, NEW))
    (drain,) = there.drains
    assert (drain.instance_id, drain.cause, drain.drain) == ("old", Cause.OTHER_MARKET, True)
    assert "spare time before the deadline" in drain.reason


@pytest.mark.parametrize(
    "unfit",
    [
        pytest.param(replace(NEW, agent_connected=False), id="not joined"),
        pytest.param(replace(NEW, slots_in_use=1), id="in use"),
        pytest.param(replace(NEW, slots=1), id="too small"),
        pytest.param(replace(NEW, offer_id="firm"), id="of the same market"),
        pytest.param(replace(NEW, draining_since=NOW), id="leaving"),
    ],
)
def test_nothing_is_drained_for_a_machine_that_does_not_take_the_work(unfit: InstanceView) -> None:
    assert plan(pool(), running=(runs(work=relaxed()),), instances=(OLD, unfit)).drains == ()


def test_one_free_machine_moves_one_gang() -> None:
    second = replace(runs(work=relaxed()), gang=gang("s"), machines=("older",))
    found = plan(pool(), running=(runs(work=relaxed()), second), instances=(OLD, NEW))
    assert [drain.instance_id for drain in found.drains] == ["old"]


def test_while_the_work_saves_the_new_machine_is_kept_and_nothing_is_drained_twice() -> None:
    leaving = replace(runs(work=relaxed()), leaving=True)
    found = plan(pool(), running=(leaving,), instances=(replace(OLD, draining_since=NOW), NEW))
    assert found.drains == ()
    assert markets_of(found, MOVE_PREFIX + "r") == SPOT


def test_what_was_placed_on_demand_just_now_is_left_there_for_a_while() -> None:
    found = plan(pool(), running=(runs(work=relaxed(), since_s=SETTLE_S - 1),), instances=(OLD, NEW))
    assert (found.demand.gangs, found.drains, found.revisit_at) == ((), (), after(1))


def test_a_deadline_that_an_interruption_would_cost_leaves_spot() -> None:
    tight = replace(relaxed(), deadline=after(HOUR + 200))
    found = plan(pool(), running=(runs(Market.SPOT, work=tight),), instances=(replace(OLD, offer_id="spot"),))
    assert markets_of(found, MOVE_PREFIX + "r") == ON_DEMAND


def test_without_a_deadline_the_pool_says_when_to_return() -> None:
    back = pool(SpotFallback(return_after_s=600.0))
    assert plan(pool(), running=(runs(since_s=9999.0),)).demand.gangs == (), "by default nothing moves"
    early = plan(back, running=(runs(since_s=599.0),))
    assert early.demand.gangs == ()
    assert early.revisit_at == NOW + timedelta(seconds=1)
    assert markets_of(plan(back, running=(runs(since_s=600.0),)), MOVE_PREFIX + "r") == SPOT


NIGHT = Disruption(windows=(Window(weekdays=frozenset(range(7)), start_s=20 * HOUR, end_s=6 * HOUR),))
"""Not now: it is noon."""


def under(disruption: Disruption) -> PoolScaling:
    return replace(pool(), disruption=disruption)


def disturbed(*seconds_ago: float) -> dict[str, OfferBelief]:
    return {"firm": OfferBelief(offer_id="firm", disturbed_at=tuple(ago(each) for each in seconds_ago))}


def test_outside_of_the_windows_nothing_returns_to_spot_and_nothing_is_asked_for() -> None:
    found = plan(under(NIGHT), running=(runs(work=relaxed()),), instances=(OLD, NEW))
    assert (found.demand.gangs, found.drains) == ((), ())
    assert found.revisit_at == after(8 * HOUR)


def test_a_deadline_leaves_spot_at_any_time() -> None:
    tight = replace(relaxed(), deadline=after(HOUR + 200))
    ready = replace(NEW, offer_id="firm")
    for rule in (NIGHT, Disruption(max_per_hour=0)):
        on_spot = runs(Market.SPOT, work=tight)
        found = plan(under(rule), running=(on_spot,), instances=(replace(OLD, offer_id="spot"), ready))
        assert markets_of(found, MOVE_PREFIX + "r") == ON_DEMAND
        assert [drain.instance_id for drain in found.drains] == ["old"]


def test_work_that_has_begun_to_leave_keeps_its_new_machine_when_the_window_ends() -> None:
    leaving = replace(runs(work=relaxed()), leaving=True)
    found = plan(under(NIGHT), running=(leaving,), instances=(replace(OLD, draining_since=NOW), NEW))
    assert markets_of(found, MOVE_PREFIX + "r") == SPOT


def test_returns_keep_to_the_rate_with_all_that_was_moved_in_the_hour() -> None:
    twice = under(Disruption(max_per_hour=2))
    others = tuple(replace(runs(work=relaxed()), gang=gang(name), machines=(f"old-{name}",)) for name in "pqr")
    moving = {each.token for each in plan(twice, running=others).demand.gangs}
    assert moving == {MOVE_PREFIX + "p", MOVE_PREFIX + "q"}
    after_one = plan(twice, running=others, beliefs=disturbed(600))
    assert [each.token for each in after_one.demand.gangs] == [MOVE_PREFIX + "p"]
    after_two = plan(twice, running=others, beliefs=disturbed(600, 60))
    assert after_two.demand.gangs == ()
    assert after_two.revisit_at == after(HOUR - 600)


def test_within_the_rate_the_return_that_has_begun_goes_on() -> None:
    others = tuple(replace(runs(work=relaxed()), gang=gang(name), machines=(f"old-{name}",)) for name in "pqr")
    found = plan(under(Disruption(max_per_hour=1)), running=others, instances=(NEW,))
    assert [each.token for each in found.demand.gangs] == [MOVE_PREFIX + "r"], "its machine is there already"
    assert [drain.instance_id for drain in found.drains] == ["old-r"]


def test_a_gang_counts_with_all_of_its_machines() -> None:
    large = replace(runs(work=relaxed()), gang=replace(gang("r", slots=4), single_machine=False), machines=("o1", "o2"))
    assert plan(under(Disruption(max_per_hour=1)), running=(large,)).demand.gangs == ()
    assert len(plan(under(Disruption(max_per_hour=2)), running=(large,)).demand.gangs) == 1


def test_a_gang_of_several_machines_moves_when_all_of_them_are_there() -> None:
    large = replace(runs(work=relaxed()), gang=replace(gang("r", slots=4), single_machine=False), machines=("o1", "o2"))
    one = plan(pool(), running=(large,), instances=(NEW,))
    two = plan(pool(), running=(large,), instances=(NEW, replace(NEW, instance_id="new2")))
    assert one.drains == ()
    assert [drain.instance_id for drain in two.drains] == ["o1", "o2"]


# -------------------------------------------------------------------------------------------------- machines that go away


@pytest.mark.parametrize(
    ("work", "markets"),
    [
        pytest.param(relaxed(), SPOT, id="ahead: it would wait for spot"),
        pytest.param(replace(relaxed(), deadline=after(HOUR)), ON_DEMAND, id="the safety net"),
        pytest.param(None, ANY, id="no deadline"),
    ],
)
def test_a_replacement_is_bought_where_the_work_will_be_allowed_to_run(
    work: Work | None, markets: frozenset[Market]
) -> None:
    going = joined("old", used=2, occupants=("r",), notice_s=60.0)
    view = replace(going, offer_id="spot")
    found = plan(pool(), running=(runs(Market.SPOT, work=work),), instances=(view, NEW))
    assert [each.successor_markets for each in found.instances] == [markets, ANY]
    scale = plan_scale(pool(), found.instances[:1], Demand(), {}, NOW)
    bought = {launch.offer_id for launch in scale.launches}
    assert bought == ({"firm"} if markets == ON_DEMAND else {"spot"})


def test_a_replacement_that_spot_refuses_is_not_bought_on_demand_while_there_is_time() -> None:
    refused = {"spot": OfferBelief(offer_id="spot", backoff_until=after(60))}
    view = replace(joined("old", used=2, occupants=("r",), notice_s=60.0), offer_id="spot")
    found = plan(pool(), running=(runs(Market.SPOT, work=relaxed()),), instances=(view,), beliefs=refused)
    assert plan_scale(pool(), found.instances, Demand(), refused, NOW).launches == ()
