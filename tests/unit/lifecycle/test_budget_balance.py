"""What a pool may still buy is reckoned as machine by machine, and as quickly for many machines as for one."""

from __future__ import annotations

import gc
import sys
from itertools import accumulate
from random import Random

import pytest

from resolute_master.decision import supply
from resolute_master.domain.account import RISE, Account, Limits
from resolute_master.domain.copies import replace
from resolute_master.engine import pool_view
from resolute_master.lifecycle import budget
from resolute_master.lifecycle.cluster import ClusterState
from resolute_provisioner import risk
from resolute_provisioner.model import Market, Offer, OfferBelief, PoolScaling
from support.cluster import T0, an_instance
from support.paid_cluster import POOL, a_paid_pool


@pytest.mark.parametrize("seed", range(40))
def test_what_is_payable_is_as_many_as_machine_by_machine(seed: int) -> None:
    """The count is a division: here the rates of ever more machines are added up until a limit is reached."""
    rng = Random(seed)
    offers = tuple(
        Offer(
            offer_id=f"offer-{number}",
            instance_type="t",
            zone="z",
            market=rng.choice(tuple(Market)),
            slots=1,
            price_per_hour=rng.choice((None, 0.0, 0.1, 3.6, rng.uniform(0.01, 40.0))),
        )
        for number in range(4)
    )
    scaling = PoolScaling(pool=POOL, offers=offers, max_instances=rng.choice((0, 1, 9, 40)))
    account = Account(
        id="pool/default",
        at=T0,
        in_day=rng.uniform(0.0, 3.0),
        in_month=rng.uniform(0.0, 6.0),
        save_s=rng.choice((None, 20.0, 900.0)),
        limits=Limits(per_day=rng.choice((1.3, rng.uniform(0.1, 40.0))), per_month=rng.choice((None, 5.0, 20.0))),
    )
    machine = an_instance("default-1", paid_from=T0, price_per_hour=rng.choice((0.0, 3.6)))
    state = ClusterState((account, machine))
    found = {each.offer_id: each for each in pool_view.payable(state, scaling, T0).unpaid}
    life_s = max(account.wind_down_s, budget.LEAST_LIFE_S)
    for offer in offers:
        one = (offer.price_per_hour or 0.0) * (RISE if offer.price_moves else 1.0)
        rates = accumulate([one] * scaling.max_instances, initial=machine.price_per_hour or 0.0)
        reached = [
            any(
                limit is not None and spent + rate * life_s / 3600.0 >= limit - budget.ROUNDING
                for limit, spent in (
                    (account.limits.per_day, account.in_day),
                    (account.limits.per_month, account.in_month),
                )
            )
            for rate in rates
        ][1:]
        expected = reached.index(True) if one and True in reached else None
        known = found.get(offer.offer_id)
        assert (None if known is None else known.machines) == expected


def test_how_much_is_reckoned_does_not_grow_with_the_machines_that_a_pool_may_have() -> None:
    offers = tuple(
        Offer(offer_id=f"o{n}", instance_type="t", zone="z", market=Market.SPOT, slots=1, price_per_hour=1.0 + n)
        for n in range(40)
    )
    account = Account(id="pool/default", at=T0, limits=Limits(per_day=1e9))

    def calls(machines: int) -> int:
        counted = 0

        def count(_frame: object, event: str, _argument: object) -> None:
            nonlocal counted
            counted += event in ("call", "c_call")

        scaling = PoolScaling(pool=POOL, offers=offers, max_instances=machines)
        state = ClusterState((account,))
        gc.disable()  # whoever has asked to be told of collections would be counted
        sys.setprofile(count)
        try:
            assert pool_view.payable(state, scaling, T0).unpaid == ()
        finally:
            sys.setprofile(None)
            gc.enable()
        return counted

    assert calls(1000) == calls(1)


def test_of_each_offer_as_many_machines_may_be_asked_for_as_the_budget_pays() -> None:
    scaling = a_paid_pool(machines=9)[POOL].scaling
    assert scaling is not None
    (paid,) = scaling.offers
    dear = replace(paid, offer_id="dear", slots=8, price_per_hour=7.2)
    free = replace(paid, offer_id="free", price_per_hour=0.0)
    account = Account(id="pool/default", at=T0, limits=Limits(per_day=1.3))
    stranded = {"paid": risk.stranded(OfferBelief(offer_id="paid"), now=T0)}

    def of(*offers: Offer, beliefs: dict[str, OfferBelief]) -> tuple[int, dict[str, tuple[int | None, bool]]]:
        pool = pool_view.payable(ClusterState((account,)), replace(scaling, offers=offers), T0)
        found = supply.of(pool, (), beliefs, T0)
        return found.room, {each.offer_id: (each.room, each.one_only) for each in found.offers}

    assert of(paid, dear, beliefs={}) == (4, {"paid": (4, False), "dear": (2, False)})
    assert of(paid, free, beliefs=stranded) == (9, {"paid": (4, True), "free": (None, False)})
