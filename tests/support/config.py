"""Configurations for tests: a minimal complete one, and the errors of a bad one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from resolute.config import InvalidConfig, merge
from resolute.config.yaml_text import load_yaml_value


def an_experiment(**changes: Any) -> dict[str, Any]:
    """A complete experiment configuration as a user writes it, with `changes` merged over it."""
    smallest: dict[str, Any] = {
        "name": "digits",
        "entrypoint": "python3 train.py",
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 100}},
        "checkpoint_storage": {"type": "shared_fs", "host_path": "/checkpoints"},
        "reproducibility": {"experiment_seed": 7},
    }
    return merge(changes, smallest)


def problems_in(read: Callable[..., object], *arguments: Any, **options: Any) -> list[str]:
    """The lines of the InvalidConfig that `read` must raise."""
    with pytest.raises(InvalidConfig) as caught:
        read(*arguments, **options)
    lines = str(caught.value).split("\n")[1:]
    assert len(lines) == len(caught.value.problems), "one line for each problem"
    return [line.strip() for line in lines]


def cases_in(path: Path) -> list[dict[str, Any]]:
    """A table of bad configurations, each with the error that it must give."""
    cases: list[dict[str, Any]] = load_yaml_value(path.read_text(encoding="utf-8"))
    return cases


def case_id(case: dict[str, Any]) -> str:
    """The id of a case: the path in its error."""
    return str(case["error"]).partition(":")[0]
