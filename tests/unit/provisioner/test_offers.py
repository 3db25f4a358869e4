"""What may be bought, what it costs, and whose word that is."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resolute_provisioner import risk
from resolute_provisioner.catalogue import Shape, shipped
from resolute_provisioner.catalogue.rules import TypeRules
from resolute_provisioner.clouds.aws.catalogue import RULES as AWS
from resolute_provisioner.clouds.gcp.catalogue import RULES as GCP
from resolute_provisioner.model import Market, Offer, OfferBelief
from resolute_provisioner.offers import OPERATOR, Purchase, expanded, price_order, priced, slots_of, too_dear
from support.cluster import T0

G5 = shipped("aws").shapes["g5.xlarge"]
BOTH = (Market.SPOT, Market.ON_DEMAND)


def a_purchase(**changes: object) -> Purchase:
    given: dict[str, object] = {"shape": G5, "zones": ("us-east-1a",), "slots": 1, "slot_type": "cuda"}
    return Purchase(**{**given, **changes})  # type: ignore[arg-type]


def bought(purchase: Purchase, rules: TypeRules = AWS) -> dict[str, Offer]:
    return {offer.offer_id: offer for offer in expanded([purchase], shipped(rules.cloud), rules)}


def test_there_is_an_offer_for_each_zone_and_market() -> None:
    found = bought(a_purchase(zones=("us-east-1b", "us-east-1a"), markets=BOTH))
    assert list(found) == [
        "aws/us-east-1a/g5.xlarge/on_demand",
        "aws/us-east-1a/g5.xlarge/spot",
        "aws/us-east-1b/g5.xlarge/on_demand",
        "aws/us-east-1b/g5.xlarge/spot",
    ]


def test_a_price_of_the_table_is_for_on_demand_only() -> None:
    found = bought(a_purchase(markets=BOTH))
    spot, on_demand = found["aws/us-east-1a/g5.xlarge/spot"], found["aws/us-east-1a/g5.xlarge/on_demand"]
    assert (on_demand.price_per_hour, on_demand.price_source) == (1.006, "shipped table, date unknown")
    assert (spot.price_per_hour, spot.price_source) == (None, "")


def test_local_zones_have_no_price_of_their_region() -> None:
    (offer,) = bought(a_purchase(zones=("us-west-2-lax-1a",))).values()
    assert (offer.region, offer.price_per_hour) == ("us-west-2", None)


def test_reserved_capacity_costs_nothing_more_and_has_a_name_of_its_own() -> None:
    (offer,) = bought(a_purchase(reservation="cr-1")).values()
    assert offer.offer_id == "aws/us-east-1a/g5.xlarge/reserved/cr-1"
    assert (offer.reservation, offer.price_per_hour, offer.price_is_fixed) == ("cr-1", 0.0, True)
    assert "paid for already" in offer.price_source
    (own,) = bought(a_purchase(reservation="cr-1", price=0.7)).values()
    assert (own.price_per_hour, own.price_source) == (0.7, OPERATOR)


def test_a_quota_is_of_a_region_a_market_and_what_is_counted_together() -> None:
    purchases = [
        a_purchase(zones=("us-east-1a", "us-east-1b"), markets=BOTH),
        a_purchase(shape=shipped("aws").shapes["g6.xlarge"]),
        a_purchase(shape=shipped("aws").shapes["p5.48xlarge"]),
    ]
    families = {offer.offer_id: offer.family for offer in expanded(purchases, shipped("aws"), AWS)}
    assert families["aws/us-east-1a/g5.xlarge/spot"] == families["aws/us-east-1b/g5.xlarge/spot"]
    assert families["aws/us-east-1a/g5.xlarge/on_demand"] == families["aws/us-east-1a/g6.xlarge/on_demand"]
    assert len(set(families.values())) == 3


def test_attached_accelerators_are_part_of_the_offer() -> None:
    shape = replace(shipped("gcp").shapes["n1-standard-8"], accelerator="nvidia-tesla-t4", accelerators=2)
    purchase = a_purchase(shape=shape, attached=True, zones=("us-central1-b",), slots=2)
    (offer,) = bought(purchase, GCP).values()
    assert offer.offer_id == "gcp/us-central1-b/n1-standard-8+2x-nvidia-tesla-t4/on_demand"
    assert (offer.accelerator, offer.accelerators, offer.region) == ("nvidia-tesla-t4", 2, "us-central1")
    assert offer.price_per_hour == shipped("gcp").price(shape, "us-central1")
    assert offer.family == "gcp/us-central1/on_demand/nvidia-tesla-t4"


def test_a_place_that_is_left_to_the_cloud_has_the_regions_name() -> None:
    (offer,) = bought(a_purchase(zones=("",), region="us-east-1")).values()
    assert (offer.offer_id, offer.zone, offer.price_per_hour) == ("aws/us-east-1/g5.xlarge/on_demand", "", 1.006)
    (nowhere,) = bought(a_purchase(zones=("",))).values()
    assert (nowhere.offer_id, nowhere.price_per_hour) == ("aws/default/g5.xlarge/on_demand", None)


@pytest.mark.parametrize(
    ("shape", "cpu", "expected"),
    [
        (G5, False, (1, "cuda")),
        (shipped("aws").shapes["trn1.32xlarge"], False, (16, "artificial")),
        (shipped("aws").shapes["m5.large"], False, (0, "none")),
        (shipped("aws").shapes["m5.large"], True, (1, "cpu")),
        (Shape(instance_type="new"), True, (1, "cpu")),
    ],
)
def test_slots_are_accelerators_or_the_processor(shape: Shape, cpu: bool, expected: tuple[int, str]) -> None:
    assert slots_of(shape, cpu_slots_allowed=cpu) == expected


# ---------------------------------------------------------------------------------------------------------- prices

TOLD = risk.repriced(OfferBelief(offer_id="o"), 0.5, source="the cloud", as_of=T0)
TABLE = Offer(
    offer_id="o", instance_type="t", zone="z", market=Market.SPOT, slots=1, price_per_hour=0.9, price_source="table"
)


def test_the_clouds_word_goes_before_the_table_and_the_operators_before_both() -> None:
    assert (priced(TABLE, None).per_hour, priced(TABLE, None).source) == (0.9, "table")
    live = priced(TABLE, TOLD)
    assert (live.per_hour, live.source, live.as_of) == (0.5, "the cloud", T0)
    own = replace(TABLE, price_per_hour=0.7, price_source=OPERATOR, price_is_fixed=True)
    assert (priced(own, TOLD).per_hour, priced(own, TOLD).source) == (0.7, OPERATOR)


def test_an_older_word_does_not_replace_a_newer_one() -> None:
    assert risk.repriced(TOLD, 0.1, source="the cloud", as_of=T0 - timedelta(seconds=1)) == TOLD


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e6)), max_size=8))
def test_what_is_unknown_never_ranks_before_what_is_known(prices: list[float | None]) -> None:
    ordered = sorted(prices, key=price_order)
    known = [price for price in prices if price is not None]
    assert ordered == [*sorted(known), *[None] * (len(prices) - len(known))]


def test_a_limit_stops_what_is_dearer_and_no_spot_machine_of_an_unknown_price() -> None:
    limited = replace(TABLE, max_price_per_hour=0.6)
    assert "0.9 an hour is above its max_price of 0.6" in too_dear(limited, None)
    assert too_dear(limited, TOLD) == ""
    assert too_dear(replace(limited, price_per_hour=None), None) == ""
    assert too_dear(TABLE, None) == ""


def test_a_limit_stops_an_unknown_price_where_the_cloud_cannot_be_told_the_limit() -> None:
    limited = replace(TABLE, max_price_per_hour=0.6, price_per_hour=None, market=Market.ON_DEMAND)
    assert too_dear(limited, None) == "its price is unknown, and may be above its max_price of 0.6"
