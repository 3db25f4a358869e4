"""How two layers of an experiment's configuration become one."""

from __future__ import annotations

from typing import Any

import pytest

from resolute.config import merge


def mounts(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"host_path": host, "container_path": container} for host, container in pairs]


@pytest.mark.parametrize(
    ("higher", "lower", "merged"),
    [
        # scalars, mappings, null
        ({"a": 1}, {"a": 2, "b": 3}, {"a": 1, "b": 3}),
        ({"a": None}, {"a": 2}, {"a": 2}),
        ({"a": 2}, {"a": None}, {"a": 2}),
        ({"max_restarts": 0, "debug": False}, {"max_restarts": 5, "debug": True}, {"max_restarts": 0, "debug": False}),
        ({"resources": {"weight": 2}}, {"resources": {"max_slots": 4}}, {"resources": {"weight": 2, "max_slots": 4}}),
        (
            {"data": {"a": {"x": 1}}},
            {"data": {"a": {"x": 2, "y": 3}, "b": 4}},
            {"data": {"a": {"x": 1, "y": 3}, "b": 4}},
        ),
        ({"data": {"a": 1}}, {"data": {"a": {"x": 1}}}, {"data": {"a": 1}}),
        # ordinary lists
        ({"entrypoint": ["a"]}, {"entrypoint": ["b", "c"]}, {"entrypoint": ["a"]}),
        (
            {"environment": {"add_capabilities": []}},
            {"environment": {"add_capabilities": ["X"]}},
            {"environment": {"add_capabilities": []}},
        ),
        # sets and keyed lists
        ({"labels": ["b", "a"]}, {"labels": ["c", "a"]}, {"labels": ["a", "b", "c"]}),
        ({"labels": {"x": True, "y": False}}, {"labels": ["z"]}, {"labels": ["x", "z"]}),
        (
            {"bind_mounts": mounts(("/h", "/a"), ("/h2", "/a"))},
            {"bind_mounts": mounts(("/l", "/a"), ("/l", "/b"))},
            {"bind_mounts": mounts(("/h", "/a"), ("/h2", "/a"), ("/l", "/b"))},
        ),
        (
            {"resources": {"devices": ["/dev/x:/dev/a:rw"]}},
            {"resources": {"devices": [*mounts(("/dev/y", "/dev/a")), "/dev/z:/dev/b"]}},
            {"resources": {"devices": ["/dev/x:/dev/a:rw", "/dev/z:/dev/b"]}},
        ),
        (
            {"environment": {"proxy_ports": [{"proxy_port": 1, "proxy_tcp": True}]}},
            {"environment": {"proxy_ports": [{"proxy_port": 1}, {"proxy_port": 2}]}},
            {"environment": {"proxy_ports": [{"proxy_port": 1, "proxy_tcp": True}, {"proxy_port": 2}]}},
        ),
        # per device type
        (
            {"environment": {"environment_variables": ["A=2"]}},
            {"environment": {"environment_variables": {"gpu": ["A=1"], "cpu": ["B=1"]}}},
            {
                "environment": {
                    "environment_variables": {"cpu": ["B=1", "A=2"], "cuda": ["A=1", "A=2"], "rocm": ["A=2"]}
                }
            },
        ),
        (
            {"environment": {"image": {"cpu": "mine"}}},
            {"environment": {"image": "theirs"}},
            {"environment": {"image": {"cpu": "mine", "cuda": "theirs", "rocm": "theirs"}}},
        ),
        # log policies
        (
            {"log_policies": [{"name": "a"}, {"pattern": "p", "action": {"type": "exclude_node"}}]},
            {
                "log_policies": [
                    {"name": "a", "pattern": "x"},
                    {"name": "b", "pattern": "x"},
                    {"pattern": "p", "action": "exclude_node"},
                    {"pattern": "p", "action": "cancel_retries"},
                ]
            },
            {
                "log_policies": [
                    {"name": "a"},
                    {"pattern": "p", "action": {"type": "exclude_node"}},
                    {"name": "b", "pattern": "x"},
                    {"pattern": "p", "action": "cancel_retries"},
                ]
            },
        ),
        # tagged unions
        (
            {"searcher": {"name": "random", "max_trials": 2}},
            {"searcher": {"name": "random", "max_trials": 9, "max_concurrent_trials": 3, "metric": "m"}},
            {"searcher": {"name": "random", "max_trials": 2, "max_concurrent_trials": 3, "metric": "m"}},
        ),
        (
            {"searcher": {"name": "single"}},
            {"searcher": {"name": "random", "max_trials": 9, "metric": "m", "smaller_is_better": False}},
            {"searcher": {"name": "single", "metric": "m", "smaller_is_better": False}},
        ),
        (
            {"searcher": {"metric": "mine"}},
            {"searcher": {"name": "random", "max_trials": 9, "metric": "m"}},
            {"searcher": {"metric": "mine", "name": "random", "max_trials": 9}},
        ),
        (
            {"checkpoint_storage": {"type": "directory", "container_path": "/c"}},
            {"checkpoint_storage": {"type": "shared_fs", "host_path": "/h", "save_trial_best": 4}},
            {"checkpoint_storage": {"type": "directory", "container_path": "/c", "save_trial_best": 4}},
        ),
        (
            {"checkpoint_storage": {"save_trial_best": 2}},
            {"checkpoint_storage": {"type": "shared_fs", "host_path": "/h", "save_trial_best": 4}},
            {"checkpoint_storage": {"save_trial_best": 2, "type": "shared_fs", "host_path": "/h"}},
        ),
        (
            {"checkpoint_storage": {"type": "azure", "account_url": "u"}},
            {"checkpoint_storage": {"type": "azure", "container": "c", "connection_string": "s"}},
            {"checkpoint_storage": {"type": "azure", "account_url": "u", "container": "c"}},
        ),
        (
            {"checkpoint_storage": {"type": "azure", "container": "mine"}},
            {"checkpoint_storage": {"type": "azure", "container": "c", "account_url": "u", "credential": "k"}},
            {"checkpoint_storage": {"type": "azure", "container": "mine", "account_url": "u", "credential": "k"}},
        ),
        # lengths are one value
        (
            {"min_validation_period": {"epochs": 1}},
            {"min_validation_period": {"batches": 9}},
            {"min_validation_period": {"epochs": 1}},
        ),
        (
            {"min_validation_period": {"epochs": None}},
            {"min_validation_period": {"batches": 9}},
            {"min_validation_period": {"batches": 9}},
        ),
        (
            {"searcher": {"max_length": {"epochs": 1}}},
            {"searcher": {"name": "single", "max_length": {"batches": 9}}},
            {"searcher": {"name": "single", "max_length": {"epochs": 1}}},
        ),
        # hyperparameters: groups merge, the rest is replaced whole
        (
            {"hyperparameters": {"g": {"a": 1}, "x": {"type": "int", "minval": 1, "maxval": 2}}},
            {
                "hyperparameters": {
                    "g": {"a": 2, "b": 3},
                    "x": {"type": "int", "minval": 0, "maxval": 9, "count": 3},
                    "y": 1,
                }
            },
            {"hyperparameters": {"g": {"a": 1, "b": 3}, "x": {"type": "int", "minval": 1, "maxval": 2}, "y": 1}},
        ),
        ({"hyperparameters": {"g": 1}}, {"hyperparameters": {"g": {"a": 2}}}, {"hyperparameters": {"g": 1}}),
        (
            {"hyperparameters": {"a": None, "g": {"b": None}}},
            {"hyperparameters": {"a": 1, "g": {"b": {"type": "const", "val": 2}, "c": None}}},
            {"hyperparameters": {"a": None, "g": {"b": None, "c": None}}},
        ),
        ({"hyperparameters": None}, {"hyperparameters": {"a": 1}}, {"hyperparameters": {"a": 1}}),
        # pod specs
        (
            {"environment": {"pod_spec": {"spec": {"containers": [{"name": "a", "x": 1}], "args": [1]}}}},
            {
                "environment": {
                    "pod_spec": {
                        "spec": {"containers": [{"name": "b"}, {"name": "a", "x": 2, "y": 3}], "args": [2], "z": 1}
                    }
                }
            },
            {
                "environment": {
                    "pod_spec": {
                        "spec": {"containers": [{"name": "a", "x": 1, "y": 3}, {"name": "b"}], "args": [1], "z": 1}
                    }
                }
            },
        ),
        # what has the wrong type stays, so that validation can name it
        ({"labels": 3}, {"labels": ["a"]}, {"labels": 3}),
        ({"bind_mounts": "x"}, {"bind_mounts": []}, {"bind_mounts": "x"}),
        ({"searcher": []}, {"searcher": {"name": "single"}}, {"searcher": []}),
    ],
)
def test_the_higher_side_wins_by_the_rule_of_its_key(
    higher: dict[str, Any], lower: dict[str, Any], merged: dict[str, Any]
) -> None:
    before = repr((higher, lower))
    assert merge(higher, lower) == merged
    assert repr((higher, lower)) == before


def test_an_empty_side_changes_nothing() -> None:
    config = {"labels": ["a"], "searcher": {"name": "single"}, "hyperparameters": {"a": 1}}
    assert merge(config, {}) == config
    assert merge({}, config) == config
