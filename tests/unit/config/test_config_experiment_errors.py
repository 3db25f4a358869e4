"""Every kind of mistake in an experiment's configuration, named with its path, its value and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from resolute.config import InvalidConfig, parse_experiment
from resolute.errors import InvalidInput
from support.config import an_experiment, case_id, cases_in, problems_in


@pytest.mark.parametrize("case", cases_in(Path(__file__).parent / "bad_experiments.yaml"), ids=case_id)
def test_one_mistake_is_one_line(case: dict[str, Any]) -> None:
    assert problems_in(parse_experiment, an_experiment(**case["changes"])) == [case["error"]]


def test_all_mistakes_are_reported_at_once_and_sorted() -> None:
    given = an_experiment(
        resources={"slots_per_trial": "x", "weigth": 1},
        debug=3,
        searcher={"name": "random"},
        bind_mounts=[{"container_path": 1}],
    )
    lines = problems_in(parse_experiment, given)
    assert lines == [
        "<config>.bind_mounts[0].container_path: must be a string (value 1); put it in quotes",
        "<config>.bind_mounts[0].host_path: is a required property",
        "<config>.debug: must be true or false (value 3)",
        '<config>.resources.slots_per_trial: must be an integer (value "x")',
        "<config>.resources.weigth: is not a known key; did you mean 'weight'?",
        "<config>.searcher.max_trials: is a required property",
    ]


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ("name", "<config>.name: is a required property"),
        (
            "checkpoint_storage",
            "<config>.checkpoint_storage: is a required property, as the cluster has none; give it here, or set "
            "checkpoint_storage in the master's configuration, for all experiments",
        ),
        ("searcher", "<config>.searcher: is a required property"),
        ("reproducibility", "<config>.reproducibility: is a required property"),
        ("entrypoint", "<config>.entrypoint: is a required property; managed experiments require entrypoint"),
    ],
)
def test_what_nobody_gave_is_missing(missing: str, expected: str) -> None:
    given = an_experiment()
    del given[missing]
    assert problems_in(parse_experiment, given) == [expected]


def test_a_tag_that_is_missing_is_asked_for() -> None:
    given = {**an_experiment(), "searcher": {"metric": "loss"}}
    (line,) = problems_in(parse_experiment, given)
    assert line.startswith("<config>.searcher.name: is a required property; use one of: single, random, grid")


def test_grid_search_needs_counts_everywhere() -> None:
    range_ = {"type": "int", "minval": 1, "maxval": 3}
    given = an_experiment(
        searcher={"name": "grid"},
        hyperparameters={"a": range_, "g": {"b": {**range_, "count": 2}, "c": range_}, "l": [range_]},
    )
    message = "grid search is in use but count was not provided; add count"
    lines = [line for line in problems_in(parse_experiment, given) if "count" in line]
    assert lines == [f"<config>.hyperparameters.{path}: {message}" for path in ("a", "g.c", "l[0]")]


@pytest.mark.parametrize("name", ["async_halving", "adaptive_asha"])
def test_halving_searchers_need_time(name: str) -> None:
    given = an_experiment(searcher={"name": name, "max_trials": 4, "num_rungs": 2 if name == "async_halving" else None})
    lines = problems_in(parse_experiment, given)
    advice = "where the training code asks for lengths, give max_length instead of both"
    assert lines == [
        f"<config>.searcher.{key}: is a required property of the searcher {name}; {advice}"
        for key in ("max_time", "time_metric")
    ]
    given["searcher"] |= {"max_time": 9}
    (line,) = problems_in(parse_experiment, given)
    assert line == f"<config>.searcher.time_metric: is a required property of the searcher {name}"
    del given["searcher"]["max_time"]
    parse_experiment({**given, "searcher": {**given["searcher"], "max_length": {"batches": 9}}})


def test_secrets_are_never_quoted() -> None:
    given = an_experiment(environment={"registry_auth": {"password": ["hunter2"], "username": 3}})
    assert problems_in(parse_experiment, given) == [
        "<config>.environment.registry_auth.password: must be a string (value hidden); put it in quotes",
        "<config>.environment.registry_auth.username: must be a string (value 3); put it in quotes",
    ]


def test_long_values_are_shortened() -> None:
    (line,) = problems_in(parse_experiment, an_experiment(debug="x" * 1000))
    assert len(line) < 200


def test_the_error_is_one_of_the_kernel() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_experiment(an_experiment(debug=3, lables=[]))
    assert isinstance(caught.value, InvalidConfig)
    assert str(caught.value).startswith("the experiment configuration has 2 errors:\n  <config>.debug")
    assert {problem.path for problem in caught.value.problems} == {("debug",), ("lables",)}


def test_something_that_is_no_mapping_is_refused() -> None:
    not_a_mapping: Any = ["name", "x"]
    with pytest.raises(InvalidInput, match="must be a mapping of keys to values"):
        parse_experiment(not_a_mapping)
