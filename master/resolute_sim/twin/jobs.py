"""The trace of jobs: a CSV file, read and checked row by row."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from resolute.config.errors import suggestion
from resolute.errors import InvalidInput
from resolute_master.domain.copies import replace
from resolute_master.forecast.trace_job import TraceJob

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
"""Limits of a trace. A larger value is a mistake, such as an absolute time or milliseconds."""
_DATE = re.compile(
    r"\d{1,4}[-/.]\s?\d{1,2}[-/.]\s?\d{1,4}|\d{1,2}:\d{2}"
    r"|\b(jan|feb|m[aä]r|apr|ma[iy]|jun|jul|aug|sep|o[ck]t|nov|de[cz])",
    re.IGNORECASE,
)
_THOUSANDS = re.compile(r"[1-9]\d{0,2}(\.\d{3})+")


def read_jobs(path: Path) -> tuple[TraceJob, ...]:
    """In the order of submission. Raises `InvalidInput` naming file, row, column and value.

    Commas divide the values, or semicolons, as a spreadsheet writes them where the decimal mark is a comma. Empty rows are skipped.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            text = file.read()
        jobs = tuple(_jobs(path, text))
    except OSError as error:
        raise InvalidInput(f"--jobs: {path} cannot be read ({error.strerror}); name a CSV file") from None
    except UnicodeDecodeError:
        raise InvalidInput(
            f"--jobs: {path} is not UTF-8 text; name a CSV file (in Excel: save as 'CSV UTF-8 (comma delimited)')"
        ) from None
    except csv.Error as error:
        raise InvalidInput(f"--jobs: {path} is not a CSV file ({error}); correct it") from None
    if not jobs:
        raise InvalidInput(f"--jobs: {path} has no rows; give at least one job")
    return tuple(sorted(jobs, key=lambda job: (job.submit_s, job.job_id)))


def _jobs(path: Path, text: str) -> Iterator[TraceJob]:
    """In the order of the file."""
    lines = io.StringIO(text, newline="")
    skipped = 1 if text.startswith("sep=") else 0  # a line for Excel, which does not show it
    for _ in range(skipped):
        lines.readline()
    head = text.splitlines()[skipped : skipped + 1]
    separator = ";" if head and ";" in head[0] and "," not in head[0] else ","
    rows = csv.reader(lines, delimiter=separator)
    columns = _columns(path, next(rows, []))
    row_of: dict[str, int] = {}
    for values in rows:
        if not any(value.strip() for value in values):
            continue
        number = skipped + rows.line_num
        row = _Row(path, number, _named(path, number, columns, values), decimal_comma=separator == ";")
        job = row.job()
        if job.job_id in row_of:
            row.wrong("job_id", f"must be another one in each row; row {row_of[job.job_id]} has it too")
        row_of[job.job_id] = number
        yield job


def _columns(path: Path, header: Sequence[str]) -> list[str]:
    """The names of the columns; empty for one without a name."""
    columns = [name.strip().lower() for name in header]
    if len(columns) == 1 and (other := next((mark for mark in "\t|" if mark in header[0]), None)) is not None:
        raise InvalidInput(
            f"--jobs: {path}, row 1: its values are divided by {other!r}, and must be divided by commas; save it as comma separated"
        )
    if missing := [name for name in REQUIRED if name not in columns]:
        raise InvalidInput(
            f"--jobs: {path}, row 1: there is no column {', '.join(missing)}; its columns are "
            f"{', '.join(filter(None, header)) or 'none'}; the first row must name the columns"
        )
    if unknown := [name for name in columns if name and name not in REQUIRED + OPTIONAL]:
        known = REQUIRED + OPTIONAL
        raise InvalidInput(
            f"--jobs: {path}, row 1: the column {unknown[0]} is not known; {suggestion(unknown[0], known)}, or remove it"
        )
    if twice := next((name for name in columns if name and columns.count(name) > 1), None):
        raise InvalidInput(f"--jobs: {path}, row 1: there are two columns {twice}; remove one")
    return columns


def _named(path: Path, number: int, columns: Sequence[str], values: Sequence[str]) -> dict[str, str]:
    """A row by its columns. A spreadsheet may leave out empty values at the end, and may add some."""
    extra = [
        value for place, value in enumerate(values) if value.strip() and (place >= len(columns) or not columns[place])
    ]
    if extra:
        raise InvalidInput(
            f"--jobs: {path}, row {number}: the value {extra[0]!r} has no column; remove it, or name its column in row 1"
        )
    return dict(zip(columns, values, strict=False))


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


class _Row:
    def __init__(self, path: Path, number: int, row: Mapping[str, str], *, decimal_comma: bool) -> None:
        self._path, self._number, self._row, self._decimal_comma = path, number, row, decimal_comma

    def job(self) -> TraceJob:
        job_id, slots = self._text("job_id"), self._count("slots", least=1, most=MOST_SLOTS)
        submit_s = self._submission()
        return TraceJob(
            job_id=job_id if job_id else self.wrong("job_id", "must not be empty"),
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
        return self._row.get(column, "").strip()

    def _submission(self) -> float:
        if _DATE.search(self._text("submit_s")):
            self.wrong("submit_s", "must be seconds from the trace's beginning, not a date or a time of day")
        value = self._number_of("submit_s", least=0.0)
        if value > LATEST_S:
            self.wrong(
                "submit_s",
                "must be seconds from the trace's beginning, ten years of them at most; subtract the first job's submission from "
                "an absolute time, and divide milliseconds by 1000",
            )
        return value

    def _duration(self) -> float:
        if ":" in self._text("duration_s"):
            self.wrong("duration_s", "must be seconds of run time, not hours and minutes; 1:30:00 is 5400")
        value = self._number_of("duration_s", least=0.0)
        if value > LONGEST_S:
            self.wrong(
                "duration_s",
                f"must be seconds of run time, a year of them ({LONGEST_S:.0f}) at most; subtract the start from an end, and "
                "divide milliseconds by 1000",
            )
        return value

    def _number_of(self, column: str, *, least: float) -> float:
        value = self._parsed(self._text(column))
        if not (math.isfinite(value) and value >= least):
            plainly = ", written with a decimal point and without marks of thousands" if self._grouped(column) else ""
            self.wrong(column, f"must be a number that is at least {least:g}{plainly}")
        return value

    def _parsed(self, text: str) -> float:
        """NaN for what is not a number."""
        if self._decimal_comma:
            # Beside decimal commas, 1.500 may be one and a half or fifteen hundred.
            text = "" if _THOUSANDS.fullmatch(text) else text.replace(",", ".")
        try:
            return float(text)
        except ValueError:
            return math.nan

    def _grouped(self, column: str) -> bool:
        text = self._text(column)
        return text[:1].isdigit() and not text.strip("0123456789.,'\u00a0\u202f ")

    def _count(self, column: str, *, least: int, most: int | None = None) -> int:
        value = self._parsed(self._text(column))
        if not value.is_integer() or value < least or (most is not None and value > most):
            limit = f"at least {least}" if most is None else f"{least} to {most}"
            self.wrong(column, f"must be a whole number, {limit}")
        return int(value)

    def _max_slots(self, slots: int) -> int:
        value = self._count("max_slots", least=1)
        if value < slots:
            self.wrong("max_slots", f"must be at least the job's slots, {slots}, or it never starts")
        return value

    def _deadline(self, submit_s: float) -> float:
        value = self._number_of("deadline_s", least=0.0)
        if value <= submit_s:
            self.wrong("deadline_s", f"must be after the submission, second {submit_s:g} of the trace")
        return value

    def _max_cost(self) -> float:
        value = self._number_of("max_cost", least=0.0)
        if value <= 0.0:
            self.wrong("max_cost", "must be above 0; leave it empty for no limit")
        return value

    def _flag(self, column: str) -> bool:
        text = self._text(column).lower()
        if text not in ("true", "false", "1", "0"):
            self.wrong(column, "must be true or false")
        return text in ("true", "1")

    def wrong(self, column: str, rule: str) -> NoReturn:
        value = self._row.get(column, "")
        raise InvalidInput(f"--jobs: {self._path}, row {self._number}, column {column}: {rule}, and is {value!r}")
