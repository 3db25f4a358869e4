"""From a provider block to what its pool may buy, and every mistake by its key, its value and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from resolute.config import InvalidConfig, parse_master_config
from resolute_master.domain.ids import PoolName
from resolute_master.pools.offers import offers_of
from resolute_master.pools.policies import pool_policies
from resolute_provisioner.catalogue import Shape, shipped
from resolute_provisioner.model import Market, Offer

AWS: dict[str, Any] = {"type": "aws", "ssh_key_name": "k", "region": "us-east-1"}
SUBNETS = {"subnets": {"us-east-1a": "subnet-a", "us-east-1b": "subnet-b"}}


def offers(**provider: Any) -> tuple[Offer, ...]:
    config = parse_master_config({"resource_pools": [{"pool_name": "default", "provider": provider}]})
    scaling = pool_policies(config)[PoolName("default")].scaling
    assert scaling is not None
    return scaling.offers


def ids(**provider: Any) -> list[str]:
    return [offer.offer_id for offer in offers(**provider)]


def complaints(**provider: Any) -> list[str]:
    with pytest.raises(InvalidConfig) as refused:
        offers(**provider)
    place = "<config>.resource_pools[0].provider"
    lines = [line.strip() for line in str(refused.value).splitlines()[1:]]
    assert all(line.startswith(place) for line in lines)
    return [line.removeprefix(place).removeprefix(".") for line in lines]


# ------------------------------------------------------------------------------------------- blocks of the original


def test_a_block_of_the_original_is_one_offer() -> None:
    (offer,) = offers(**AWS)
    assert (offer.offer_id, offer.slots, offer.slot_type) == ("aws/us-east-1/g4dn.metal/on_demand", 8, "cuda")
    (usual,) = offers(**AWS, instance_type="p3.8xlarge", spot=True)
    assert offers(**AWS, instance_type="p3.8xlarge", spot=True, spot_max_price="OnDemand") == (usual,)
    (spot,) = offers(**AWS, instance_type="p3.8xlarge", spot=True, spot_max_price="4.5")
    assert (spot.market, spot.slots, spot.max_price_per_hour) == (Market.SPOT, 4, 4.5)
    (subnet,) = offers(**AWS, instance_type="g5.xlarge", network_interface={"subnet_id": "subnet-1"})
    assert subnet.zone == ""


def test_a_known_type_keeps_its_slots_and_an_unknown_one_has_those_that_are_given() -> None:
    (known,) = offers(**AWS, instance_type="g5.xlarge", instance_slots=7)
    assert (known.slots, known.slot_type) == (1, "cuda")
    (unknown,) = offers(**AWS, instance_type="q1.huge", instance_slots=7)
    assert (unknown.slots, unknown.slot_type, unknown.price_per_hour) == (7, "auto", None)
    (none,) = offers(**AWS, instance_type="q1.huge", instance_slots=0)
    assert (none.slots, none.slot_type) == (0, "none")


@pytest.mark.parametrize(("allowed", "expected"), [(True, (1, "cpu")), (False, (0, "none"))])
def test_a_machine_without_accelerators_has_its_processor_if_that_is_allowed(
    allowed: bool, expected: tuple[int, str]
) -> None:
    (offer,) = offers(**AWS, instance_type="m5.large", cpu_slots_allowed=allowed)
    assert (offer.slots, offer.slot_type) == expected
    (offer,) = offers(type="gcp", instance_type={"machine_type": "n2-standard-8"}, cpu_slots_allowed=allowed)
    assert (offer.slots, offer.slot_type, offer.accelerator) == (*expected, "")


def test_a_block_of_google_cloud_is_one_offer() -> None:
    (offer,) = offers(type="gcp", zone="us-central1-a")
    assert offer.offer_id == "gcp/us-central1-a/n1-standard-32+4x-nvidia-tesla-t4/on_demand"
    assert (offer.slots, offer.accelerator, offer.accelerators, offer.region) == (
        4,
        "nvidia-tesla-t4",
        4,
        "us-central1",
    )
    (spot,) = offers(
        type="gcp",
        zone="us-central1-a",
        instance_type={
            "machine_type": "a2-highgpu-2g",
            "gpu_type": "nvidia-tesla-a100",
            "gpu_num": 2,
            "preemptible": True,
        },
    )
    assert (spot.offer_id, spot.slots) == ("gcp/us-central1-a/a2-highgpu-2g/spot", 2)
    (built_in,) = offers(type="gcp", instance_type={"machine_type": "a3-megagpu-8g"})
    assert (built_in.slots, built_in.accelerator, built_in.zone) == (8, "nvidia-h100-mega-80gb", "")


def test_a_local_pool_has_one_offer_at_its_own_price() -> None:
    (offer,) = offers(type="local", slots_per_instance=3, price_per_hour=1.5)
    assert (offer.offer_id, offer.slots, offer.price_per_hour) == ("local", 3, 1.5)


def test_a_local_pool_with_a_spot_price_has_both_markets() -> None:
    firm, spot = offers(type="local", slots_per_instance=3, price_per_hour=1.5, spot_price_per_hour=0.5)
    assert (firm.offer_id, firm.market, firm.slots, firm.price_per_hour) == ("local", Market.ON_DEMAND, 3, 1.5)
    assert (spot.offer_id, spot.market, spot.slots, spot.price_per_hour) == ("local/spot", Market.SPOT, 3, 0.5)


# ------------------------------------------------------------------------------------------------------- offers


def test_offers_are_every_type_in_every_zone_on_every_market() -> None:
    found = ids(
        **AWS,
        network_interface=SUBNETS,
        offers=[
            {"instance_types": ["g5.xlarge", "g6.xlarge"], "markets": ["spot", "on_demand"]},
            {"instance_types": ["p5.48xlarge"], "zones": ["us-east-1b"], "reservation": "cr-1"},
        ],
    )
    assert len(found) == 9
    assert "aws/us-east-1b/p5.48xlarge/reserved/cr-1" in found
    assert found == sorted(found)


def test_zones_of_a_single_type_are_its_subnets() -> None:
    assert ids(**AWS, instance_type="g5.xlarge", network_interface=SUBNETS) == [
        "aws/us-east-1a/g5.xlarge/on_demand",
        "aws/us-east-1b/g5.xlarge/on_demand",
    ]
    assert ids(
        type="gcp", zones=["us-central1-a", "europe-west4-b"], instance_type={"machine_type": "g2-standard-4"}
    ) == [
        "gcp/europe-west4-b/g2-standard-4/on_demand",
        "gcp/us-central1-a/g2-standard-4/on_demand",
    ]


def test_prices_of_the_operator_are_the_entrys_then_the_types() -> None:
    found = offers(
        **AWS,
        network_interface={"subnets": {"us-east-1a": "s"}},
        offers=[
            {"instance_types": ["g5.xlarge"], "markets": ["spot", "on_demand"], "spot_price": 0.3},
            {"instance_types": ["g6.xlarge", "p5.48xlarge"]},
            {"instance_types": ["p5.48xlarge"], "reservation": "cr-1"},
        ],
        prices={"g5.xlarge": {"spot": 0.5, "on_demand": 0.9}, "p5.48xlarge": {"on_demand": 40}},
    )
    prices = {offer.offer_id.removeprefix("aws/us-east-1a/"): offer.price_per_hour for offer in found}
    assert prices == {
        "g5.xlarge/on_demand": 0.9,
        "g5.xlarge/spot": 0.3,
        "g6.xlarge/on_demand": 0.8048,
        "p5.48xlarge/on_demand": 40,
        "p5.48xlarge/reserved/cr-1": 0.0,  # the list price of the type is no price of what is paid for already
    }


def test_what_the_cloud_told_of_a_type_counts() -> None:
    config = parse_master_config(
        {"resource_pools": [{"pool_name": "default", "provider": {**AWS, "instance_type": "q1.huge"}}]}
    )
    told = shipped("aws").with_shapes([Shape(instance_type="q1.huge", accelerator="L4", accelerators=2)])
    (offer,) = offers_of(config.resource_pools[0], catalogue=told)
    assert (offer.slots, offer.slot_type) == (2, "cuda")


@pytest.mark.parametrize(
    "provider",
    [
        {**AWS, "network_interface": SUBNETS, "offers": [{"instance_types": ["g5.xlarge"], "markets": ["spot"]}]},
        {**AWS, "instance_type": "g5.xlarge", "spot": True, "spot_max_price": "0.4", "price_refresh": False},
        {"type": "gcp", "zones": ["us-central1-a"], "offers": [{"instance_types": ["g2-standard-4"]}]},
        {"type": "gcp", "instance_type": {"machine_type": "n2-standard-4"}},
        {"type": "gcp"},
    ],
)
def test_a_completed_configuration_can_be_read_again(provider: dict[str, Any]) -> None:
    config = parse_master_config({"resource_pools": [{"pool_name": "default", "provider": provider}]})
    again = parse_master_config(config.model_dump(mode="json", by_alias=True))
    assert again == config
    assert pool_policies(again) == pool_policies(config)


# ---------------------------------------------------------------------------------------------------- mistakes


def entry(**changes: Any) -> dict[str, Any]:
    return {"offers": [{"instance_types": ["g5.xlarge"], **changes}]}


MISTAKES: list[tuple[dict[str, Any], list[str]]] = [
    (
        {**AWS, "instance_type": "g5.xlarg"},
        [
            "instance_type: is not a known type (value \"g5.xlarg\"); did you mean 'g5.xlarge'? If it is right, say how many "
            "slots it has in instance_slots"
        ],
    ),
    (
        {**AWS, **entry(instance_types=["g5.xlarge", "zz9"])},
        [
            'offers[0].instance_types[1]: is not a known type (value "zz9"); if it is right, say how many slots it has in '
            "instance_slots"
        ],
    ),
    (
        {**AWS, **entry(), "spot": True, "instance_type": "g5.xlarge"},
        [
            'instance_type: has no effect beside offers (value "g5.xlarge"); set it in the offers and remove it',
            "spot: has no effect beside offers (value true); set it in the offers and remove it",
        ],
    ),
    ({**AWS, **entry(instance_types=[])}, ["offers[0].instance_types: must have 1 or more entries (value [])"]),
    (
        {**AWS, "region": "us-east-1a"},
        [
            'region: is a zone (value "us-east-1a"); write its region us-east-1 here, and zones in '
            "network_interface.subnets"
        ],
    ),
    (
        {
            **AWS,
            "custom_tags": [
                {"key": key, "value": "v"} for key in ("team", "team", "managed_by", "resolute:token", "cost")
            ],
        },
        [
            'custom_tags[1].key: occurs twice (value "team"); remove one',
            'custom_tags[2].key: is the tag_key of the pool (value "managed_by"); set tag_value in its place',
            'custom_tags[3].key: is the master\'s own (value "resolute:token"); choose another key',
        ],
    ),
    (
        {**AWS, **entry(instance_slots=4)},
        ["offers[0].instance_slots: is not what g5.xlarge has, which is 1 (value 4); remove it"],
    ),
    (
        {**AWS, "network_interface": SUBNETS, **entry(zones=["us-east-1c", "eu-west-1a"])},
        [
            'offers[0].zones[0]: has no subnet (value "us-east-1c"); add one to network_interface.subnets, which has '
            "us-east-1a, us-east-1b",
            'offers[0].zones[1]: is no zone of the region us-east-1 (value "eu-west-1a"); name zones such as us-east-1a',
        ],
    ),
    (
        {**AWS, "network_interface": {"subnet_id": "s"}, **entry(zones=["us-east-1a", "us-east-1b"])},
        [
            'offers[0].zones: are several, and network_interface.subnet_id is in one of them (value ["us-east-1a", '
            '"us-east-1b"]); name subnets by zone in its place'
        ],
    ),
    (
        {**AWS, "network_interface": {"subnets": {"eu-west-1a": "s"}}},
        [
            'network_interface.subnets.eu-west-1a: is no zone of the region us-east-1 (value "eu-west-1a"); name zones such '
            "as us-east-1a"
        ],
    ),
    (
        {
            **AWS,
            "network_interface": {
                **SUBNETS,
                "subnet_id": "s",
                "security_group_id": "sg-1",
                "security_group_ids": ["sg-2"],
            },
        },
        [
            'network_interface.security_group_id: is given beside security_group_ids (value "sg-1"); put it there and remove it '
            "here",
            'network_interface.subnet_id: is given beside subnets (value "s"); put it there and remove it here',
        ],
    ),
    (
        {"type": "aws", "ssh_key_name": "k", **entry(zones=["us-east-1a", "eu-west-1a"])},
        [": the zones are in several regions, eu-west-1, us-east-1; keep to one, and make a pool for each other"],
    ),
    (
        {**AWS, "offers": [*entry()["offers"], *entry()["offers"]]},
        ["offers: aws/us-east-1/g5.xlarge/on_demand is offered 2 times; remove it from all but one"],
    ),
    (
        {**AWS, **entry(markets=["spot"], reservation="cr-1", zones=["us-east-1a"], max_price=3)},
        [
            'offers[0].markets: must be [on_demand] with a reservation (value ["spot"]); put spot machines into an offer of '
            "their own",
            "offers[0].max_price: has no meaning with a reservation, which is paid for (value 3.0); remove it",
        ],
    ),
    (
        {**AWS, "network_interface": SUBNETS, **entry(reservation="cr-1")},
        ["offers[0].zones: must name the zone of the reservation (value null)"],
    ),
    (
        {**AWS, **entry(price=2, max_price=1, spot_price=0.1)},
        [
            "offers[0].price: is above max_price, which is 1, so that no machine could be bought (value 2.0); raise one",
            "offers[0].spot_price: is for the market spot, which is not in markets (value 0.1); remove it",
        ],
    ),
    ({**AWS, **entry(max_price=0)}, ["offers[0].max_price: must be greater than 0 (value 0)"]),
    (
        {**AWS, "spot": True, "spot_max_price": "0"},
        ['spot_max_price: must be more than 0 (value "0"); remove it to pay up to the on-demand price'],
    ),
    (
        {**AWS, "prices": {"g4dn.metl": {"on_demand": 1}}},
        ["prices.g4dn.metl: is no instance type of this provider; did you mean 'g4dn.metal'?"],
    ),
    (
        {"type": "gcp", "zone": "us-central1-a", "zones": ["us-central1-b"], "price_refresh": True},
        [
            "price_refresh: is not a known key; prices of Google Cloud are not queried; set prices, "
            "or spot_price in offers"
        ],
    ),
    (
        {"type": "gcp", "zone": "us-central1-a", "zones": ["us-central1-b"]},
        ['zone: is given beside zones (value "us-central1-a"); put it there and remove it here'],
    ),
    (
        {
            "type": "gcp",
            "instance_type": {"machine_type": "a2-highgpu-1g", "gpu_type": "nvidia-tesla-a100", "gpu_num": 2},
        },
        [
            "instance_type.machine_type: has 1 nvidia-tesla-a100 built in, not 2 nvidia-tesla-a100; remove gpu_type and "
            'gpu_num (value "a2-highgpu-1g")'
        ],
    ),
    (
        {"type": "gcp", "instance_type": {"machine_type": "N1_big"}},
        [
            "instance_type.machine_type: must be a machine type such as n1-standard-8, a2-highgpu-1g or n2-custom-4-8192 "
            '(value "N1_big")'
        ],
    ),
    (
        {"type": "gcp", "offers": [{"instance_types": ["G2", "g2-standard-4"], "zones": ["us-central1"]}]},
        [
            "offers[0].instance_types[0]: must be a machine type such as n1-standard-8, a2-highgpu-1g or n2-custom-4-8192 "
            '(value "G2")',
            'offers[0].zones[0]: is a region (value "us-central1"); name a zone of it, such as us-central1-a',
        ],
    ),
    (
        {"type": "gcp", "offers": [{"instance_types": ["G2"]}], "zone": "europe-west4"},
        [
            "offers[0].instance_types[0]: must be a machine type such as n1-standard-8, a2-highgpu-1g or n2-custom-4-8192 "
            '(value "G2")',
            'zone: is a region (value "europe-west4"); name a zone of it, such as europe-west4-a',
        ],
    ),
    (
        {"type": "gcp", "offers": [{"instance_types": ["n1-standard-4"], "gpu_num": 2}]},
        ["offers[0].gpu_num: lacks the kind of GPU (value 2); set gpu_type, or remove it"],
    ),
    (
        {"type": "gcp", "instance_type": {"machine_type": "n1-standart-4"}},
        [
            "instance_type.machine_type: is not a known type (value \"n1-standart-4\"); did you mean 'n1-standard-4'? If it is "
            "right, say how many slots it has in instance_slots of an entry of offers"
        ],
    ),
    (
        {"type": "gcp", "offers": [{"instance_types": ["n2-standard-4"], "gpu_type": "nvidia-tesla-t4", "gpu_num": 1}]},
        [
            'offers[0].gpu_type: can be attached to n1 machines only, not to n2-standard-4 (value "nvidia-tesla-t4"); name '
            "one of those, or remove it"
        ],
    ),
    (
        {"type": "gcp", "offers": [{"instance_types": ["n1-standard-4"], "gpu_type": "nvidia-b200", "gpu_num": 8}]},
        [
            "offers[0].gpu_type: is built into machine types a4-highgpu and cannot be attached to n1-standard-4 (value "
            '"nvidia-b200"); name one of those'
        ],
    ),
    (
        {"type": "gcp", "offers": [{"instance_types": ["g2-standard-4"], "markets": ["spot"], "max_price": 1}]},
        [
            "offers[0].max_price: cannot be kept for spot machines (value 1.0): Google Cloud publishes no spot prices and accepts "
            "no limit; set spot_price, or remove it from this entry"
        ],
    ),
    (
        {"type": "gcp", "offers": [{"instance_types": ["n1-standard-4"], "gpu_type": "nvidia-tesla-t4"}]},
        ["offers[0].gpu_num: must say how many GPUs 'nvidia-tesla-t4' to attach (value 0)"],
    ),
]


@pytest.mark.parametrize(("provider", "expected"), MISTAKES, ids=[texts[0].partition(":")[0] for _, texts in MISTAKES])
def test_a_mistake_is_named_by_key_value_and_what_to_do(provider: dict[str, Any], expected: list[str]) -> None:
    assert complaints(**provider) == expected
