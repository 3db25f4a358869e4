"""Promises of what a pool may buy, for any entries that could be written."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from resolute.config import InvalidConfig, parse_master_config
from resolute_master.domain.ids import PoolName
from resolute_master.pools.offer_rows import shown_offers
from resolute_master.pools.policies import pool_policies
from resolute_provisioner.clouds.driver import driver_named
from resolute_provisioner.model import Market, OfferBelief
from resolute_provisioner.offers import priced
from support.cluster import T0

driver_named("aws")  # its import is no part of what the first example may take

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
TYPES = ("g5.xlarge", "g5.12xlarge", "p5e.48xlarge", "m5.large", "trn1.32xlarge", "p2.xlarge")

prices = st.one_of(st.none(), st.floats(0.0, 50.0))
entries = st.fixed_dictionaries(
    {
        "instance_types": st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True),
        "zones": st.one_of(st.none(), st.lists(st.sampled_from(ZONES), min_size=1, max_size=3, unique=True)),
        "markets": st.lists(st.sampled_from(["spot", "on_demand"]), min_size=1, max_size=2, unique=True),
        "max_price": st.one_of(st.none(), st.floats(0.01, 50.0)),
        "price": prices,
        "spot_price": prices,
        "reservation": st.one_of(st.none(), st.none(), st.just("cr-1")),
    }
)


def without_contradictions(entry: dict[str, Any]) -> dict[str, Any]:
    """The same entry as somebody who has read the documentation would write it."""
    kept = {**entry, "zones": None}
    if kept["reservation"]:
        kept |= {"markets": ["on_demand"], "instance_types": entry["instance_types"][:1], "zones": [ZONES[0]]}
        kept |= {"max_price": None}
    for name, market in (("price", "on_demand"), ("spot_price", "spot")):
        dear = kept["max_price"] is not None and kept[name] is not None and kept[name] > kept["max_price"]
        kept[name] = None if dear or market not in kept["markets"] else kept[name]
    return kept


pools = st.fixed_dictionaries(
    {
        "subnets": st.one_of(
            st.just(list(ZONES)), st.lists(st.sampled_from(ZONES), min_size=1, max_size=3, unique=True)
        ),
        "offers": st.one_of(
            st.lists(entries, min_size=1, max_size=3),
            st.lists(entries.map(without_contradictions), min_size=1, max_size=1),
            st.lists(entries.map(without_contradictions), min_size=1, max_size=3),
        ),
        "cpu_slots_allowed": st.booleans(),
    }
)


def a_provider(drawn: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "aws",
        "ssh_key_name": "k",
        "region": "us-east-1",
        "network_interface": {"subnets": {zone: f"subnet-{zone}" for zone in drawn["subnets"]}},
        "offers": drawn["offers"],
        "cpu_slots_allowed": drawn["cpu_slots_allowed"],
    }


@given(pools, st.one_of(st.none(), st.floats(0.0, 50.0)))
def test_what_is_read_can_be_bought_and_what_cannot_be_is_refused(drawn: dict[str, Any], live: float | None) -> None:
    raw = {"resource_pools": [{"pool_name": "default", "provider": a_provider(drawn)}]}
    try:
        scaling = pool_policies(parse_master_config(raw))[PoolName("default")].scaling
    except InvalidConfig as refused:
        assert refused.problems and all(problem.path[0] == "resource_pools" for problem in refused.problems)
        return
    assert scaling is not None
    ids = [offer.offer_id for offer in scaling.offers]
    assert ids and ids == sorted(set(ids))
    beliefs = {id_: OfferBelief(offer_id=id_, price_per_hour=live, price_as_of=T0) for id_ in ids} if live else {}
    for offer in scaling.offers:
        assert offer.zone in drawn["subnets"] and offer.region == "us-east-1"
        price = priced(offer, beliefs.get(offer.offer_id))
        assert (price.per_hour is None) == (price.source == "" and price.as_of is None)
        # Nothing is assumed of a spot price that nobody told.
        told = offer.price_is_fixed or offer.offer_id in beliefs
        assert offer.market is Market.ON_DEMAND or (price.per_hour is not None) == told
    shown = shown_offers(scaling, beliefs, T0).offers
    assert sorted(offer.id for offer in shown) == ids
    ready = [offer.price is None for offer in shown if not offer.blocked]
    assert ready == sorted(ready)  # what is unknown comes after what is known
    assert all(offer.blocked == "" for offer in shown[: len(ready)])
    assert all(
        offer.price is None or offer.max_price is None or offer.price <= offer.max_price
        for offer in shown
        if not offer.blocked
    )
