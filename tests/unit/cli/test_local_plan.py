"""What the flags of `det deploy local` come to: databases, sizes, GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from resolute.config import parse_master_config
from resolute.errors import FailedPrecondition, InvalidInput
from resolute_cli.command import UsageError
from resolute_cli.local_gpus import gpus_of_this_machine
from resolute_cli.local_plan import ClusterPlan, database_of, master_configuration, settings_of
from resolute_cli.nouns.deploy_local import sized
from resolute_provisioner.clouds.local.configuration import LocalProvider

TWO_GPUS = """\
0, GPU-aaaa, NVIDIA A100, 00000000:07:00.0, 550.54.15, Disabled, 0
1, GPU-bbbb, NVIDIA A100, 00000000:0B:00.0, 550.54.15, Disabled, 1
"""


def with_driver(directory: Path, text: str, code: int = 0) -> dict[str, str]:
    """Variables with a PATH on which there is a vendor's tool that prints this."""
    tool = directory / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\nexit {code}\n")
    tool.chmod(0o755)
    return {"PATH": f"{directory}:/usr/bin:/bin"}


@pytest.mark.parametrize(
    ("url", "password", "database"),
    [
        ("postgresql://r:s%40t@db:6432/resolute", None, ("db", 6432, "r", "s@t", "resolute", "disable")),
        ("postgres://r@db/resolute?sslmode=require", "own", ("db", 5432, "r", "own", "resolute", "require")),
    ],
)
def test_a_database_is_named_by_its_address(url: str, password: str | None, database: tuple[object, ...]) -> None:
    read = database_of(url, password)
    assert tuple(read[key] for key in ("host", "port", "user", "password", "name", "ssl_mode")) == database
    config = parse_master_config(master_configuration(plan_with(read), None))
    assert config.db.type == "postgres"
    assert str(read["password"]) not in str(settings_of(plan_with(read)))


def plan_with(database: dict[str, object]) -> ClusterPlan:
    return ClusterPlan(name="c", directory=Path("/c"), database=database, machines=False)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://r:secret@db/x", "'mysql' is no kind of database"),
        ("/var/lib/x.db", "'nothing' is no kind of database"),
        ("postgresql://r:secret@db:port/x", "its port is no number"),
        ("postgresql://db/x", "it has no user"),
        ("postgresql://r:secret@db", "it has no name of a database"),
        ("postgresql://r:secret@db/x?sslmode=maybe", "sslmode 'maybe' is none of"),
    ],
)
def test_an_address_of_no_database_is_refused_without_its_password(url: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as refused:
        database_of(url, None)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("gpus", "slots", "most", "size"),
    [
        (0, None, None, (1, 2)),
        (0, 2, None, (2, 1)),
        (8, None, None, (8, 1)),
        (8, 2, None, (2, 4)),
        (8, None, 4, (2, 4)),
        (8, 3, 2, (3, 2)),
        (1, None, None, (1, 1)),
    ],
)
def test_machines_share_processors_or_gpus(
    gpus: int, slots: int | None, most: int | None, size: tuple[int, int]
) -> None:
    assert sized(gpus, 2, slots, most) == size


@pytest.mark.parametrize(("slots", "most"), [(9, None), (4, 3), (None, 9)])
def test_more_slots_than_gpus_are_refused(slots: int | None, most: int | None) -> None:
    with pytest.raises(UsageError, match="more than the 8 GPUs"):
        sized(8, 64, slots, most)


def test_gpus_that_are_there_are_used_unless_they_are_not_wanted(tmp_path: Path) -> None:
    environ = with_driver(tmp_path, TWO_GPUS)
    found = gpus_of_this_machine(None, environ, ask_nvml=False)
    assert found == gpus_of_this_machine(True, environ, ask_nvml=False) == ("cuda", ("GPU-aaaa", "GPU-bbbb"))
    assert gpus_of_this_machine(False, environ) == ("cpu", ())
    one = {**environ, "CUDA_VISIBLE_DEVICES": "1"}
    assert gpus_of_this_machine(None, one, ask_nvml=False) == ("cuda", ("GPU-bbbb",))


def test_a_driver_that_does_not_work_is_said_and_not_passed_over(tmp_path: Path) -> None:
    environ = with_driver(
        tmp_path, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", 9
    )
    with pytest.raises(FailedPrecondition, match=r"couldn't communicate.*--no-gpu"):
        gpus_of_this_machine(None, environ, ask_nvml=False)


def test_the_configuration_gives_each_machine_gpus_of_its_own() -> None:
    plan = ClusterPlan(
        name="c", directory=Path("/c"), slot_type="cuda", gpus=("GPU-a", "GPU-b"), slots_per_instance=1, max_instances=2
    )
    provider = parse_master_config(master_configuration(plan, None)).resource_pools[0].provider
    assert isinstance(provider, LocalProvider)
    assert (provider.slot_type, provider.visible_gpus) == ("cuda", ("GPU-a", "GPU-b"))
