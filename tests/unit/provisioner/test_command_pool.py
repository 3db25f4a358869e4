"""A pool of the operator's own machines, from its configuration to its offers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from resolute.config import InvalidConfig, MasterConfig, parse_master_config
from resolute.errors import InvalidInput
from resolute_master.domain.ids import PoolName
from resolute_master.pools.clouds import check, completed
from resolute_master.pools.policies import pool_policies
from resolute_master.pools.pool_file import offers_in
from resolute_provisioner.model import Offer
from support.cluster import T0
from support.config import problems_in

LEAST: dict[str, Any] = {
    "type": "command",
    "master_url": "http://10.0.0.1:8080",
    "launch_command": ["/usr/local/sbin/rack", "on"],
    "end_command": ["/usr/local/sbin/rack", "off"],
    "list_command": ["/usr/local/sbin/rack", "list"],
    "machines": [{"names": ["node-1", "node-2"], "instance_type": "dgx-a100", "slots": 8}],
}
AT = "<config>.resource_pools[0].provider"


def raw(**keys: Any) -> dict[str, Any]:
    provider = {key: value for key, value in {**LEAST, **keys}.items() if value is not None}
    return {
        "checkpoint_storage": {"type": "s3", "bucket": "checkpoints"},
        "resource_pools": [{"pool_name": "default", "provider": provider}],
    }


def offers(config: MasterConfig) -> dict[str, Offer]:
    scaling = pool_policies(config)[PoolName("default")].scaling
    assert scaling is not None
    return {offer.offer_id: offer for offer in scaling.offers}


def test_each_type_in_each_place_is_an_offer_at_the_operators_price() -> None:
    machines = [
        {"names": ["node-1", "node-2"], "instance_type": "dgx-a100", "slots": 8, "slot_type": "cuda", "zone": "rack-1"},
        {"names": ["node-3"], "instance_type": "dgx-a100", "slots": 8, "zone": "rack-2"},
        {"names": ["cpu-1"], "instance_type": "old", "slots": 0},
    ]
    config = parse_master_config(raw(machines=machines, prices={"dgx-a100": {"on_demand": 1.5}}))
    found = offers(config)
    assert list(found) == [
        "command/default/old/on_demand",
        "command/rack-1/dgx-a100/on_demand",
        "command/rack-2/dgx-a100/on_demand",
    ]
    first = found["command/rack-1/dgx-a100/on_demand"]
    assert (first.slots, first.slot_type, first.price_per_hour, first.price_source) == (
        8,
        "cuda",
        1.5,
        "set by the operator",
    )
    old = found["command/default/old/on_demand"]
    assert (old.slots, old.slot_type, old.price_per_hour) == (0, "none", None)


def test_a_pool_may_use_all_of_its_machines_unless_it_says_less() -> None:
    (pool,) = parse_master_config(raw()).resource_pools
    assert pool.provider is not None and pool.provider.max_instances == 2
    (pool,) = parse_master_config(raw(max_instances=1)).resource_pools
    assert pool.provider is not None and pool.provider.max_instances == 1


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"launch_command": ["rack", "on"]}, f"{AT}.launch_command: must begin with the absolute path"),
        ({"end_command": []}, f"{AT}.end_command: "),
        ({"list_command": None}, f"{AT}.list_command: is a required property"),
        (
            {"max_instances": 3},
            f"{AT}.max_instances: must not be greater than the number of machines, which is 2 (value 3)",
        ),
        ({"prices": {"dgx": {"on_demand": 1}}}, f"{AT}.prices.dgx: is no instance type of this provider"),
        ({"prices": {"dgx-a100": {"spot": 1}}}, f"{AT}.prices.dgx-a100.spot: is for a spot market, and"),
        (
            {"machines": [{"names": ["a", "a"], "instance_type": "t", "slots": 1}]},
            f'{AT}.machines[0].names[1]: occurs twice (value "a"); remove one',
        ),
        (
            {"machines": [{"names": [each], "instance_type": "t", "slots": 1} for each in "ab"]},
            f"{AT}.machines[1].instance_type: is the type of an earlier entry in the same zone (value",
        ),
        (
            {"machines": [{"names": ["-rf"], "instance_type": "t", "slots": 1}]},
            f"{AT}.machines[0].names[0]: must be a name without spaces and slashes that does not begin with '-'",
        ),
    ],
)
def test_a_mistake_is_named(keys: dict[str, Any], problem: str) -> None:
    assert any(each.startswith(problem) for each in problems_in(parse_master_config, raw(**keys))), problems_in(
        parse_master_config, raw(**keys)
    )


def test_checkpoints_in_a_directory_of_the_machines_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="shared_file_system: true"):
        parse_master_config({**raw(), "checkpoint_storage": {"type": "shared_fs", "host_path": "/c"}})


def test_a_start_needs_the_programs(tmp_path: Path) -> None:
    program = tmp_path / "rack"
    program.write_text("#!/bin/sh\n")
    keys = {key: [str(program)] for key in ("launch_command", "end_command", "list_command")}
    config = parse_master_config(raw(**keys))
    with pytest.raises(InvalidInput, match=r"provider\.launch_command of pool 'default': .*rack is no program on this"):
        completed(config, {})
    program.chmod(0o755)
    assert completed(config, {}) == config
    check(config)


def test_a_start_needs_an_address_that_machines_reach() -> None:
    with pytest.raises(InvalidInput, match=r"provider\.master_url of pool 'default' must be given"):
        check(parse_master_config({**raw(master_url=None), "host": "0.0.0.0"}))


def test_the_pool_of_the_documentation_is_read(tmp_path: Path) -> None:
    """With its prices, by `det pool validate`'s own reader."""
    page = Path(__file__).resolve().parents[3] / "docs" / "provisioning.md"
    section = page.read_text(encoding="utf-8").partition("## Your own machines")[2]
    file = tmp_path / "pools.yaml"
    file.write_text(section.partition("```yaml\n")[2].partition("```")[0], encoding="utf-8")
    (found,) = offers_in(file, T0)
    assert [(offer.id, offer.slots, offer.price) for offer in found.offers] == [
        ("command/default/quad-v100/on_demand", 4, 0.6),
        ("command/default/dgx-a100/on_demand", 8, 1.1),
    ]
    assert (found.max_instances, found.left_to_master, found.asks_prices_of) == (4, (), "")
