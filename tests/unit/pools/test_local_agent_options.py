"""What the agents of a local pool's machines are told: they share one machine."""

from __future__ import annotations

import pytest

from resolute.config import parse_master_config
from resolute_master.pools.clouds import master_place
from resolute_provisioner.clouds.local.configuration import LocalProvider
from resolute_provisioner.clouds.local.driver import agent_options


@pytest.mark.parametrize(
    ("processors", "slots", "most", "threads"), [(8, 1, 4, 2), (8, 2, 4, 1), (7, 1, 2, 3), (2, 1, 4, 1), (64, 4, 1, 16)]
)
def test_the_slots_of_all_its_machines_share_the_processors(
    processors: int, slots: int, most: int, threads: int
) -> None:
    config = parse_master_config(
        {
            "resource_pools": [
                {
                    "pool_name": "default",
                    "provider": {"type": "local", "slots_per_instance": slots, "max_instances": most},
                }
            ]
        }
    )
    provider = config.resource_pools[0].provider
    assert isinstance(provider, LocalProvider)
    assert agent_options(provider, master_place(config, {}), processors)["slot_threads"] == threads
