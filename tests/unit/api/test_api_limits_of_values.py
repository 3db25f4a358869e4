"""Limits of texts, lists and searches at their edges: what fits is taken, one more is refused by its key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from resolute.errors import InvalidInput, LimitExceeded, ResoluteError
from resolute.wire.rest.experiment_changes import File
from resolute_master.api.http import limits
from resolute_master.api.http.paging import page_of
from resolute_master.api.submission.context_archive import check_files
from resolute_master.api.submission.experiment_limits import check_config_text, check_search, check_texts, check_words
from resolute_master.lifecycle.experiments import MAX_LABELS

RANDOM = {"name": "random"}


def files(count: int = 1, path: str = "a") -> list[File]:
    return [
        File(path=f"{path}{n or ''}", type=48, content=b"", mtime=0, mode=0o644, uid=0, gid=0) for n in range(count)
    ]


@pytest.mark.parametrize(
    ("check", "limit", "key"),
    [
        (lambda n: check_config_text("x" * n), limits.MAX_CONFIG_BYTES, "config"),
        (
            lambda n: check_words({"environment": {"environment_variables": {"cpu": ["A=" + "x" * (n - 2)]}}}),
            limits.MAX_WORD_BYTES,
            "environment_variables: 'A'",
        ),
        (lambda n: check_words({"entrypoint": "x" * n}), limits.MAX_WORD_BYTES, "entrypoint"),
        (lambda n: check_words({"entrypoint": ["x" * n]}), limits.MAX_WORD_BYTES, "entrypoint"),
        (lambda n: check_texts(name="x" * n), limits.MAX_NAME_LENGTH, "name"),
        (lambda n: check_texts(description="x" * n), limits.MAX_DESCRIPTION_LENGTH, "description"),
        (lambda n: check_texts(notes="x" * n), limits.MAX_NOTES_LENGTH, "notes"),
        (lambda n: check_texts(labels=[str(i) for i in range(n)]), MAX_LABELS, "labels"),
        (lambda n: check_texts(labels=["x" * n]), limits.MAX_LABEL_LENGTH, "labels"),
        (
            lambda n: check_search({**RANDOM, "max_trials": n, "max_concurrent_trials": 16}, {}),
            limits.MAX_TRIALS,
            "max_trials",
        ),
        (
            lambda n: check_search({**RANDOM, "max_trials": limits.MAX_TRIALS, "max_concurrent_trials": n}, {}),
            limits.MAX_TRIALS_AT_ONCE,
            "max_concurrent_trials",
        ),
        (
            lambda n: check_search({**RANDOM, "max_trials": n, "max_concurrent_trials": 0}, {}),
            limits.MAX_TRIALS_AT_ONCE,
            "max_concurrent_trials",
        ),
        (lambda n: check_files(files(n)), limits.MAX_FILES, "modelDefinition"),
        (lambda n: check_files(files(path="x" * n)), limits.MAX_PATH_BYTES, "path"),
    ],
)
def test_the_edge(check: Callable[[int], Any], limit: int, key: str) -> None:
    check(limit)
    with pytest.raises((InvalidInput, LimitExceeded), match=key) as refusal:
        check(limit + 1)
    assert isinstance(refusal.value, ResoluteError) and f"{limit}" in str(refusal.value).replace(",", "")


@pytest.mark.parametrize("label", ["", " ", "\t\n"])
def test_a_blank_label_is_refused(label: str) -> None:
    with pytest.raises(InvalidInput, match=r"labels: .* must not be blank"):
        check_texts(labels=["a", label])


def test_bytes_count_and_not_characters() -> None:
    with pytest.raises(InvalidInput, match="over the limit"):
        check_config_text("é" * (limits.MAX_CONFIG_BYTES // 2 + 1))


def test_a_search_without_these_keys_has_one_trial() -> None:
    check_search({"name": "single"}, {})
    check_search({**RANDOM, "max_trials": 3, "max_concurrent_trials": 10 * limits.MAX_TRIALS_AT_ONCE}, {})


def test_a_grid_of_too_many_points_and_a_bracket_of_too_many_places_are_refused() -> None:
    axis = {"type": "double", "minval": 0, "maxval": 1, "count": 400}
    with pytest.raises(InvalidInput, match="the grid has 160000 points, over the limit of 100000"):
        check_search({"name": "grid"}, {"a": axis, "b": axis})
    halving = {"name": "async_halving", "num_rungs": 2, "max_trials": 9000, "divisor": 4, "max_length": 9}
    check_search({**halving, "max_concurrent_trials": 0}, {})
    with pytest.raises(InvalidInput, match="3000 trials at once are over the limit"):
        check_search({**halving, "max_concurrent_trials": 3000}, {})


@pytest.mark.parametrize("limit", [0, limits.MAX_PAGE_ROWS + 1, 2**31 - 1])
def test_a_page_has_so_many_rows_and_says_where_the_next_begins(limit: int) -> None:
    rows = range(2 * limits.MAX_PAGE_ROWS + 7)
    seen: list[int] = []
    while len(seen) < len(rows):
        page, where = page_of(rows, offset=len(seen), limit=limit)
        assert len(page) <= limits.MAX_PAGE_ROWS and where.end_index == len(seen) + len(page)
        assert where.total == len(rows)
        seen += page
    assert seen == list(rows)
