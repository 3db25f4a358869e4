"""What a cluster gives to an experiment that leaves it out."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from resolute.clock import FixedClock
from resolute.config import MasterConfig, experiment_defaults, parse_experiment, parse_master_config
from resolute.errors import InvalidInput
from resolute.ids import SeededIds
from support.config import problems_in

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SUBMITTED: dict[str, Any] = {"entrypoint": "python3 train.py", "searcher": {"name": "single", "metric": "loss"}}
STORAGE = {"type": "shared_fs", "host_path": "/checkpoints"}


def defaults_of(master: MasterConfig, raw: dict[str, Any], seed: int = 1) -> dict[str, Any]:
    return experiment_defaults(master, raw, ids=SeededIds(seed), clock=FixedClock(NOW))


def a_master(**keys: Any) -> MasterConfig:
    return parse_master_config({"checkpoint_storage": STORAGE, **keys})


def test_a_short_submission_is_completed() -> None:
    config = parse_experiment(SUBMITTED, defaults=defaults_of(a_master(), SUBMITTED))
    assert re.fullmatch(r"Experiment \([a-z]+-[a-z]+-[a-z]+\)", config.name)
    assert config.reproducibility.experiment_seed == int(NOW.timestamp())
    assert config.resources.priority == 42
    assert config.preemption_timeout == 3600
    assert config.checkpoint_storage.type == "shared_fs"
    assert parse_experiment(config.to_json()) == config


def test_names_come_from_the_id_source() -> None:
    names = {defaults_of(a_master(), SUBMITTED, seed)["name"] for seed in range(20)}
    assert len(names) > 15
    assert defaults_of(a_master(), SUBMITTED, 3) == defaults_of(a_master(), SUBMITTED, 3)


def test_without_cluster_storage_the_user_must_name_one() -> None:
    master = parse_master_config({})
    lines = problems_in(parse_experiment, SUBMITTED, defaults=defaults_of(master, SUBMITTED))
    assert lines == [
        "<config>.checkpoint_storage: is a required property, as the cluster has none; give it here, or set "
        "checkpoint_storage in the master's configuration, for all experiments"
    ]


def test_the_named_pool_gives_its_defaults() -> None:
    master = a_master(
        task_container_defaults={
            "environment_variables": ["A=cluster", "B=cluster"],
            "preemption_timeout": 10,
            "image": {"cpu": "c"},
        },
        resource_pools=[
            {"pool_name": "default"},
            {
                "pool_name": "gpu",
                "scheduler": {"default_priority": 7},
                "task_container_defaults": {"environment_variables": {"cuda": ["A=pool"]}, "image": {"cuda": "p"}},
            },
        ],
    )
    raw = {**SUBMITTED, "resources": {"resource_pool": "gpu"}, "environment": {"environment_variables": ["A=user"]}}
    config = parse_experiment(raw, defaults=defaults_of(master, raw))
    variables = config.environment.environment_variables
    assert variables.cuda == ("A=pool", "B=cluster", "A=user")
    assert variables.cpu == ("A=cluster", "B=cluster", "A=user")
    assert (config.environment.image.cpu, config.environment.image.cuda) == ("c", "p")
    assert (config.resources.priority, config.preemption_timeout) == (7, 10)
    other = parse_experiment(SUBMITTED, defaults=defaults_of(master, SUBMITTED))
    assert other.environment.environment_variables.cuda == ("A=cluster", "B=cluster")
    assert other.resources.priority == 42


def test_what_the_user_says_wins() -> None:
    raw = {
        **SUBMITTED,
        "name": "mine",
        "resources": {"priority": 3},
        "reproducibility": {"experiment_seed": 5},
        "preemption_timeout": 1,
    }
    config = parse_experiment(raw, defaults=defaults_of(a_master(), raw))
    assert (config.name, config.resources.priority, config.reproducibility.experiment_seed) == ("mine", 3, 5)
    assert config.preemption_timeout == 1


def test_an_unknown_pool_is_refused_with_the_nearest() -> None:
    raw = {**SUBMITTED, "resources": {"resource_pool": "defalt"}}
    with pytest.raises(InvalidInput, match="there is no pool 'defalt'; did you mean 'default'"):
        defaults_of(a_master(), raw)


def test_mistakes_in_the_submission_are_left_to_its_parser() -> None:
    raw = {**SUBMITTED, "resources": {"slots_per_trial": "x"}}
    lines = problems_in(parse_experiment, raw, defaults=defaults_of(a_master(), raw))
    assert lines == ['<config>.resources.slots_per_trial: must be an integer (value "x")']
    assert problems_in(
        parse_experiment, {**SUBMITTED, "resources": 3}, defaults=defaults_of(a_master(), {**SUBMITTED, "resources": 3})
    )


def test_a_pools_block_folds_over_the_clusters() -> None:
    mount = {"host_path": "/a", "container_path": "/m"}
    master = parse_master_config(
        {
            "task_container_defaults": {
                "shm_size_bytes": 5,
                "force_pull_image": True,
                "add_capabilities": ["B"],
                "bind_mounts": [mount, {**mount, "container_path": "/n"}],
                "registry_auth": {"username": "cluster", "password": "x"},
                "log_policies": [{"name": "a", "pattern": "x"}, {"name": "b", "pattern": "y"}],
                "slurm": {"sbatch_args": ["-c"]},
                "gpu_pod_spec": {"spec": {"on": "gpu"}},
                "cpu_pod_spec": {"spec": {"on": "cpu"}},
            },
            "resource_pools": [
                {
                    "pool_name": "default",
                    "task_container_defaults": {
                        "force_pull_image": False,
                        "add_capabilities": ["A"],
                        "bind_mounts": [{**mount, "host_path": "/pool"}],
                        "registry_auth": {"username": "pool"},
                        "log_policies": [{"name": "a"}],
                        "slurm": {"sbatch_args": ["-p"]},
                    },
                }
            ],
        }
    )
    folded = master.task_defaults_of(master.resource_pools[0])
    assert (folded.shm_size_bytes, folded.force_pull_image, folded.add_capabilities) == (5, True, ("A", "B"))
    assert [(one.host_path, one.container_path) for one in folded.bind_mounts] == [("/pool", "/m"), ("/a", "/n")]
    assert folded.registry_auth is not None
    assert (folded.registry_auth.username, folded.registry_auth.password) == ("pool", None)
    assert [(one.name, one.pattern) for one in folded.log_policies] == [("a", None), ("b", "y")]
    assert folded.slurm is not None
    assert folded.slurm.sbatch_args == ("-p", "-c")
    with_slots = folded.as_defaults(has_slots=True)
    assert with_slots["environment"]["pod_spec"] == {"spec": {"on": "gpu"}}
    assert folded.as_defaults(has_slots=False)["environment"]["pod_spec"] == {"spec": {"on": "cpu"}}
    assert with_slots["environment"]["force_pull_image"] is True
    assert with_slots["environment"]["registry_auth"] == {"username": "pool"}
