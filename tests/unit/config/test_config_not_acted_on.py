"""Keys that are understood and not acted on: refused by name, while what the cluster returns is accepted."""

from __future__ import annotations

from typing import Any

import pytest

from resolute.config import parse_experiment, parse_master_config, runtime_warnings
from resolute.config.experiment import ExperimentConfig
from resolute.config.master import MasterConfig
from resolute.config.not_acted_on import AGENT_KEYS, EXPERIMENT_KEYS, MASTER_KEYS, WARNED_KEYS, look_up
from resolute.config.reference import rows_of
from support.config import an_experiment, problems_in

OTHER_VALUES: dict[str, dict[str, Any]] = {
    "searcher.name": {"searcher": {"name": "custom"}},
    "environment.proxy_ports": {"environment": {"proxy_ports": [{"proxy_port": 80}]}},
    "integrations": {"integrations": {"webhooks": {"webhook_id": [1]}}},
    "tensorboard_storage": {"tensorboard_storage": {"type": "gcs", "bucket": "b"}},
    "optimizations.aggregation_frequency": {"optimizations": {"aggregation_frequency": 2}},
    "optimizations.average_aggregated_gradients": {"optimizations": {"average_aggregated_gradients": False}},
    "optimizations.average_training_metrics": {"optimizations": {"average_training_metrics": False}},
    "optimizations.gradient_compression": {"optimizations": {"gradient_compression": True}},
    "optimizations.grad_updates_size_file": {"optimizations": {"grad_updates_size_file": "f"}},
    "optimizations.mixed_precision": {"optimizations": {"mixed_precision": "O1"}},
    "optimizations.tensor_fusion_threshold": {"optimizations": {"tensor_fusion_threshold": 1}},
    "optimizations.tensor_fusion_cycle_time": {"optimizations": {"tensor_fusion_cycle_time": 2}},
    "optimizations.auto_tune_tensor_fusion": {"optimizations": {"auto_tune_tensor_fusion": True}},
}


@pytest.mark.parametrize("path", [row.path for row in EXPERIMENT_KEYS])
def test_another_value_of_each_listed_key_is_refused_by_name(path: str) -> None:
    (line,) = problems_in(parse_experiment, an_experiment(**OTHER_VALUES[path]))
    assert line.startswith(f"<config>.{path}: this value is not acted on yet")


@pytest.mark.parametrize("name", ["custom", "sync_halving", "adaptive", "adaptive_simple"])
def test_the_other_searchers_are_refused_by_name(name: str) -> None:
    needed = {"max_trials": 3, "num_rungs": 2, "budget": {"batches": 9}}
    keys = {
        "sync_halving": ("num_rungs", "budget"),
        "adaptive": ("budget",),
        "adaptive_simple": ("max_trials",),
    }.get(name, ())
    given = an_experiment()
    given["searcher"] = {"name": name, "metric": "m", **{key: needed[key] for key in keys}}
    (line,) = problems_in(parse_experiment, given)
    assert (
        f'<config>.searcher.name: this value is not acted on yet (value "{name}"); use one of single, random, grid'
        in line
    )


def test_a_refusal_quotes_no_secrets() -> None:
    token = {"integrations": {"pachyderm": {"pachd": {}, "dataset": {"token": "hunter2"}}}}
    storage = {"tensorboard_storage": {"type": "s3", "bucket": "b", "secret_key": "hunter2"}}
    assert "hunter2" not in repr(problems_in(parse_experiment, an_experiment(**token, **storage)))


def test_uncategorized_and_disabled_policies_are_nothing_special() -> None:
    parse_experiment(an_experiment(workspace="Uncategorized", project="Uncategorized", log_policies=[], bind_mounts=[]))


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"environment": {"pod_spec": {"spec": {}}}}, "environment.pod_spec"),
        ({"resources": {"native_parallel": True}}, "resources.native_parallel"),
        ({"slurm": {"sbatch_args": ["-x"]}}, "slurm"),
        ({"pbs": {"slots_per_node": 2}}, "pbs"),
        ({"security": {"kerberos": {"config_file": "f"}}}, "security"),
    ],
)
def test_what_has_no_effect_here_is_accepted_with_a_warning(changes: dict[str, Any], path: str) -> None:
    config = parse_experiment(an_experiment(**changes))
    (warning,) = runtime_warnings(config)
    assert warning.startswith(f"config.{path}: has no effect here; ")
    assert "hunter2" not in warning
    assert path in [row.path for row in WARNED_KEYS]


def test_a_plain_configuration_has_no_warnings() -> None:
    assert runtime_warnings(parse_experiment(an_experiment())) == ()


def test_every_listed_path_is_a_key() -> None:
    for model, table in ((ExperimentConfig, (*EXPERIMENT_KEYS, *WARNED_KEYS)), (MasterConfig, MASTER_KEYS)):
        known = {row.path for row in rows_of(model)}
        for row in table:
            path = row.path.replace("resource_pools[].task_container_defaults.", "task_container_defaults.")
            assert path.replace("resource_pools[].scheduler.", "resource_manager.scheduler.") in known, row.path
    assert AGENT_KEYS


def test_the_defaults_of_a_master_are_all_accepted() -> None:
    written = parse_master_config({}).model_dump(mode="json", by_alias=True)
    for row in MASTER_KEYS:
        assert all(value in row.accepted for _, value in look_up(written, row.path)), row.path
