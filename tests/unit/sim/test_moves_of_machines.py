"""What the simulation's checker of states lets a machine do, and what it reports."""

from __future__ import annotations

from dataclasses import replace

from resolute_master.domain.change import Change, JournalEntry
from resolute_master.domain.instance import Instance
from resolute_master.domain.pool import PoolPolicy
from resolute_master.lifecycle.cluster import ClusterState
from resolute_provisioner.model import Intent, Market, Observed, Offer, PoolScaling
from resolute_sim.checkers.safety import Moves, pools_within_bounds
from support.cluster import an_instance, at

GONE = an_instance("m", observed=Observed.GONE, intent=Intent.STOP)


def told(*rows: Instance) -> list[str]:
    moves, found = Moves(), list[str]()
    for number, row in enumerate(rows):
        entry = JournalEntry(
            sequence=number, at=at(number), entropy="0", commands=b"[]", adopted=b"[]", digest=str(number)
        )
        found += moves.check(Change(journal=entry, upserts=(row,)))
    return found


def test_a_machine_that_is_gone_comes_back_as_a_stray_and_no_other_way() -> None:
    back = replace(GONE, observed=Observed.RUNNING)
    assert told(GONE, back) == ["instance m went from gone to running"]
    found = replace(back, found_again_at=at(1))
    assert told(GONE, found) == []
    # Once found is not for ever: the next time it takes another find.
    gone_again = replace(GONE, found_again_at=at(1))
    assert told(GONE, found, gone_again, found) == ["instance m went from gone to running"]
    assert told(GONE, found, gone_again, replace(found, found_again_at=at(3))) == []
    assert "was ordered to run again" in " ".join(told(GONE, replace(found, intent=Intent.RUN)))


def test_only_a_machine_that_was_found_again_may_be_beyond_the_maximum() -> None:
    offer = Offer(offer_id="local", instance_type="t", zone="z", market=Market.SPOT, slots=1, price_per_hour=1.0)
    first, second = (
        an_instance("a"),
        an_instance("b", stop_reason="it was taken for gone, and it was there all the same"),
    )
    scaling = PoolScaling(pool=first.pool, offers=(offer,), max_instances=1)
    pools = {first.pool: PoolPolicy(name=first.pool, scaling=scaling)}
    assert list(pools_within_bounds(ClusterState([first, second]), pools)) != []
    found = replace(second, found_again_at=at(1))
    assert list(pools_within_bounds(ClusterState([first, found]), pools)) == []
