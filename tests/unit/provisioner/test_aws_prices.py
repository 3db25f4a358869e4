"""The price of an offer, out of what EC2 tells of the zones."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Any

import pytest

from resolute_provisioner.catalogue.shipped import shipped
from resolute_provisioner.clouds.aws.prices import Newest, live_price, shape_of
from resolute_provisioner.model import Market, Offer, OfferBelief
from resolute_provisioner.offers import slots_of
from resolute_provisioner.risk import repriced

T0 = datetime(2026, 1, 1, tzinfo=UTC)
ANYWHERE = Offer(offer_id="anywhere", instance_type="g5.xlarge", zone="", market=Market.SPOT, slots=1)


def since(hours: float, price: float) -> tuple[datetime, float]:
    return T0 + timedelta(hours=hours), price


def test_an_offer_without_a_zone_follows_the_dearest_zone_up_and_down() -> None:
    belief, b = OfferBelief(offer_id=ANYWHERE.offer_id), since(5, 1.5)
    in_force: list[float | None] = []
    for a in (since(0, 1.0), since(10, 2.0), since(20, 0.4)):
        newest: Newest = {("g5.xlarge", "us-east-1a"): a, ("g5.xlarge", "us-east-1b"): b}
        told = live_price(ANYWHERE, newest)
        assert told is not None
        belief = repriced(belief, told.per_hour, source="EC2", as_of=told.as_of)
        in_force.append(belief.price_per_hour)
    assert in_force == [1.5, 2.0, 1.5]


@pytest.mark.parametrize(
    ("gpu", "slots"),
    [
        ({"Name": "L4", "Count": 0, "LogicalGpuCount": 1, "GpuPartitionSize": 0.125}, 1),
        ({"Name": "L4", "Count": 4, "LogicalGpuCount": 4, "GpuPartitionSize": 1.0}, 4),
        ({"Name": "T4", "Count": 8}, 8),
    ],
)
def test_a_fraction_of_a_gpu_is_one(gpu: dict[str, object], slots: int) -> None:
    told = {
        "InstanceType": "t",
        "VCpuInfo": {"DefaultVCpus": 2},
        "MemoryInfo": {"SizeInMiB": 8192},
        "GpuInfo": {"Gpus": [gpu]},
    }
    assert (shape_of(told).accelerators, shape_of(told).memory_gib) == (slots, 8.0)


@pytest.fixture(scope="module")
def told_by_ec2() -> dict[str, Any]:
    """What `DescribeInstanceTypes` answered of each type, as moto keeps it."""
    packed = resources.files("moto.ec2").joinpath("resources/instance_types.json.gz").read_bytes()
    told: dict[str, Any] = json.loads(gzip.decompress(packed))
    return told


def test_ec2_and_the_shipped_table_count_the_same_accelerators(told_by_ec2: dict[str, Any]) -> None:
    known = shipped("aws").shapes
    both = sorted(known.keys() & told_by_ec2.keys())
    assert {"inf1.24xlarge", "inf2.48xlarge", "trn1.32xlarge", "p5.48xlarge"} <= set(both)
    told = {name: shape_of(told_by_ec2[name]) for name in both}
    assert {name: told[name].accelerators for name in both} == {name: known[name].accelerators for name in both}
    differ = {name for name in both if told[name].accelerator != known[name].accelerator}
    assert differ == {"p3dn.24xlarge", "p4de.24xlarge"}, "the table adds the larger memory to the name"


def test_only_accelerators_of_nvidia_are_cuda_and_only_those_of_amd_rocm(told_by_ec2: dict[str, Any]) -> None:
    def slot_type(told: Any) -> str:
        return slots_of(shape_of(told), cpu_slots_allowed=False)[1]

    types = {name: slot_type(told_by_ec2[name]) for name in ("p5.48xlarge", "trn2.48xlarge", "inf2.xlarge", "m5.large")}
    assert types == {
        "p5.48xlarge": "cuda",
        "trn2.48xlarge": "artificial",
        "inf2.xlarge": "artificial",
        "m5.large": "none",
    }
    qualcomm = told_by_ec2["dl2q.24xlarge"]
    assert (shape_of(qualcomm).accelerator, slots_of(shape_of(qualcomm), cpu_slots_allowed=False)) == (
        "Qualcomm AI100",
        (8, "artificial"),
    )
    amd = {"GpuInfo": {"Gpus": [{"Name": "Instinct", "Manufacturer": "AMD", "Count": 1}]}}
    neuron = {"NeuronInfo": {"NeuronDevices": [{"Name": "Novel", "Count": 1}]}}
    assert [slot_type({**told_by_ec2["m5.large"], **kind}) for kind in (amd, neuron)] == ["rocm", "artificial"]


def test_the_makers_of_the_shipped_table_are_those_that_ec2_tells(told_by_ec2: dict[str, Any]) -> None:
    known = shipped("aws").shapes
    both = sorted(known.keys() & told_by_ec2.keys())
    by_name = {name: slots_of(known[name], cpu_slots_allowed=False) for name in both}
    assert by_name == {name: slots_of(shape_of(told_by_ec2[name]), cpu_slots_allowed=False) for name in both}
