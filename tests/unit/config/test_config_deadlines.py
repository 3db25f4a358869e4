"""`resources.deadline`: what is accepted, what moment it becomes, and what its owner is told."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from resolute.config import parse_experiment
from resolute.config.deadlines import deadline_notes, resolved_deadline
from resolute.errors import InvalidInput
from support.config import an_experiment, problems_in

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("36h", "2026-11-23T00:00:00Z"),
        ("1h30m", "2026-11-21T13:30:00Z"),
        ("2026-11-22T18:00:00Z", "2026-11-22T18:00:00Z"),
        ("2026-11-22T18:00:00+02:00", "2026-11-22T16:00:00Z"),
    ],
)
def test_a_deadline_becomes_a_moment_when_it_is_submitted(text: str, moment: str) -> None:
    config = parse_experiment(an_experiment(resources={"deadline": text}))
    assert config.resources.deadline == text
    assert resolved_deadline(text, NOW) == moment
    assert parse_experiment(an_experiment(resources={"deadline": moment})).resources.deadline == moment


@pytest.mark.parametrize("text", ["2026-11-21T12:00:00Z", "2020-01-01T00:00:00Z"])
def test_a_deadline_that_has_passed_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"has passed \(it is 2026-11-21T12:00:00Z\); name a later one"):
        resolved_deadline(text, NOW)


def test_a_deadline_beyond_the_end_of_time_is_refused() -> None:
    with pytest.raises(InvalidInput, match="too far away"):
        resolved_deadline("99999999h", NOW)


def test_what_runs_elsewhere_has_no_deadline_here() -> None:
    (problem,) = problems_in(parse_experiment, an_experiment(resources={"deadline": "36h"}), managed=False)
    assert "is for experiments that run on this cluster" in problem


def test_a_search_whose_trials_all_run_at_once_may_have_one() -> None:
    searcher = {"name": "random", "max_trials": 20, "max_concurrent_trials": 0}
    parse_experiment(an_experiment(resources={"deadline": "36h"}, searcher=searcher))


def test_nothing_is_written_of_a_deadline_that_was_not_given() -> None:
    written = parse_experiment(an_experiment()).to_json()["resources"]
    assert not {"deadline", "estimated_duration"} & written.keys()


def test_the_owner_is_told_what_would_make_it_cheaper() -> None:
    bare = parse_experiment(an_experiment(resources={"deadline": "36h"}))
    full = parse_experiment(
        an_experiment(
            resources={"deadline": "36h", "estimated_duration": "20h"}, min_checkpoint_period={"batches": 100}
        )
    )
    estimate, saves = deadline_notes(bare)
    assert "give resources.estimated_duration" in estimate
    assert "set min_checkpoint_period" in saves
    assert deadline_notes(full) == deadline_notes(parse_experiment(an_experiment())) == ()
