"""Machines of the local cloud with GPUs: each has its own, for its whole life."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from resolute_agent.settings import settings_from_mapping
from resolute_provisioner.clouds.base import NoCapacity
from resolute_provisioner.clouds.local.files import MachineFiles, instances_directory
from resolute_provisioner.model import Observed
from support.provisioner import a_request, an_offer
from support.provisioner_worlds import LocalWorld, run_now, wait_until


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    world = LocalWorld(tmp_path / "cloud", boot_delay_s=0.0, gpus=("GPU-a", "GPU-b", "GPU-c", "GPU-d"))
    yield world
    world.close()


def gpus_of(world: LocalWorld, name: str) -> tuple[str, ...]:
    """As the machine's agent reads them."""
    text = MachineFiles(instances_directory(world.root) / name).agent.read_text()
    return settings_from_mapping(json.loads(text), origin=name).visible_gpus


def launch(world: LocalWorld, name: str) -> None:
    run_now(world.cloud.launch(a_request(name, offer=replace(an_offer(), slots=2))))


def test_machines_do_not_share_gpus(world: LocalWorld) -> None:
    launch(world, "i-1")
    launch(world, "i-2")
    launch(world, "i-2")  # told again: the same machine
    assert (gpus_of(world, "i-1"), gpus_of(world, "i-2")) == (("GPU-a", "GPU-b"), ("GPU-c", "GPU-d"))
    with pytest.raises(NoCapacity, match="0 of the 4 GPUs of this machine are free, and a machine needs 2"):
        launch(world, "i-3")
    run_now(world.cloud.terminate(["i-1"]))
    wait_until(
        lambda: any(
            each.provider_id == "i-1" and each.observed is Observed.GONE for each in world.local.list_now(None)
        ),
        what="i-1 is gone",
    )
    launch(world, "i-3")
    assert gpus_of(world, "i-3") == ("GPU-a", "GPU-b")
