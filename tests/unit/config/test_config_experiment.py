"""What is accepted of an experiment's configuration, in which forms, and how it is completed."""

from __future__ import annotations

from typing import Any

import pytest

from resolute.config import InvalidConfig, Length, mask_experiment, parse_experiment
from resolute.config.hyperparameters import ConstHyperparameter, HyperparameterGroup, IntHyperparameter
from resolute.config.searcher import RandomSearcher
from support.config import an_experiment


def written(**changes: Any) -> dict[str, Any]:
    return parse_experiment(an_experiment(**changes)).to_json()


SMALLEST: dict[str, Any] = {
    "name": "digits",
    "description": None,
    "labels": [],
    "data": {},
    "workspace": "",
    "project": "",
    "entrypoint": "python3 train.py",
    "hyperparameters": {},
    "searcher": {
        "name": "single",
        "metric": "loss",
        "smaller_is_better": True,
        "source_trial_id": None,
        "source_checkpoint_uuid": None,
        "max_length": {"batches": 100},
    },
    "resources": {
        "slots_per_trial": 1,
        "max_slots": None,
        "weight": 1,
        "priority": None,
        "resource_pool": "",
        "shm_size": None,
        "is_single_node": None,
        "devices": [],
        "native_parallel": False,
    },
    "environment": {
        "image": {
            "cpu": "pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime",
            "cuda": "pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime",
            "rocm": "rocm/pytorch:latest",
        },
        "environment_variables": {"cpu": [], "cuda": [], "rocm": []},
        "proxy_ports": [],
        "ports": {},
        "force_pull_image": False,
        "registry_auth": None,
        "add_capabilities": [],
        "drop_capabilities": [],
        "pod_spec": None,
    },
    "bind_mounts": [],
    "checkpoint_storage": {
        "type": "shared_fs",
        "host_path": "/checkpoints",
        "storage_path": None,
        "propagation": "rprivate",
        "save_experiment_best": 0,
        "save_trial_best": 1,
        "save_trial_latest": 1,
    },
    "checkpoint_policy": "best",
    "max_restarts": 5,
    "preemption_timeout": None,
    "log_policies": [
        {"name": "CUDA OOM", "pattern": ".*CUDA out of memory.*"},
        {"name": "ECC Error", "pattern": ".*uncorrectable ECC error encountered.*"},
    ],
    "profiling": {"enabled": False, "begin_on_batch": 0, "end_after_batch": None, "sync_timings": True},
    "reproducibility": {"experiment_seed": 7},
    "integrations": None,
    "perform_initial_validation": False,
    "min_validation_period": {"batches": 0},
    "min_checkpoint_period": {"batches": 0},
    "scheduling_unit": 100,
    "records_per_epoch": 0,
    "optimizations": {
        "aggregation_frequency": 1,
        "average_aggregated_gradients": True,
        "average_training_metrics": True,
        "gradient_compression": False,
        "grad_updates_size_file": None,
        "mixed_precision": "O0",
        "tensor_fusion_threshold": 64,
        "tensor_fusion_cycle_time": 1,
        "auto_tune_tensor_fusion": False,
    },
    "debug": False,
}
"""What a configuration without anything that can be left out becomes."""


def test_the_smallest_configuration_is_completed() -> None:
    assert written() == SMALLEST


def test_null_is_the_same_as_absent() -> None:
    nulls = dict.fromkeys(("description", "labels", "resources", "environment", "max_restarts", "internal", "slurm"))
    given = {
        **an_experiment(),
        **nulls,
        "profiling": {"enabled": None},
        "searcher": {**an_experiment()["searcher"], "smaller_is_better": None},
    }
    assert parse_experiment(given) == parse_experiment(an_experiment())


def test_old_keys_are_dropped() -> None:
    config = written(data_layer={"type": "s3", "anything": [1]}, resources={"agent_label": "gpu"})
    assert config == written()


def test_version_zero_is_the_only_one() -> None:
    assert parse_experiment({**an_experiment(), "version": 0}) == parse_experiment(an_experiment())


def test_hyperparameters_take_all_their_forms() -> None:
    config = parse_experiment(
        an_experiment(
            hyperparameters={
                "lr": 1e-3,
                "layers": [1, {"type": "int"}],
                "nothing": None,
                "units": {"type": "int", "minval": 1, "maxval": 8.0, "count": None},
                "decay": {"type": "log", "minval": -4, "maxval": -1, "base": 10},
                "kind": {"type": "categorical", "vals": ["a", 1, None, {"deep": True}]},
                "constant": {"type": "const", "val": None},
                "optimizer": {
                    "momentum": 0.9,
                    "empty": {},
                    "inner": {"x": {"type": "double", "minval": 0, "maxval": 1, "count": 3}},
                },
            }
        )
    )
    assert config.hyperparameters["lr"] == ConstHyperparameter(val=0.001)
    assert config.hyperparameters["units"] == IntHyperparameter(minval=1, maxval=8)
    assert isinstance(config.hyperparameters["optimizer"], HyperparameterGroup)
    assert config.to_json()["hyperparameters"] == {
        "lr": {"type": "const", "val": 0.001},
        "layers": {"type": "const", "val": [1, {"type": "int"}]},
        "nothing": {"type": "const", "val": None},
        "units": {"type": "int", "minval": 1, "maxval": 8},
        "decay": {"type": "log", "minval": -4, "maxval": -1, "base": 10},
        "kind": {"type": "categorical", "vals": ["a", 1, None, {"deep": True}]},
        "constant": {"type": "const", "val": None},
        "optimizer": {
            "momentum": {"type": "const", "val": 0.9},
            "empty": {},
            "inner": {"x": {"type": "double", "minval": 0, "maxval": 1, "count": 3}},
        },
    }


@pytest.mark.parametrize(
    ("length", "serialised"),
    [(100, 100), (100.0, 100), ({"epochs": 3}, {"epochs": 3}), ({"records": 5, "batches": None}, {"records": 5})],
)
def test_searcher_lengths(length: Any, serialised: Any) -> None:
    searcher = {"name": "random", "metric": "acc", "max_trials": 4, "max_length": length}
    config = parse_experiment({**an_experiment(), "searcher": searcher})
    assert isinstance(config.searcher, RandomSearcher)
    assert config.searcher.max_concurrent_trials == 16
    assert config.to_json()["searcher"]["max_length"] == serialised


def test_a_searcher_without_length_has_none() -> None:
    config = parse_experiment({**an_experiment(), "searcher": {"name": "single", "metric": "loss"}})
    assert "max_length" not in config.to_json()["searcher"]


def test_lengths_say_their_unit() -> None:
    assert (Length(records=5).unit, Length(records=5).units) == ("records", 5)


def test_variables_and_images_take_old_and_short_forms() -> None:
    same = written(environment={"image": "my/image:1", "environment_variables": ["A=1", "EMPTY="]})["environment"]
    assert same["image"] == {"cpu": "my/image:1", "cuda": "my/image:1", "rocm": "my/image:1"}
    assert same["environment_variables"] == {kind: ["A=1", "EMPTY="] for kind in ("cpu", "cuda", "rocm")}
    each = written(
        environment={
            "image": {"gpu": "old"},
            "environment_variables": {"gpu": ["O=1"], "cuda": ["N=1"], "cpu": ["C=1"]},
        }
    )
    assert each["environment"]["image"]["cuda"] == "old"
    assert each["environment"]["environment_variables"] == {"cpu": ["C=1"], "cuda": ["N=1"], "rocm": []}


def test_labels_are_a_set_with_an_old_form() -> None:
    assert written(labels=["b", "a", "b"])["labels"] == ["a", "b"]
    assert written(labels={"x": True, "y": False})["labels"] == ["x"]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (1024, 1024),
        ("1024", 1024),
        ("4g", 4 << 30),
        ("4 GiB", 4 << 30),
        ("1.5k", 1536),
        ("10b", 10),
        ("2MB", 2 << 20),
        ("1T", 1 << 40),
    ],
)
def test_memory_sizes(text: Any, size: int) -> None:
    assert written(resources={"shm_size": text})["resources"]["shm_size"] == size


def test_entrypoints_are_strings_or_lists() -> None:
    assert written(entrypoint=["python3", "-m", "train"])["entrypoint"] == ["python3", "-m", "train"]
    assert written(entrypoint="model_def:Trial")["entrypoint"] == "model_def:Trial"


def test_an_unmanaged_experiment_needs_no_entrypoint() -> None:
    given = an_experiment()
    del given["entrypoint"]
    assert parse_experiment(given, managed=False).entrypoint is None


@pytest.mark.parametrize(
    ("storage_path", "relative"),
    [(None, ""), ("a/b", "a/b"), ("/checkpoints/x", "x"), ("/checkpoints", ""), ("a/../b", "b")],
)
def test_shared_storage_knows_its_place(storage_path: str | None, relative: str) -> None:
    config = parse_experiment(an_experiment(checkpoint_storage={"storage_path": storage_path}))
    assert config.checkpoint_storage.type == "shared_fs"
    assert config.checkpoint_storage.relative_path == relative


def test_only_keys_that_task_libraries_know_are_in_shared_storage() -> None:
    known = {
        "type",
        "host_path",
        "storage_path",
        "container_path",
        "propagation",
        "tensorboard_path",
        "checkpoint_path",
    }
    known |= {"save_experiment_best", "save_trial_best", "save_trial_latest"}
    assert (
        set(written(checkpoint_storage={"storage_path": "x", "tensorboard_path": "t"})["checkpoint_storage"]) <= known
    )


def test_defaults_lie_under_what_was_given() -> None:
    given = {key: value for key, value in an_experiment().items() if key not in ("name", "checkpoint_storage")}
    defaults = {
        "name": "generated",
        "max_restarts": 2,
        "checkpoint_storage": {"type": "directory", "container_path": "/c"},
    }
    config = parse_experiment({**given, "max_restarts": 0}, defaults=defaults)
    assert (config.name, config.max_restarts, config.checkpoint_storage.type) == ("generated", 0, "directory")


def test_a_configuration_is_not_changed_by_reading_it() -> None:
    given = an_experiment(hyperparameters={"a": {"b": 1}}, environment={"environment_variables": ["A=1"]})
    before = repr(given)
    parse_experiment(given)
    assert repr(given) == before


def test_secrets_are_masked_for_display() -> None:
    given = an_experiment(
        data={"path": "/d", "secrets": {"token": "t0p", "deep": {"x": 1}}},
        environment={"registry_auth": {"username": "u", "password": "t0p"}},
    )
    for shown in (mask_experiment(given), mask_experiment(parse_experiment(given).to_json())):
        assert "t0p" not in repr(shown)
        assert shown["data"] == {"path": "/d", "secrets": {"token": "********", "deep": "********"}}
        assert shown["environment"]["registry_auth"]["username"] == "u"
    storage = {"type": "s3", "bucket": "b", "access_key": "t0p", "secret_key": "t0p"}
    assert "t0p" not in repr(mask_experiment({"checkpoint_storage": storage}))
    assert given["data"]["secrets"]["token"] == "t0p"


def test_hyperparameters_that_depend_on_each_other_are_all_named() -> None:
    def choice(other: str) -> dict[str, Any]:
        return {"type": "categorical", "vals": [1], "when": {other: [1]}}

    space = {"a": choice("b"), "b": choice("c"), "c": choice("b"), "d": {"type": "categorical", "vals": [1]}}
    with pytest.raises(InvalidConfig) as refused:
        parse_experiment(an_experiment(hyperparameters=space))
    assert [problem.path for problem in refused.value.problems] == [
        ("hyperparameters", "b", "when"),
        ("hyperparameters", "c", "when"),
    ]
