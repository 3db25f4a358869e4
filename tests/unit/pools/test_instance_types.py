"""What AWS tells of machine types, when it does not, and what is left then."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from resolute.clock import Clock, FixedClock
from resolute.config import MasterConfig, ResourcePool, parse_master_config
from resolute.config.errors import InvalidConfig
from resolute.errors import InvalidInput
from resolute_master.domain.ids import PoolName
from resolute_master.pools.instance_types import learnt, remembered
from resolute_master.pools.policies import Types, pool_policies
from resolute_provisioner.catalogue import Shape, shipped
from resolute_provisioner.clouds.base import Transient
from support.cluster import T0

FILE = "instance-types.json"
NEW = Shape(instance_type="q1.huge", vcpus=8, memory_gib=64.0, accelerator="Q1", accelerators=4)


class ToldTypes:
    """Knows some types, or fails."""

    def __init__(self, *shapes: Shape, error: Exception | None = None) -> None:
        self.told = {shape.instance_type: shape for shape in shapes}
        self.error = error
        self.asked: list[set[str]] = []

    async def shapes(self, instance_types: Collection[str]) -> tuple[Shape, ...]:
        self.asked.append(set(instance_types))
        if self.error is not None:
            raise self.error
        return tuple(self.told[type_] for type_ in sorted(instance_types) if type_ in self.told)


def a_master(tmp_path: Path, **provider: Any) -> MasterConfig:
    aws = {"type": "aws", "ssh_key_name": "k", "region": "us-east-1", **provider}
    return parse_master_config(
        {"cluster_state_dir": str(tmp_path), "resource_pools": [{"pool_name": "default", "provider": aws}]}
    )


async def asked(config: MasterConfig, source: ToldTypes) -> Types:
    def of(_: ResourcePool, __: Clock) -> ToldTypes:
        return source

    return await learnt(config, of, FixedClock(T0))


def slots(config: MasterConfig, types: Types) -> list[int]:
    scaling = pool_policies(config, types)[PoolName("default")].scaling
    assert scaling is not None
    return [offer.slots for offer in scaling.offers]


async def test_a_type_that_only_aws_knows_has_the_slots_that_it_tells(tmp_path: Path) -> None:
    config, source = a_master(tmp_path, offers=[{"instance_types": ["q1.huge", "g5.xlarge"]}]), ToldTypes(NEW)
    with pytest.raises(InvalidConfig, match="is not a known type"):
        pool_policies(config)
    assert slots(config, await asked(config, source)) == [1, 4]
    assert source.asked == [{"q1.huge", "g5.xlarge"}]


async def test_the_last_answer_holds_while_there_is_none(tmp_path: Path) -> None:
    config = a_master(tmp_path, instance_type="q1.huge")
    await asked(config, ToldTypes(NEW))
    for error in (Transient("no route to host"), TimeoutError()):
        assert slots(config, await asked(config, ToldTypes(error=error))) == [4]
    # A journal is run again without asking anybody.
    assert slots(config, remembered(config)) == [4]


async def test_without_any_answer_the_table_is_left(tmp_path: Path) -> None:
    config = a_master(tmp_path, instance_type="g5.12xlarge")
    assert slots(config, await asked(config, ToldTypes(error=Transient("no")))) == [4]
    assert not (tmp_path / FILE).exists()


async def test_an_answer_that_knows_no_accelerators_says_nothing_against_the_table(tmp_path: Path) -> None:
    config = a_master(tmp_path, instance_type="trn1.32xlarge")
    silent = Shape(instance_type="trn1.32xlarge", vcpus=128, memory_gib=512.0)
    assert slots(config, await asked(config, ToldTypes(silent))) == [16]
    two = Shape(instance_type="trn1.32xlarge", vcpus=128, memory_gib=512.0, accelerator="Trainium", accelerators=2)
    assert slots(config, await asked(config, ToldTypes(two))) == [2]


async def test_answers_add_up_over_starts(tmp_path: Path) -> None:
    await asked(a_master(tmp_path, instance_type="q1.huge"), ToldTypes(NEW))
    later = a_master(tmp_path, instance_type="g5.xlarge")
    await asked(later, ToldTypes(shipped("aws").shapes["g5.xlarge"]))
    assert {row["instance_type"] for row in json.loads((tmp_path / FILE).read_text())} == {"q1.huge", "g5.xlarge"}
    assert remembered(later)["aws"].shapes["q1.huge"] == NEW


async def test_nobody_is_asked_for_pools_elsewhere(tmp_path: Path) -> None:
    config = parse_master_config({"cluster_state_dir": str(tmp_path)})
    source = ToldTypes(NEW)
    assert await asked(config, source) == {}
    assert source.asked == []


async def test_what_cannot_be_read_or_written_is_said(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("[{]")
    config = a_master(tmp_path, instance_type="q1.huge")
    with pytest.raises(InvalidInput, match="remove it"):
        await asked(config, ToldTypes(NEW))
    (tmp_path / FILE).write_text('[{"no": "shape"}]')
    with pytest.raises(InvalidInput, match="remove the file to query them again"):
        await asked(config, ToldTypes(NEW))
    in_a_file = a_master(tmp_path / FILE, instance_type="q1.huge")
    with pytest.raises(InvalidInput, match=r"cluster_state_dir|cannot be read"):
        await asked(in_a_file, ToldTypes(NEW))
