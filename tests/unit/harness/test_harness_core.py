"""Values, step marks, searcher, stop signals, merging: the parts of the Core API that need no process or socket."""

from __future__ import annotations

import json
import math
import os
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from resolute.clock import FixedClock
from resolute.core.merge import merge_files, merge_metadata
from resolute.core.preempt import NoticeFileReader, StopSignal, signal_of_notice, signal_of_poll
from resolute.core.searcher import SearcherContext, SearcherMode, Unit, parse_length
from resolute.core.train import MARKS_LIMIT, LocalTrain, StepMarks
from resolute.core.values import encodable, encodable_metrics, parse_time, rfc3339
from resolute.errors import FailedPrecondition, InvalidInput
from resolute.storage import FileEntry

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_times_are_utc_with_microseconds() -> None:
    assert rfc3339(NOW.astimezone(timezone(timedelta(hours=2)))) == "2026-01-01T12:00:00.000000Z"
    for text in ("2026-01-01T12:00:00Z", "2026-01-01T12:00:00.000000000Z", "2026-01-01T14:00:00.0+02:00"):
        assert parse_time(text) == NOW
    with pytest.raises(ValueError, match="time zone"):
        parse_time("2026-01-01T12:00:00")


class Scalar:
    """Like a number of an array library."""

    def tolist(self) -> Any:
        return math.inf


def test_values_that_json_cannot_carry() -> None:
    value = {"a": [1.5, math.nan, -math.inf], 3: (Scalar(), True, None), "s": "x"}
    assert encodable(value) == {"a": [1.5, "NaN", "-Infinity"], "3": ["Infinity", True, None], "s": "x"}
    with pytest.raises(InvalidInput, match=r"metric\.b\[0\] is a object"):
        encodable({"b": [object()]}, "metric")


def test_metrics_without_meaning() -> None:
    assert encodable_metrics("training", {"loss": 1, "blob": b"x"}) == {"loss": 1}
    with pytest.raises(InvalidInput, match="'loss' of group 'validation' is None"):
        encodable_metrics("validation", {"loss": None})


def test_marks_begin_with_the_first_step_and_carry_the_time_of_saves() -> None:
    clock = FixedClock(NOW)
    marks = StepMarks(clock)
    assert not marks.blocked(3.0), "a save before the first step is part of starting"
    assert marks.step(10), "the first step is about to begin"
    assert not marks.step(11), "at most two marks a second"
    clock.advance(1)
    assert marks.blocked(0.25)
    assert marks.last()
    assert marks.take() == [
        {"steps": 10, "at": "2026-01-01T12:00:00.000000Z", "checkpointingS": 3.0},
        {"steps": 11, "at": "2026-01-01T12:00:01.000000Z", "checkpointingS": 3.25},
        {"steps": 11, "at": "2026-01-01T12:00:01.000000Z", "checkpointingS": 3.25},
    ]
    assert marks.take() == []


def test_while_the_master_is_away_so_many_marks_are_kept_the_newest() -> None:
    marks = StepMarks(FixedClock(NOW))
    for step in range(MARKS_LIMIT):
        assert marks.step(step, now=True)
    assert [mark["steps"] for mark in marks.take()] == list(range(MARKS_LIMIT))
    for step in range(MARKS_LIMIT + 1):
        marks.step(step, now=True)
    assert [mark["steps"] for mark in marks.take()] == list(range(1, MARKS_LIMIT + 1))


def test_a_run_without_steps_makes_no_marks() -> None:
    marks = StepMarks(FixedClock(NOW))
    assert not marks.last() and marks.take() == []


def test_the_search_gives_one_operation() -> None:
    train = LocalTrain(clock=FixedClock(NOW))
    context = SearcherContext({"searcher": {"max_length": {"epochs": 3}}}, train, chief=True)
    lengths = []
    for operation in context.operations():
        lengths.append(operation.length)
        operation.report_progress(1)
        operation.report_completed(0.5)
        with pytest.raises(FailedPrecondition):
            operation.report_completed(0.5)
    assert lengths == [3] and context.get_configured_units() is Unit.EPOCHS


def test_an_operation_must_be_completed_and_only_by_the_chief() -> None:
    train = LocalTrain(clock=FixedClock(NOW))
    config = {"searcher": {"max_length": 5}}
    with pytest.raises(FailedPrecondition, match="report_completed"):
        list(SearcherContext(config, train, chief=True).operations())
    worker = SearcherContext(config, train, chief=False)
    assert [operation.length for operation in worker.operations()] == [5]
    with pytest.raises(FailedPrecondition, match="rank 0"):
        next(worker.operations(SearcherMode.ChiefOnly))
    with pytest.raises(InvalidInput, match=r"searcher\.max_length"):
        next(SearcherContext({}, train, chief=True).operations())


@pytest.mark.parametrize("value", ["5", True, {"batches": 1, "epochs": 1}, {"hours": 1}, {"batches": -1}, {}])
def test_lengths_that_make_no_sense(value: Any) -> None:
    with pytest.raises(InvalidInput, match="period"):
        parse_length(value, "period")


def test_a_poll_with_and_without_our_fields() -> None:
    assert signal_of_poll({"preempt": False}) == StopSignal()
    assert signal_of_poll({"preempt": True, "reason": "pause"}) == StopSignal(preempt=True, reason="pause")
    notice = {"kind": "interruption", "deadline": "2026-01-01T12:00:00Z", "reason": "spot"}
    announced = StopSignal(noticed=True, deadline=NOW, reason="spot")
    assert signal_of_poll({"preempt": True, "reason": "", "notice": notice}) == announced
    at_any_time = {**notice, "deadline": None}
    assert signal_of_poll({"preempt": True, "notice": at_any_time}) == StopSignal(preempt=True, reason="spot")


def test_a_rebalance_asks_for_a_checkpoint_only() -> None:
    found = signal_of_notice({"kind": "rebalance", "deadline": None, "reason": ""})
    assert found == StopSignal(checkpoint_wanted=True, reason="rebalance")


def test_signals_merge_to_the_earlier_deadline() -> None:
    early, late = StopSignal(deadline=NOW), StopSignal(preempt=True, deadline=NOW + timedelta(minutes=1), reason="x")
    assert early.merged(late) == late.merged(early) == StopSignal(preempt=True, deadline=NOW, reason="x")
    assert StopSignal.from_json(json.loads(json.dumps(late.to_json()))) == late


def test_the_notice_file_is_read_when_it_changes_and_survives_half_files(tmp_path: Path) -> None:
    path = tmp_path / "notice.json"
    reader = NoticeFileReader(path)
    assert reader.read() == StopSignal()
    path.write_text('{"kind": "reb')
    assert reader.read() == StopSignal()
    path.write_text('{"kind": "rebalance"}')
    assert reader.read().checkpoint_wanted and not reader.read().preempt
    (tmp_path / "new").write_text('{"kind": "interruption", "deadline": "2026-01-01T12:00:00Z"}')
    os.replace(tmp_path / "new", path)
    assert reader.read().noticed and reader.read().deadline == NOW
    path.unlink()
    assert reader.read().noticed, "a notice that was seen is not unseen"


def entry(content: str) -> FileEntry:
    return FileEntry(size=1, sha256=content)


def test_equal_files_are_stored_once_by_the_lowest_rank() -> None:
    merged = merge_files([{"a": entry("x")}, {"b": entry("y"), "a": entry("x")}, {}])
    assert merged == {"a": (0, entry("x")), "b": (1, entry("y"))}


def test_all_conflicts_are_named() -> None:
    with pytest.raises(InvalidInput, match=r"a \(ranks 0 and 1\), d \(a file and a directory\)"):
        merge_files([{"a": entry("x"), "d": entry("1")}, {"a": entry("y"), "d/e": entry("2")}])


def test_metadata_merge() -> None:
    assert merge_metadata([{"s": 1, "n": {"a": 1}}, {"s": 1, "n": {"b": [2]}}]) == {"s": 1, "n": {"a": 1, "b": [2]}}
    with pytest.raises(InvalidInput, match=r"metadata\.n\.a is 1 on one rank and 2"):
        merge_metadata([{"n": {"a": 1}}, {"n": {"a": 2}}])
