"""A completed configuration is accepted again and means the same; merging obeys its laws."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from resolute.config import format_duration, load_yaml, merge, parse_duration, parse_experiment
from resolute.errors import InvalidInput
from support.config import an_experiment
from support.effort import examples

words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
names = st.from_regex(r"[a-z_][a-z0-9_]{0,6}", fullmatch=True).filter(lambda name: name != "type")
finite = st.floats(allow_nan=False, allow_infinity=False, width=32)
scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | finite | words
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=6
)


def optional(**strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Mappings with any of these keys."""
    return st.fixed_dictionaries({}, optional=strategies)


def a_range(
    kind: str, low: st.SearchStrategy[Any], **more: st.SearchStrategy[Any]
) -> st.SearchStrategy[dict[str, Any]]:
    def of(ends: tuple[Any, Any]) -> st.SearchStrategy[dict[str, Any]]:
        fixed = {"type": st.just(kind), "minval": st.just(min(ends)), "maxval": st.just(max(ends)), **more}
        return st.fixed_dictionaries(fixed, optional={"count": st.none() | st.integers(1, 9)})

    return st.tuples(low, low).filter(lambda ends: bool(ends[0] != ends[1])).flatmap(of)


specifications = st.one_of(
    scalars,
    st.lists(json_values, max_size=3),
    st.fixed_dictionaries({"type": st.just("const"), "val": json_values}),
    st.fixed_dictionaries({"type": st.just("categorical"), "vals": st.lists(json_values, max_size=3)}),
    a_range("int", st.integers(-100, 100)),
    a_range("double", finite | st.integers(-9, 9)),
    a_range("log", st.integers(-9, 9), base=st.floats(0.5, 16)),
)
hyperparameters = st.dictionaries(
    names,
    st.recursive(specifications, lambda inner: st.dictionaries(names, inner, max_size=3), max_leaves=8),
    max_size=4,
)
lengths = st.sampled_from(["batches", "records", "epochs"]).flatmap(
    lambda unit: st.fixed_dictionaries({unit: st.integers(1, 999)})
)
searchers = st.one_of(
    st.fixed_dictionaries(
        {"name": st.just("single"), "metric": words}, optional={"max_length": lengths | st.integers(0, 99)}
    ),
    st.fixed_dictionaries(
        {"name": st.just("random"), "metric": words, "max_trials": st.integers(1, 99)},
        optional={
            "max_concurrent_trials": st.integers(0, 9),
            "smaller_is_better": st.booleans(),
            "max_length": lengths,
            "source_trial_id": st.integers(1, 99),
        },
    ),
)
variables = st.lists(st.tuples(names, words).map("=".join), max_size=3)
storages = st.one_of(
    st.fixed_dictionaries({"type": st.just("directory"), "container_path": words}),
    st.fixed_dictionaries(
        {"type": st.just("shared_fs"), "host_path": st.just("/h")},
        optional={
            "storage_path": st.sampled_from(["a", "a/b", "/h/x"]),
            "save_trial_best": st.integers(0, 9),
            "container_path": words,
        },
    ),
)
configurations = st.fixed_dictionaries(
    {"entrypoint": words | st.lists(words, min_size=1, max_size=3), "searcher": searchers, "checkpoint_storage": storages},
    optional={
        "name": words,
        "description": st.none() | words,
        "labels": st.lists(words, max_size=3) | st.dictionaries(words, st.booleans(), max_size=3),
        "data": st.dictionaries(words, json_values, max_size=3),
        "hyperparameters": hyperparameters,
        "resources": optional(
            slots_per_trial=st.integers(0, 64),
            max_slots=st.none() | st.integers(0, 64),
            priority=st.none() | st.integers(1, 99),
            weight=st.floats(0.1, 9) | st.integers(1, 9),
            resource_pool=words,
            shm_size=st.integers(0, 2**40) | st.sampled_from(["4g", "1.5 MiB", "10b"]),
            is_single_node=st.none() | st.booleans(),
        ),
        "environment": optional(
            environment_variables=variables | st.dictionaries(st.sampled_from(["cpu", "gpu", "rocm"]), variables),
            image=words | st.dictionaries(st.sampled_from(["cpu", "gpu", "rocm"]), words),
            force_pull_image=st.booleans(),
            registry_auth=optional(username=words, password=words),
        ),
        "max_restarts": st.integers(0, 9),
        "min_validation_period": lengths,
        "scheduling_unit": st.integers(1, 999),
        "preemption_timeout": st.none() | st.integers(0, 9999),
        "retention_policy": st.fixed_dictionaries({"log_retention_days": st.integers(-1, 32767)}),
        "slurm": optional(sbatch_args=st.lists(words, max_size=2), slots_per_node=st.integers(1, 8)),
        "checkpoint_policy": st.sampled_from(["best", "all", "none"]),
        "reproducibility": st.fixed_dictionaries({"experiment_seed": st.integers(0, 2**32 - 1)}),
        "debug": st.booleans(),
    },
)  # fmt: skip


def completed(raw: dict[str, Any]) -> dict[str, Any]:
    return {"name": "n", "reproducibility": {"experiment_seed": 1}, **raw}


@given(configurations)
@settings(max_examples=examples(150))
def test_a_completed_configuration_is_accepted_again(raw: dict[str, Any]) -> None:
    config = parse_experiment(completed(raw))
    written = config.to_json()
    assert json.loads(json.dumps(written)) == written, "it survives being sent as JSON"
    again = parse_experiment(written)
    assert again == config
    assert again.to_json() == written


@given(configurations)
@settings(max_examples=examples(60))
def test_json_text_is_yaml_text(raw: dict[str, Any]) -> None:
    written = parse_experiment(completed(raw)).to_json()
    assert load_yaml(json.dumps(written)) == written


@given(configurations, configurations)
@settings(max_examples=examples(60))
def test_a_complete_configuration_hides_everything_single_below_it(
    higher: dict[str, Any], lower: dict[str, Any]
) -> None:
    """Fork: what was returned, over any other cluster's defaults, keeps each single value that it names."""
    complete = parse_experiment(completed(higher))
    merged = parse_experiment(complete.to_json(), defaults=completed(lower))
    for name in (
        "name",
        "entrypoint",
        "max_restarts",
        "checkpoint_policy",
        "debug",
        "scheduling_unit",
        "reproducibility",
    ):
        assert getattr(merged, name) == getattr(complete, name)
    assert merged.searcher.name == complete.searcher.name
    assert set(merged.labels) >= set(complete.labels)
    assert set(merged.hyperparameters) >= set(complete.hyperparameters)


@given(configurations, configurations, configurations)
@settings(max_examples=examples(60))
def test_layers_may_be_folded_in_either_order(
    top: dict[str, Any], middle: dict[str, Any], bottom: dict[str, Any]
) -> None:
    """Single values and mappings do not depend on which two layers are merged first."""
    keys = ("name", "description", "resources", "max_restarts", "debug", "reproducibility", "labels", "data")
    layers = [{key: layer[key] for key in keys if key in layer} for layer in (top, middle, bottom)]
    for layer in layers:
        layer["labels"] = sorted(layer["labels"]) if "labels" in layer else []
    left = merge(merge(layers[0], layers[1]), layers[2])
    right = merge(layers[0], merge(layers[1], layers[2]))
    assert left == right


@given(st.integers(0, 10**7) | st.integers(0, 10**7).map(lambda milliseconds: milliseconds / 1000))
def test_durations_are_read_as_they_are_written(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@given(
    json_values,
    st.sampled_from([*sorted(an_experiment()), "resources", "environment", "labels", "log_policies", "bind_mounts"]),
)
@settings(max_examples=examples(200))
def test_any_value_anywhere_is_read_or_refused_in_words(value: Any, key: str) -> None:
    """No input ends in anything but a configuration or an error for people."""
    try:
        config = parse_experiment(
            {**an_experiment(), key: value}, defaults={"labels": ["x"], "resources": {"weight": 2}}
        )
    except InvalidInput as error:
        assert str(error)
    else:
        assert parse_experiment(config.to_json()) == config
