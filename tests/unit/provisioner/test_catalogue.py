"""The shipped tables: complete where the original's were, honest where nobody knows."""

from __future__ import annotations

import pytest

from resolute_provisioner.catalogue import Catalogue, Shape, shipped
from resolute_provisioner.clouds.aws import catalogue as aws
from resolute_provisioner.clouds.gcp import catalogue as gcp
from resolute_provisioner.offers import slots_of

ORIGINAL_SLOTS = {
    1: "g4dn.xlarge g4dn.2xlarge g4dn.4xlarge g4dn.8xlarge g4dn.16xlarge g5.xlarge g5.2xlarge g5.4xlarge g5.8xlarge "
    "g5.16xlarge p2.xlarge p3.2xlarge",
    4: "g4dn.12xlarge g5.12xlarge g5.24xlarge p3.8xlarge",
    8: "g4dn.metal g5.48xlarge p2.8xlarge p3.16xlarge p3dn.24xlarge p4d.24xlarge",
    16: "p2.16xlarge",
    0: "t2.medium t2.large t2.xlarge t2.2xlarge t3.nano t3.micro t3.small t3.medium t3.large t3.xlarge t3.2xlarge "
    "c4.8xlarge c5.24xlarge c5d.metal c5n.18xlarge m4.16xlarge m5.24xlarge m5d.large m5dn.8xlarge m5n.metal m5zn.6xlarge "
    "m6i.32xlarge",
}
LATER_SLOTS = {
    1: "p5.4xlarge g6.xlarge g6e.2xlarge gr6.4xlarge g7e.2xlarge trn1.2xlarge trn2.3xlarge g4ad.xlarge g5g.8xlarge g6f.large "
    "gr6f.4xlarge inf1.2xlarge inf2.8xlarge",
    2: "g4ad.8xlarge g5g.metal",
    4: "g4ad.16xlarge inf1.6xlarge",
    12: "inf2.48xlarge",
    8: "dl1.24xlarge p4de.24xlarge p5.48xlarge "
    "p5e.48xlarge p5en.48xlarge p6-b200.48xlarge p6-b300.48xlarge g6.48xlarge g7e.48xlarge",
    16: "inf1.24xlarge trn1.32xlarge trn1n.32xlarge trn2.48xlarge",
}


@pytest.mark.parametrize("slots", [ORIGINAL_SLOTS, LATER_SLOTS], ids=["of the original", "since"])
def test_types_of_aws_have_the_accelerators_that_they_have(slots: dict[int, str]) -> None:
    shapes = shipped("aws").shapes
    for count, names in slots.items():
        assert {name: shapes[name].accelerators for name in names.split()} == dict.fromkeys(names.split(), count)


@pytest.mark.parametrize(
    ("machine", "slot_type"),
    [
        ("g5g.xlarge", "cuda"),
        ("g6f.large", "cuda"),
        ("g4ad.xlarge", "rocm"),
        ("inf2.xlarge", "artificial"),
        ("trn2.3xlarge", "artificial"),
        ("dl1.24xlarge", "artificial"),
    ],
)
def test_slots_are_of_the_type_that_an_agent_can_find(machine: str, slot_type: str) -> None:
    assert slots_of(shipped("aws").shapes[machine], cpu_slots_allowed=False)[1] == slot_type


def test_shapes_are_those_of_machines() -> None:
    for cloud in ("aws", "gcp"):
        for shape in shipped(cloud).shapes.values():
            assert shape.vcpus and shape.memory_gib and bool(shape.accelerator) == (shape.accelerators > 0), shape


def test_every_price_is_of_a_known_type_and_above_nothing() -> None:
    for cloud in ("aws", "gcp"):
        catalogue = shipped(cloud)
        assert {type_ for type_, _ in catalogue.prices} <= set(catalogue.shapes)
        # The host of a4-highgpu-8g costs nothing beside its accelerators, which cost all of it.
        free = {type_ for (type_, _), price in catalogue.prices.items() if price <= 0}
        assert free <= {"a4-highgpu-8g"}
        assert all(price > 0 for price in catalogue.accelerator_prices.values())


def test_a_price_on_google_cloud_is_that_of_machine_and_accelerators() -> None:
    catalogue = shipped("gcp")
    host = catalogue.prices["a2-highgpu-4g", "us-central1"]
    apart = catalogue.accelerator_prices["nvidia-tesla-a100", 4, "us-central1"]
    assert catalogue.price(catalogue.shapes["a2-highgpu-4g"], "us-central1") == pytest.approx(host + apart)
    assert (
        catalogue.price(catalogue.shapes["n2-standard-4"], "us-central1")
        == catalogue.prices["n2-standard-4", "us-central1"]
    )


@pytest.mark.parametrize(
    ("machine", "region"),
    [
        ("a2-ultragpu-1g", "us-central1"),
        ("a2-ultragpu-1g", "europe-west4"),
        ("a3-ultragpu-8g", "europe-west4"),
        ("a3-highgpu-8g", "us-central1"),
        ("a3-highgpu-8g", "us-west1"),
        ("a3-highgpu-8g", "asia-southeast1"),
        ("a3-megagpu-8g", "asia-southeast1"),
        ("a2-highgpu-1g", "europe-west4"),
        ("a2-highgpu-1g", "asia-southeast1"),
        ("a4-highgpu-8g", "asia-southeast1"),
        ("a2-highgpu-1g", "me-central1"),
    ],
)
def test_a_price_that_cannot_be_right_or_is_not_in_the_table_is_unknown(machine: str, region: str) -> None:
    catalogue = shipped("gcp")
    assert catalogue.price(catalogue.shapes[machine], region) is None


def test_a_missing_price_is_unknown_and_not_nothing() -> None:
    catalogue = shipped("aws")
    assert catalogue.price(catalogue.shapes["p5e.48xlarge"], "us-east-1") is None
    assert catalogue.price(catalogue.shapes["p2.xlarge"], "us-east-1") is None


def test_what_a_cloud_tells_of_its_types_goes_before_the_table() -> None:
    told = Shape(instance_type="g5.xlarge", vcpus=4, memory_gib=16, accelerator="A10G", accelerators=2)
    new = Shape(instance_type="q1.large", vcpus=2, memory_gib=4)
    catalogue = shipped("aws").with_shapes([told, new])
    assert (catalogue.shapes["g5.xlarge"], catalogue.shapes["q1.large"]) == (told, new)
    assert catalogue.price(told, "us-east-1") == shipped("aws").price(told, "us-east-1")


def test_nothing_is_known_of_other_clouds() -> None:
    assert shipped("local") == Catalogue()


@pytest.mark.parametrize(
    ("zone", "region", "local"),
    [
        ("us-east-1a", "us-east-1", False),
        ("ap-northeast-1c", "ap-northeast-1", False),
        ("us-gov-west-1b", "us-gov-west-1", False),
        ("us-west-2-lax-1a", "us-west-2", True),
        ("us-east-1", None, False),
        ("", None, False),
    ],
)
def test_zones_of_aws_tell_their_region(zone: str, region: str | None, local: bool) -> None:
    assert (aws.region_of(zone), aws.is_local_zone(zone)) == (region, local)


@pytest.mark.parametrize(
    ("type_", "spot", "quota", "code"),
    [
        ("p3.2xlarge", False, "P", "L-417A185B"),
        ("p5.48xlarge", False, "P", "L-417A185B"),
        ("p4d.24xlarge", True, "P", "L-7212CCBC"),
        ("p5en.48xlarge", True, "P5 and later", "L-C4BD4855"),
        ("p6-b200.48xlarge", True, "P5 and later", "L-C4BD4855"),
        ("g5.xlarge", False, "G and VT", "L-DB2E81BA"),
        ("g5.xlarge", True, "G and VT", "L-3819A6DF"),
        ("gr6.4xlarge", False, "G and VT", "L-DB2E81BA"),
        ("trn1.32xlarge", False, "Trn", "L-2C3B7624"),
        ("inf2.xlarge", True, "Inf", "L-B5D1601B"),
        ("dl1.24xlarge", True, "DL", "L-85EED4F7"),
        ("m5.large", False, aws.STANDARD.name, "L-1216C47A"),
        ("x2idn.16xlarge", False, "X", "L-7295265B"),
        ("t3.medium", True, aws.STANDARD.name, "L-34B43A08"),
    ],
)
def test_types_that_are_counted_together_share_a_quota(type_: str, spot: bool, quota: str, code: str) -> None:
    found = aws.quota(type_, spot=spot)
    assert (found.name, found.code(spot=spot)) == (quota, code)


@pytest.mark.parametrize(
    ("machine", "vcpus", "memory", "accelerators"),
    [
        ("n1-standard-32", 32, 120.0, 0),
        ("n1-highmem-8", 8, 52.0, 0),
        ("n2-custom-4-8192", 4, 8.0, 0),
        ("custom-6-23040", 6, 22.5, 0),
        ("c3-standard-176-lssd", 176, 704.0, 0),
        ("m1-ultramem-40", 40, None, 0),
        ("a3-megagpu-8g", 208, 1872.0, 8),
    ],
)
def test_machine_types_of_google_cloud_say_what_they_are(
    machine: str, vcpus: int, memory: float | None, accelerators: int
) -> None:
    shape = gcp.shape_of(shipped("gcp"), machine)
    assert shape is not None
    assert (shape.vcpus, shape.memory_gib, shape.accelerators) == (vcpus, memory, accelerators)


@pytest.mark.parametrize(
    "machine", ["n1-standart-4", "n1", "a9-standard-4", "a2-highgpu-3g", "g5-standard-4", "standard-4"]
)
def test_a_machine_type_that_nobody_knows_is_not_guessed(machine: str) -> None:
    assert gcp.shape_of(shipped("gcp"), machine) is None
