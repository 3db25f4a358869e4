"""Where pools are that leave it to the machine of their master, for whoever runs the journal again elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from resolute.config import MasterConfig, parse_master_config
from resolute.errors import InvalidInput
from resolute_master.pools.policies import pool_policies
from resolute_master.pools.remembered import PLACES, recalled, remember_places

AWS: dict[str, Any] = {"type": "aws", "ssh_key_name": "k", "instance_type": "g5.xlarge"}
GCP: dict[str, Any] = {"type": "gcp", "instance_type": {"machine_type": "g2-standard-4"}}


def a_config(state: Path, aws: dict[str, Any] | None = None, gcp: dict[str, Any] | None = None) -> MasterConfig:
    providers = {"default": {**AWS, **(aws or {})}, "google": {**GCP, **(gcp or {})}, "here": {"type": "local"}}
    pools = [{"pool_name": name, "provider": provider} for name, provider in providers.items()]
    return parse_master_config({"cluster_state_dir": str(state), "resource_pools": pools})


def ids(config: MasterConfig) -> list[str]:
    scalings = [policy.scaling for policy in pool_policies(config).values()]
    return [offer.offer_id for scaling in scalings if scaling is not None for offer in scaling.offers]


def test_offers_are_the_same_when_the_journal_is_run_again(tmp_path: Path) -> None:
    completed = a_config(tmp_path, {"region": "us-east-1"}, {"zone": "us-central1-a"})
    remember_places(completed)
    written = a_config(tmp_path)
    assert ids(written) != ids(completed)
    assert ids(recalled(written)) == ids(completed)


def test_what_the_configuration_says_goes_before_what_was_found(tmp_path: Path) -> None:
    remember_places(a_config(tmp_path, {"region": "us-east-1"}, {"zone": "us-central1-a"}))
    moved = a_config(tmp_path, {"region": "us-west-2"}, {"zone": "us-east1-b"})
    assert recalled(moved) == moved


def test_nothing_is_kept_of_pools_elsewhere(tmp_path: Path) -> None:
    local = parse_master_config({"cluster_state_dir": str(tmp_path)})
    remember_places(local)
    assert not (tmp_path / PLACES).exists()
    assert recalled(local) == local


def test_a_damaged_file_is_said(tmp_path: Path) -> None:
    (tmp_path / PLACES).write_text("{")
    with pytest.raises(InvalidInput, match=r"places.json: cannot be read .* remove it"):
        recalled(a_config(tmp_path))
