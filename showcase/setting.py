"""The configuration of the cluster: two elastic pools on spot and on demand, and one of fixed machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resolute.config import MasterConfig, parse_master_config

ZONES = ("us-east-1a", "us-east-1b")

SPOT_PRICES: Mapping[str, float] = {"g5.xlarge": 0.38, "g5.12xlarge": 2.05, "p4d.24xlarge": 11.8}
"""Initial prices of the market."""

FIXED_MACHINES = (("workstations", 2), ("workstations", 2))
"""Pool and slots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """A workspace with its projects, members and monthly budget."""

    workspace: str
    projects: tuple[str, ...]
    people: tuple[str, ...]
    per_month: float | None


TEAMS = (
    Team(workspace="vision", projects=("segmentation", "detection"), people=("alice", "bob", "carol"), per_month=4200),
    Team(workspace="language", projects=("translation", "summaries"), people=("dan", "erin", "frank"), per_month=6000),
    Team(workspace="forecasting", projects=("demand",), people=("grace", "heidi"), per_month=None),
)


def master_config(storage: Path, port: int) -> MasterConfig:
    """The master's configuration, without keys that only a real cloud needs."""
    return parse_master_config(
        {
            "host": "127.0.0.1",
            "port": port,
            "checkpoint_storage": {"type": "shared_fs", "host_path": str(storage), "save_trial_latest": 1},
            "resource_manager": {
                "type": "agent",
                "cluster_name": "showcase",
                "default_compute_resource_pool": "gpus",
                "default_aux_resource_pool": "workstations",
                "scheduler": {"type": "priority", "preemption": True},
            },
            "resource_pools": [
                _elastic(
                    "gpus",
                    "A10G, one or four a machine",
                    [["g5.xlarge"], ["g5.12xlarge"]],
                    max_instances=10,
                    budget={"per_day": 320},
                ),
                _elastic(
                    "large",
                    "A100, eight a machine",
                    [["p4d.24xlarge"]],
                    max_instances=3,
                    budget={"per_month": 14_000},
                ),
                {"pool_name": "workstations", "description": "under the desks", "agent_reconnect_wait": "45m"},
            ],
        }
    )


def _elastic(
    name: str, description: str, types: list[list[str]], *, max_instances: int, budget: dict[str, float]
) -> dict[str, Any]:
    return {
        "pool_name": name,
        "description": description,
        "budget": budget,
        "shared_file_system": True,
        "agent_reconnect_wait": "45m",
        "provider": {
            "type": "aws",
            "region": "us-east-1",
            "image_id": "ami-0123456789abcdef0",
            "ssh_key_name": "showcase",
            "max_instances": max_instances,
            "max_idle_agent_period": "10m",
            "network_interface": {"subnets": {zone: f"subnet-{zone[-1]}" for zone in ZONES}},
            "offers": [{"instance_types": each, "markets": ["spot", "on_demand"]} for each in types],
        },
    }
