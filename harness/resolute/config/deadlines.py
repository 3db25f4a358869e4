"""The deadline of a trial: a time, or a duration from its submission."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator

from resolute.config.base import Text, broken_rule
from resolute.config.durations import parse_duration
from resolute.config.errors import Problem
from resolute.config.searcher import RandomSearcher, SingleSearcher
from resolute.errors import InvalidInput
from resolute.wire.times import in_utc

if TYPE_CHECKING:
    from resolute.config.experiment import ExperimentConfig

HOW_TO_WRITE = "write a time such as 2027-01-31T18:00:00Z, or a duration from the submission such as 36h"


def _read(text: str) -> timedelta | datetime:
    """Raises ValueError for what is neither."""
    try:
        return timedelta(seconds=parse_duration(text))
    except ValueError:
        moment = datetime.fromisoformat(text.strip())
    try:
        return in_utc(moment, "resources.deadline")
    except InvalidInput as error:
        raise ValueError(str(error)) from None


def _checked(text: str) -> str:
    try:
        found = _read(text)
    except (ValueError, OverflowError):
        raise broken_rule(f"must be a time with its zone, or a duration; {HOW_TO_WRITE}") from None
    if found == timedelta(0):
        raise broken_rule(f"must leave some time; {HOW_TO_WRITE}")
    return text


DeadlineText = Annotated[Text, AfterValidator(_checked)]
"""An RFC 3339 time with its zone, or a Go-style duration."""


def resolved_deadline(text: str, now: datetime) -> str:
    """The moment that a valid text means when it is submitted at `now`, as an RFC 3339 time in UTC.

    Raises InvalidInput for one that has passed.
    """
    found = _read(text)
    try:
        moment = in_utc(now + found if isinstance(found, timedelta) else found, "resources.deadline")
    except (OverflowError, InvalidInput):
        raise InvalidInput(f"resources.deadline: '{text}' is too far away; {HOW_TO_WRITE}") from None
    if moment <= now:
        raise InvalidInput(
            f"resources.deadline: {moment:%Y-%m-%dT%H:%M:%SZ} has passed (it is {now:%Y-%m-%dT%H:%M:%SZ}); "
            "name a later one, or remove the key"
        )
    return moment.isoformat().replace("+00:00", "Z")


def deadline_problems(config: ExperimentConfig, *, managed: bool) -> list[Problem]:
    """A deadline is for work that is started here, whose trials all run at once: the duration of others is unknown."""
    resources, searcher = config.resources, config.searcher
    if resources.deadline is None:
        if resources.estimated_duration is None:
            return []
        message = "is of use with resources.deadline only; add that, or remove this"
        return [Problem(path=("resources", "estimated_duration"), message=message)]
    at = ("resources", "deadline")
    if not managed:
        return [Problem(path=at, message="is for experiments that run on this cluster; remove it")]
    if isinstance(searcher, SingleSearcher):
        return []
    if not isinstance(searcher, RandomSearcher):
        message = (
            f"cannot be kept by the search {searcher.name}, whose duration is unknown; use single, or remove the key"
        )
        return [Problem(path=at, message=message)]
    at_once = searcher.max_concurrent_trials or searcher.max_trials
    if resources.max_slots is not None and resources.slots_per_trial:
        at_once = min(at_once, resources.max_slots // resources.slots_per_trial)
    if at_once >= searcher.max_trials:
        return []
    message = (
        f"needs all {searcher.max_trials} trials to run at once, and {at_once} may; "
        "raise max_concurrent_trials and max_slots, submit the trials as experiments of their own, or remove the key"
    )
    return [Problem(path=at, message=message)]


def deadline_notes(config: ExperimentConfig) -> tuple[str, ...]:
    """Sentences for the task's log about what a deadline could do better."""
    resources, searcher = config.resources, config.searcher
    if resources.deadline is None or not isinstance(searcher, (SingleSearcher, RandomSearcher)):
        return ()
    found = []
    if resources.estimated_duration is None:
        found.append(
            "config.resources.deadline: until the trial has reported its pace, its duration is unknown, and it runs "
            "on demand; give resources.estimated_duration to start on spot"
        )
    if config.min_checkpoint_period.units == 0:
        found.append(
            "config.resources.deadline: without min_checkpoint_period, a machine that is lost without notice undoes "
            "everything since the last checkpoint, and spot is left early for fear of it; set min_checkpoint_period"
        )
    return tuple(found)
