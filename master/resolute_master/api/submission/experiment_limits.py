"""Limits on the texts and the search of an experiment. Raises `InvalidInput` naming key, size and limit."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from resolute import DISTRIBUTION
from resolute.errors import InvalidInput
from resolute_master.api.http.limits import (
    MAX_CONFIG_BYTES,
    MAX_DESCRIPTION_LENGTH,
    MAX_LABEL_LENGTH,
    MAX_NAME_LENGTH,
    MAX_NOTES_LENGTH,
    MAX_TRIALS,
    MAX_TRIALS_AT_ONCE,
    MAX_WORD_BYTES,
)
from resolute_master.lifecycle.experiments import MAX_LABELS
from resolute_master.searcher.hyperparameters import Space
from resolute_master.searcher.methods import make


def check_config_text(text: str) -> None:
    size = len(text.encode())
    if size > MAX_CONFIG_BYTES:
        raise InvalidInput(
            f"config: has {size} bytes, over the limit of {MAX_CONFIG_BYTES}; put large tables into files of the context"
        )


def check_words(config: Mapping[str, Any]) -> None:
    """Checks the length of the values in a complete configuration that the operating system passes to a program."""
    environment = config.get("environment") or {}
    variables = environment.get("environment_variables") or []
    lists = variables.values() if isinstance(variables, Mapping) else (variables,)
    for word in (str(word) for words in lists for word in words or ()):
        if len(word.encode()) > MAX_WORD_BYTES:
            name = word.partition("=")[0][:MAX_NAME_LENGTH]
            raise InvalidInput(
                f"environment.environment_variables: '{name}' has {len(word.encode())} bytes, over the limit of {MAX_WORD_BYTES}; "
                "put its value into a file of the context"
            )
    entrypoint = config.get("entrypoint")
    for word in entrypoint if isinstance(entrypoint, list) else [entrypoint or ""]:
        if len(str(word).encode()) > MAX_WORD_BYTES:
            raise InvalidInput(
                f"entrypoint: has {len(str(word).encode())} bytes in one word, over the limit of {MAX_WORD_BYTES}; put it into a "
                "script of the context"
            )


def check_texts(
    *,
    name: str | None = None,
    description: str | None = None,
    notes: str | None = None,
    labels: Sequence[str] | None = None,
) -> None:
    """Checks the length of texts. None: not given."""
    for key, text, limit in (
        ("name", name, MAX_NAME_LENGTH),
        ("description", description, MAX_DESCRIPTION_LENGTH),
        ("notes", notes, MAX_NOTES_LENGTH),
    ):
        if text is not None and len(text) > limit:
            raise InvalidInput(f"{key}: has {len(text)} characters, over the limit of {limit}; shorten it")
    if labels is not None and len(labels) > MAX_LABELS:
        raise InvalidInput(f"labels: {len(labels)} labels are over the limit of {MAX_LABELS}; remove some")
    for label in labels or ():
        if not label.strip():
            raise InvalidInput(f"labels: {label[:40]!r} must not be blank; give it a text, or leave it out")
        if len(label) > MAX_LABEL_LENGTH:
            raise InvalidInput(
                f"labels: '{label[:40]}...' has {len(label)} characters, over the limit of {MAX_LABEL_LENGTH}; shorten it"
            )


def check_search(searcher: Mapping[str, Any], space: Space) -> None:
    """Checks that a complete configuration can be searched, the number of trials, and the number of trials that begin together."""
    trials = searcher.get("max_trials") or 1
    if trials > MAX_TRIALS:
        raise InvalidInput(
            f"searcher.max_trials: {trials} is over the limit of {MAX_TRIALS}; divide the search among several experiments"
        )
    method = make(searcher, space)
    if method.requires and importlib.util.find_spec(method.requires) is None:
        raise InvalidInput(
            f"searcher.name: {searcher['name']} needs {method.requires}, which the master lacks; ask its administrator to "
            f"run pip install '{DISTRIBUTION}[{method.requires}]' there"
        )
    if method.max_trials > MAX_TRIALS:
        raise InvalidInput(
            f"hyperparameters: the grid has {method.max_trials} points, over the limit of {MAX_TRIALS} trials; lower some "
            "counts"
        )
    if method.at_once > MAX_TRIALS_AT_ONCE:
        raise InvalidInput(
            f"searcher.max_concurrent_trials: {method.at_once} trials at once are over the limit of {MAX_TRIALS_AT_ONCE}; "
            "lower it (0 is all, or what suits the search)"
        )
