"""Idle machines that work is about to start on: none is given back in order to be bought again."""

from __future__ import annotations

from dataclasses import replace

from resolute_provisioner.model import Cause, Demand, InstanceView, Intent, Market, Observed, OfferBelief, PoolScaling
from resolute_provisioner.planning.plan import plan_scale
from support.provisioner import NOW, a_gang, a_pool, after, ago, an_offer, demand, joined

SOON = 1.0
"""Machines idle for a second, and a refused gang keeps its members for thirty."""

WIDE = a_gang("wide", 4)
"""Two machines of two slots."""


def returned(
    *instances: InstanceView, work: Demand, pool: PoolScaling | None = None, beliefs: tuple[OfferBelief, ...] = ()
) -> dict[str, Cause]:
    pool = pool or a_pool(high=2, idle_s=SOON)
    result = plan_scale(pool, instances, work, {each.offer_id: each for each in beliefs}, NOW)
    return {each.instance_id: each.cause for each in result.terminations}


def refused_for(seconds: float) -> OfferBelief:
    return OfferBelief(offer_id="small", consecutive_refusals=1, backoff_until=after(seconds))


def ending(name: str, *, offer: str = "small") -> InstanceView:
    return replace(joined(name, offer=offer), intent=Intent.STOP, observed=Observed.STOPPING)


def test_one_whose_gang_gets_the_room_of_a_machine_that_is_ending_stays() -> None:
    idle = joined("i-1", idle_s=20)
    assert returned(idle, ending("i-2"), work=demand(WIDE)) == {}
    assert returned(idle, ending("i-2"), work=demand()) == {"i-1": Cause.IDLE}, "nobody waits"
    busy = joined("i-2", used=2)
    assert returned(idle, busy, work=demand(WIDE)) == {"i-1": Cause.IDLE}, "nobody knows when that ends"
    assert returned(idle, ending("i-2"), work=demand(a_gang("wider", 6))) == {"i-1": Cause.IDLE}, "too few"


def test_room_that_is_being_made_is_not_made_twice() -> None:
    pool = a_pool(an_offer("small", slots=2), an_offer("big", slots=8), high=2)
    one, two = joined("i-1", idle_s=20), joined("i-2", idle_s=10)
    eight = demand(a_gang("g", 8, single=True))
    assert returned(one, two, work=eight, pool=pool) == {"i-1": Cause.MAKE_ROOM}
    assert returned(ending("i-1"), two, work=eight, pool=pool) == {}


def test_a_member_is_kept_as_long_as_the_others_are_waited_for_however_soon_machines_idle() -> None:
    member = replace(joined("i-1", idle_s=8), launched_at=ago(12), reserved_for=("wide",))
    assert returned(member, work=demand(WIDE), beliefs=(refused_for(5),)) == {}
    assert returned(member, work=demand(WIDE), beliefs=(refused_for(60),)) == {"i-1": Cause.STRANDED}
    assert returned(member, work=demand()) == {"i-1": Cause.IDLE}


def test_one_that_idled_already_is_kept_as_long_for_a_gang_that_is_refused_the_others() -> None:
    idle = joined("i-1", idle_s=8)
    assert returned(idle, work=demand(WIDE), beliefs=(refused_for(5),)) == {}
    assert returned(idle, work=demand(WIDE), beliefs=(refused_for(60),)) == {"i-1": Cause.IDLE}
    late = joined("i-1", idle_s=40)
    assert returned(late, work=demand(WIDE), beliefs=(refused_for(5),)) == {"i-1": Cause.IDLE}, "it was tried for long"
    both = a_pool(an_offer(), replace(an_offer("sure"), market=Market.ON_DEMAND), high=2, idle_s=SOON)
    refusals = (refused_for(5), replace(refused_for(5), offer_id="sure"))
    assert returned(idle, work=demand(WIDE), pool=both, beliefs=refusals) == {}
    for useless in (
        a_gang("odd", 3),
        replace(WIDE, excluded_instances=frozenset({"i-1"})),
        replace(WIDE, markets=frozenset({Market.ON_DEMAND})),
    ):
        assert returned(idle, work=demand(useless), pool=both, beliefs=refusals) == {"i-1": Cause.IDLE}


def test_one_that_work_starts_on_when_others_have_left_stays_and_nothing_moves_onto_it() -> None:
    idle = joined("i-1", idle_s=20)
    leaving = joined("i-2", used=2)
    assert returned(idle, leaving, work=Demand(kept=("i-1", "i-2"))) == {}
    assert returned(idle, leaving, work=Demand(kept=("i-2",))) == {"i-1": Cause.IDLE}
