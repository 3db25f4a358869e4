"""How results look: tables, JSON, CSV, YAML, messages, progress. Nothing else in the package decides that.

On a terminal tables fit its width (`terminal_table`); elsewhere they are plain text with `|` between columns, never cut to a width,
so that scripts can read them. Messages for users go to stdout when they are the result and to stderr otherwise.

Names, notes and messages come from people, and no control character of them is written: `resolute.printable` escapes them in
every form. The output of programs (`raw`) is escaped on a terminal only, colours excepted; in a pipe it stays as it is.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TextIO

from resolute import printable
from resolute.wire.codec import to_wire

Row = Sequence[object]


def time_text(moment: datetime | None) -> str:
    """`2024-05-01 12:00:00+0000`, or nothing."""
    return "" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S+0000")


def price_text(price: float | None, digits: int = 4) -> str:
    """A price or a cost, without a unit. None is an unknown price, which differs from 0."""
    return "unknown" if price is None else f"{price:.{digits}f}"


def percent_text(fraction: float | None) -> str:
    return "" if fraction is None else f"{fraction * 100:.1f}%"


def size_text(count: int | None) -> str:
    """Bytes in binary units with one decimal."""
    if count is None:
        return ""
    size = float(count)
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if size < 1024 or unit == "TB":
            return f"{size:.1f}{unit}"
        size /= 1024
    raise AssertionError("the loop ends at the largest unit")


def duration_text(seconds: float) -> str:
    """`1h02m03s`, `2m03s`, `3.4s`."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m{rest:02}s" if hours else f"{minutes}m{rest:02}s"


def state_text(state: object) -> str:
    """A state of the contract without its prefix."""
    return str(state).removeprefix("STATE_")


def json_text(value: object, *, indent: int | None = 2) -> str:
    return printable.json_escaped(json.dumps(to_wire(value), indent=indent, sort_keys=True, ensure_ascii=False))


def yaml_text(value: object) -> str:
    """YAML in which strings with control or invisible characters are quoted and escaped."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    def string(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
        style = None if text.isprintable() or text == printable.lines(text) else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, string)
    # Between double quotes JSON's escapes mean in YAML what they mean in JSON.
    return printable.json_escaped(yaml.dump(to_wire(value), Dumper=Dumper, sort_keys=False, allow_unicode=True))


@dataclass(frozen=True, slots=True)
class Block:
    """A cell of several lines; except on a terminal and in CSV they are joined into one."""

    lines: Sequence[str]


def json_block(value: object) -> Block:
    return Block(json_text(value, indent=4).split("\n"))


def cell_text(value: object) -> str:
    """Any value as text for a cell: one line, or the lines of a `Block`."""
    if isinstance(value, Block):
        return "\n".join(map(printable.one_line, value.lines))
    if value is None:
        return ""
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, Mapping | list | tuple):
        return json_text(value, indent=None)
    return printable.one_line(str(value))


_DATE = re.compile(r"(\d{4})-(\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|\+00:?00)")


def shown_cell(value: object, now: datetime) -> str:
    """As `cell_text`, on a terminal: a moment without its zone (UTC) and what it shares with now; a number with few digits."""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = cell_text(value)
    if (isinstance(value, datetime) or _DATE.fullmatch(text)) and (found := _DATE.fullmatch(text)) is not None:
        year, day, time = found.groups()
        if f"{year}-{day}" == f"{now:%Y-%m-%d}":
            return time
        return f"{day} {time[:5]}" if year == f"{now:%Y}" else f"{year}-{day}"
    return text


def csv_text(columns: Sequence[str], rows: Sequence[Row]) -> str:
    """A table as CSV, with the titles of the columns in the first line."""
    import csv

    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([printable.one_line(column) for column in columns])
    writer.writerows([[cell_text(cell) for cell in row] for row in rows])
    return text.getvalue()


class Renderer:
    """Writes to a pair of streams. `format` is None for tables, else json, csv or yaml."""

    def __init__(self, out: TextIO, err: TextIO, *, color: bool | None = None) -> None:
        self.out = out
        self.err = err
        self.format: str | None = None
        self._color = color
        self._pinned = ""
        self._above_bar: Callable[[str], None] | None = None
        """Writes a line above the bar of `progress`; None where none is drawn."""
        self._writing = threading.RLock()

    # ------------------------------------------------------------------------------------------------------ results

    def table(self, columns: Sequence[str], rows: Sequence[Row], values: object, *, title: str | None = None) -> None:
        """The result of a command: a table, the same as CSV, `values` as JSON or YAML."""
        if self.format in ("json", "yaml"):
            self.value(values)
        elif self.format == "csv":
            self.out.write(csv_text(columns, rows))
        elif self._is_terminal(self.out):
            self._drawn_table(columns, rows, title)
        else:
            if title:
                self.out.write(f"\n{printable.one_line(title)}:\n")
            self.out.write(plain_table(columns, rows))

    def value(self, value: object) -> None:
        """A result that is no table: YAML, or the requested format."""
        if self.format == "json":
            self._whole(json_text(value))
        else:
            self.out.write(yaml_text(value))

    def done(self, text: str, **facts: object) -> None:
        """The result of a command that did something: a sentence, or the facts as JSON."""
        if self.format == "json":
            self._whole(json_text(facts))
        else:
            self.line(text)

    def raw(self, text: str) -> None:
        """What a program has written, at once. A terminal gets its colours and nothing else that it would obey."""
        with self._above_pinned():
            self.out.write(printable.with_colors(text) if self._is_terminal(self.out) else text)
            self.out.flush()

    def line(self, text: str) -> None:
        """One line, whatever names are in it."""
        self._whole(printable.one_line(text))

    def paragraph(self, text: str) -> None:
        """Text of several lines: a traceback, a document."""
        self._whole(printable.lines(text))

    def _whole(self, text: str) -> None:
        with self._above_pinned():
            self.out.write(text + "\n")
            self.out.flush()

    @contextmanager
    def _above_pinned(self) -> Iterator[None]:
        """The pinned line makes room for what scrolls."""
        with self._writing:
            pinned = self._pinned
            self.pin("")
            yield
            self.pin(pinned)

    # ----------------------------------------------------------------------------------------------------- messages

    def note(self, text: str) -> None:
        """A message for users that is not the result: silent when a program reads the output."""
        if self.format is None:
            self.line(text)

    def success(self, text: str) -> None:
        if self.format is None:
            self._painted(self.out, text, "32")

    def warning(self, text: str) -> None:
        self._painted(self.err, text, "33")

    def error(self, text: str) -> None:
        self._painted(self.err, text, "31")

    def _painted(self, stream: TextIO, text: str, code: str) -> None:
        text = printable.lines(text).replace("\n", "\n  ")
        painted = f"\x1b[{code}m{text}\x1b[0m" if self._has_color(stream) else text
        with self._above_pinned():
            stream.write(painted + "\n")
            stream.flush()

    # ----------------------------------------------------------------------------------------------------- progress

    @property
    def can_pin(self) -> bool:
        """Whether a line can stay below what scrolls."""
        return self.for_people and self._is_terminal(self.err)

    def pin(self, text: str) -> None:
        """Keep a line below what scrolls, in the place of the last one; an empty one takes it away."""
        with self._writing:
            if self._pinned:
                self.err.write("\r\x1b[K")
            if self._pinned or text:
                self.err.write(printable.one_line(text)[: self.width() - 1])
                self.err.flush()
            self._pinned = text

    def status(self, text: str) -> None:
        """What a command that takes long does now; on the error stream, also where no terminal is: a log is read later."""
        if self._above_bar is not None:
            self._above_bar(printable.lines(text))
            return
        self.err.write(printable.lines(text) + "\n")
        self.err.flush()

    @contextmanager
    def progress(self, description: str, *, counted: bool = False) -> Iterator[Callable[[int, int], None] | None]:
        """A bar for bytes that move, or for things that are `counted`, on a terminal; yields a function to call with (done,
        total)."""
        if self.format is not None or not self._is_terminal(self.err):
            yield None
            return
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            ProgressColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        what: tuple[ProgressColumn, ...] = (DownloadColumn(), TransferSpeedColumn())
        if counted:
            what = (MofNCompleteColumn(), TimeRemainingColumn())
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), *what)
        with Progress(*columns, console=Console(file=self.err), transient=True) as bar:
            task = bar.add_task(printable.one_line(description), total=None)
            self._above_bar = lambda text: bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
            try:
                yield lambda done, total: bar.update(task, completed=done, total=total or None)
            finally:
                self._above_bar = None

    def _drawn_table(self, columns: Sequence[str], rows: Sequence[Row], title: str | None) -> None:
        from resolute.clock import SystemClock
        from resolute_cli.terminal_table import draw

        if title:
            self.out.write(f"\n{printable.one_line(title)}:\n")
        names = [printable.one_line(column) for column in columns]
        now = SystemClock().now()
        cells = [[shown_cell(cell, now) for cell in row] for row in rows]
        self.out.write(draw(names, cells, self.width(), bold=self._has_color(self.out)))

    def width(self) -> int:
        """Columns of the terminal; `COLUMNS` overrides it, and the fallback is 80."""
        given = os.environ.get("COLUMNS", "")
        if given.isdecimal() and int(given):
            return int(given)
        try:
            return os.get_terminal_size(self.out.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    @property
    def for_people(self) -> bool:
        """Whether the result is read on a terminal, as it comes."""
        return self.format is None and self._is_terminal(self.out)

    def _is_terminal(self, stream: TextIO) -> bool:
        return stream.isatty()

    def _has_color(self, stream: TextIO) -> bool:
        return self._is_terminal(stream) if self._color is None else self._color


def plain_table(columns: Sequence[str], rows: Sequence[Row]) -> str:
    """Columns with `|` between them and a rule under the header; numbers are aligned right."""
    columns = [printable.one_line(column) for column in columns]
    cells = [[" ".join(part.strip() for part in cell_text(cell).split("\n")) for cell in row] for row in rows]
    numeric = [
        bool(rows) and all(isinstance(row[index], int | float) and not isinstance(row[index], bool) for row in rows)
        for index in range(len(columns))
    ]
    widths = [
        max(len(column), *(len(row[index]) for row in cells)) if cells else len(column)
        for index, column in enumerate(columns)
    ]

    def joined(row: Sequence[str]) -> str:
        aligned = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        )
        return (" " + " | ".join(aligned)).rstrip()

    rule = "+".join("-" * (width + 2) for width in widths)
    return "\n".join([joined(columns), rule, *(joined(row) for row in cells)]) + "\n"


def confirmed(question: str, renderer: Renderer, answers: TextIO | None = None) -> bool:
    """Repeats the question until the answer is yes or no; the end of the input is no."""
    source = sys.stdin if answers is None else answers
    while True:
        renderer.err.write(f"{printable.one_line(question)} [y/n]: ")
        renderer.err.flush()
        answer = source.readline()
        if not answer:
            return False
        if answer.strip().lower() in ("y", "yes"):
            return True
        if answer.strip().lower() in ("n", "no"):
            return False


def as_mapping(value: object) -> dict[str, Any]:
    """A wire message as a dictionary, for commands that print one with additions."""
    data: dict[str, Any] = to_wire(value)
    return data
