"""A refusal of a configuration, found again in its lines."""

from __future__ import annotations

import pytest

from resolute.config import load_yaml, parse_experiment
from resolute.errors import ResoluteError
from resolute_web.problems import problems_of

TEXT = """\
name: first
entrypoint: run
searcher:
  name: random
  max_trials: -1
  metric: loss
environment:
  ports: {a: b}
  colour: red
checkpoint_storage: {type: shared_fs, host_path: /tmp}
bind_mounts:
  - host_path: /a
    container_path: /b
  - host_path: 7
    container_path: /c
"""


def _refusal(text: str) -> str:
    with pytest.raises(ResoluteError) as refused:
        raw = load_yaml(text, what="the experiment configuration")
        parse_experiment(raw, defaults={"reproducibility": {"experiment_seed": 1}})
    return str(refused.value)


def test_each_key_that_is_refused_has_its_line() -> None:
    found = {each.key: each.line for each in problems_of(_refusal(TEXT), TEXT)}
    assert found["searcher.max_trials"] == 5
    assert found["environment.colour"] == 9


def test_a_key_that_is_missing_has_the_line_of_what_it_is_missing_in() -> None:
    text = TEXT.replace("  metric: loss\n", "")
    found = {each.key: each.line for each in problems_of(_refusal(text), text)}
    assert found["searcher.metric"] == 3
    text = TEXT.replace("name: first\n", "")
    found = {each.key: each.line for each in problems_of(_refusal(text), text)}
    assert found["name"] is None


def test_what_is_no_yaml_has_the_line_at_which_reading_ended() -> None:
    text = "name: a\nsearcher: [\nentrypoint: b\n"
    (problem,) = problems_of(_refusal(text), text)
    assert problem.line == 4 or problem.line == 3
    assert "not readable as YAML" in problem.text


@pytest.mark.parametrize(
    ("error", "line", "key"),
    [
        ("searcher.name: sngle is not known", 3, "searcher.name"),
        ("checkpoint_storage.type: its files end with the machine", 10, "checkpoint_storage.type"),
        ("there are too many slots", None, ""),
        ("<config>.bind_mounts[1].host_path: must be text", 14, "bind_mounts[1].host_path"),
    ],
)
def test_a_refusal_of_one_key_is_found_too(error: str, line: int | None, key: str) -> None:
    text = TEXT.replace("searcher:\n  name: random\n", "searcher:\n  metric_name: random\n") if line == 3 else TEXT
    (problem,) = problems_of(error, text)
    assert (problem.line, problem.key) == (line, key)
