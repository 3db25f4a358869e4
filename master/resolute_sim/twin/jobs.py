"""The trace of jobs: a CSV file, read and checked row by row."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from resolute.config.errors import suggestion
from resolute.errors import InvalidInput
from resolute_master.domain.copies import replace
from resolute_master.foresight.trace_job import TraceJob

REQUIRED = ("job_id", "submit_s", "duration_s", "slots", "group")
OPTIONAL = (
    "priority",
    "weight",
    "max_slots",
    "single_node",
    "preemptible",
    "deadline_s",
    "workspace",
    "max_cost",
)
DAY_S = 86_400.0
LATEST_S, LONGEST_S, MOST_SLOTS = 3650 * DAY_S, 366 * DAY_S, 100_000
"""No trace is longer, no job runs longer, and none asks for more: what is beyond was meant otherwise."""
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{1,2}:\d{2}")


def read_jobs(path: Path) -> tuple[TraceJob, ...]:
    """In the order of submission. Raises `InvalidInput` naming file, row, column and value."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            _check_columns(path, reader.fieldnames or ())
            jobs = [_Row(path, number, row).job() for number, row in enumerate(reader, start=2)]
    except OSError as error:
        raise InvalidInput(f"--jobs: {path} cannot be read ({error.strerror}); name a CSV file") from None
    except UnicodeDecodeError:
        raise InvalidInput(
            f"--jobs: {path} is not UTF-8 text; name a CSV file (in Excel: save as 'CSV UTF-8 (comma delimited)')"
        ) from None
    except csv.Error as error:
        raise InvalidInput(f"--jobs: {path} is no CSV file ({error}); mend it there") from None
    if not jobs:
        raise InvalidInput(f"--jobs: {path} has no rows; give at least one job")
    _check_unique(path, jobs)
    return tuple(sorted(jobs, key=lambda job: (job.submit_s, job.job_id)))


def between(jobs: Sequence[TraceJob], first_day: float | None, last_day: float | None) -> tuple[TraceJob, ...]:
    """Those that are submitted from the beginning of one day up to the beginning of another. Their times count from the
    first day."""
    first_s, last_s = DAY_S * (first_day or 0.0), math.inf if last_day is None else DAY_S * last_day
    return tuple(
        replace(
            job,
            submit_s=job.submit_s - first_s,
            deadline_s=None if job.deadline_s is None else job.deadline_s - first_s,
        )
        for job in jobs
        if first_s <= job.submit_s < last_s
    )


def _check_columns(path: Path, columns: Sequence[str]) -> None:
    if len(columns) == 1 and (other := next((mark for mark in ";\t|" if mark in columns[0]), None)) is not None:
        raise InvalidInput(
            f"--jobs: {path}, row 1: its values are divided by {other!r}, and must be divided by commas; save it as comma separated"
        )
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise InvalidInput(
            f"--jobs: {path}, row 1: there is no column {missing[0]}; it has {', '.join(columns) or 'none'}"
        )
    unknown = [name for name in columns if name not in REQUIRED + OPTIONAL]
    if unknown:
        known = REQUIRED + OPTIONAL
        raise InvalidInput(
            f"--jobs: {path}, row 1: the column {unknown[0]} is not known; {suggestion(unknown[0], known)}, or remove it"
        )


def _check_unique(path: Path, jobs: Sequence[TraceJob]) -> None:
    seen: set[str] = set()
    for row, job in enumerate(jobs, start=2):
        if job.job_id in seen:
            raise InvalidInput(
                f"--jobs: {path}, row {row}, column job_id: {job.job_id!r} is there twice; give each its own"
            )
        seen.add(job.job_id)


class _Row:
    def __init__(self, path: Path, number: int, row: Mapping[str | None, str | None]) -> None:
        self._path, self._number, self._row = path, number, row

    def job(self) -> TraceJob:
        if None in self._row:
            raise InvalidInput(f"--jobs: {self._path}, row {self._number}: has more values than columns; mend the row")
        job_id, slots = self._text("job_id"), self._count("slots", least=1, most=MOST_SLOTS)
        submit_s = self._submission()
        return TraceJob(
            job_id=job_id if job_id else self._wrong("job_id", "must not be empty"),
            submit_s=submit_s,
            duration_s=self._duration(),
            slots=slots,
            group=self._text("group"),
            priority=self._count("priority", least=1, most=99) if self._text("priority") else None,
            weight=self._number_of("weight", least=1e-9) if self._text("weight") else 1.0,
            max_slots=self._max_slots(slots) if self._text("max_slots") else None,
            single_node=self._flag("single_node") if self._text("single_node") else None,
            preemptible=self._flag("preemptible") if self._text("preemptible") else True,
            deadline_s=self._deadline(submit_s) if self._text("deadline_s") else None,
            workspace=self._text("workspace"),
            max_cost=self._max_cost() if self._text("max_cost") else None,
        )

    def _text(self, column: str) -> str:
        return (self._row.get(column) or "").strip()

    def _submission(self) -> float:
        if _DATE.search(self._text("submit_s")):
            self._wrong("submit_s", "must be seconds from the trace's beginning, not a date or a time of day")
        value = self._number_of("submit_s", least=0.0)
        if value > LATEST_S:
            self._wrong(
                "submit_s",
                "must be seconds from the trace's beginning, ten years of them at most; of an absolute time subtract that of the "
                "first job, and of milliseconds make seconds",
            )
        return value

    def _duration(self) -> float:
        value = self._number_of("duration_s", least=0.0)
        if value > LONGEST_S:
            self._wrong(
                "duration_s",
                f"must be seconds of run time, a year of them ({LONGEST_S:g}) at most; an end is no duration, and milliseconds "
                "are no seconds",
            )
        return value

    def _number_of(self, column: str, *, least: float) -> float:
        text = self._text(column)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value >= least):
            self._wrong(column, f"must be a number that is at least {least:g}")
        return value

    def _count(self, column: str, *, least: int, most: int | None = None) -> int:
        text = self._text(column)
        value = int(text) if text.isdecimal() else -1
        if value < least or (most is not None and value > most):
            limit = f"at least {least}" if most is None else f"{least} to {most}"
            self._wrong(column, f"must be a whole number, {limit}")
        return value

    def _max_slots(self, slots: int) -> int:
        value = self._count("max_slots", least=1)
        if value < slots:
            self._wrong("max_slots", f"must be at least the job's slots, {slots}, or it never starts")
        return value

    def _deadline(self, submit_s: float) -> float:
        value = self._number_of("deadline_s", least=0.0)
        if value <= submit_s:
            self._wrong("deadline_s", f"must be after the submission, second {submit_s:g} of the trace")
        return value

    def _max_cost(self) -> float:
        value = self._number_of("max_cost", least=0.0)
        if value <= 0.0:
            self._wrong("max_cost", "must be above 0; leave it empty for no limit")
        return value

    def _flag(self, column: str) -> bool:
        text = self._text(column).lower()
        if text not in ("true", "false", "1", "0"):
            self._wrong(column, "must be true or false")
        return text in ("true", "1")

    def _wrong(self, column: str, rule: str) -> str:
        value = self._row.get(column)
        raise InvalidInput(f"--jobs: {self._path}, row {self._number}, column {column}: {rule}, and is {value!r}")
