"""The logs of our processes: the subjects of a line, and its format.

Code logs with the standard library, without its context. The code that has the context (the handler of a request, the session of an
agent) binds fields, which every line from within then contains: `with about(request_id="5f2c"): ...`.

text    2026-11-21T13:50:43.123Z INFO    resolute_master.api.access: GET /info 200 in 2 ms [request_id=5f2c user=ada]
json    {"time": "2026-11-21T13:50:43.123Z", "level": "info", "logger": "...", "message": "...", "request_id": "5f2c"}

Messages and fields hold names from people and programs: control characters in them are escaped (`resolute.printable`). A
traceback is printed below its line and is indented, so that no text in it looks like a line of the log.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TextIO

from resolute import printable

TRACE = 5
"""Below DEBUG: every message of the link."""

LEVELS: Mapping[str, int] = {
    "trace": TRACE,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
}
"""The names of the configuration."""

HIDDEN = "********"

_BELOW = "  "

_COLORS = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m", logging.CRITICAL: "\x1b[31;1m"}
_PLAIN = "\x1b[0m"

_SECRETS = re.compile(
    r"""(?ix)
      (?P<scheme> \b bearer \s+ ) [\w.~+/=-]{8,}                       # a token in a header
    | (?P<key> (?: password | passwd | secret | token ) (?: ["'] \s* : \s* | \s* = \s* ) (?! bearer \b) ["']? )
      [^\s"'&,;}]+                                                      # password=..., "token": "..."
    | (?P<url> :// [^\s:/@]{0,200} : ) [^\s/@]{1,200} (?= @ )           # scheme://user:password@host
    | \b eyJ [\w-]{5,} \. [\w-]{5,} \. [\w-]+                         # a signed token as it is
    """
)
"""Secrets in a text. No part of the expression may look far ahead from many places: a line of megabytes is read in milliseconds."""

_fields: ContextVar[Mapping[str, object]] = ContextVar("log_fields", default={})  # noqa: B039  # never changed in place


class about:
    """Every line that is logged inside the block, in this task, has these fields; empty ones are left out.

    A class, for a generator costs three times as much, and every request enters one.
    """

    __slots__ = ("_given", "_token")

    def __init__(self, **fields: object) -> None:
        self._given = _given(fields)

    def __enter__(self) -> None:
        self._token = _fields.set({**_fields.get(), **self._given})

    def __exit__(self, *_: object) -> None:
        _fields.reset(self._token)


def also_about(**fields: object) -> None:
    """Adds fields that become known later, until the surrounding `about` ends."""
    _fields.set({**_fields.get(), **_given(fields)})


def fields() -> Mapping[str, object]:
    """The fields of lines that are logged here and now."""
    return _fields.get()


def _given(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None and value != ""}


def without_secrets(text: str) -> str:
    """The text with passwords and tokens masked where they can be recognised. It is an additional protection: callers must not
    log secrets."""

    def masked(match: re.Match[str]) -> str:
        kept = match["scheme"] or match["key"] or match["url"] or ""
        return f"{kept}{HIDDEN}"

    return _SECRETS.sub(masked, text)


class Stamp(logging.Filter):
    """Puts the bound fields on each record, in the task that logs it; `extra={"fields": {...}}` adds to them."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, "stamped"):
            own = getattr(record, "fields", None)
            record.fields = {**_fields.get(), **_given(own or {})}
            record.stamped = True
        return True


def fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    """The fields that `Stamp` has added to the record."""
    found = getattr(record, "fields", None)
    return found if isinstance(found, Mapping) else {}


class TextFormatter(logging.Formatter):
    """One line for people, an error's traceback below it."""

    def __init__(self, *, color: bool = False) -> None:
        super().__init__()
        self.color = color

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_moment(record)} {record.levelname:<7} {record.name}: {text_of(record)}"
        bound = " ".join(f"{name}={value}" for name, value in fields_of(record).items())
        if bound:
            first, newline, rest = line.partition("\n")
            line = f"{first} [{printable.one_line(without_secrets(bound))}]{newline}{rest}"
        color = _COLORS.get(record.levelno) if self.color else None
        return f"{color}{line}{_PLAIN}" if color else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": without_secrets(record.getMessage()),
        }
        for name, value in fields_of(record).items():
            line.setdefault(name, without_secrets(value) if isinstance(value, str) else value)
        error_text = _error_text(record)
        if error_text:
            line["error"] = without_secrets(error_text)
        return printable.json_escaped(json.dumps(line, default=str, ensure_ascii=False))


def text_of(record: logging.LogRecord) -> str:
    """The message in one line and, indented below it, what went wrong; secrets masked, control characters escaped."""
    error_text = _error_text(record)
    text = printable.one_line(without_secrets(record.getMessage()))
    if not error_text:
        return text
    below = printable.lines(without_secrets(error_text)).replace("\n", f"\n{_BELOW}")
    return f"{text}\n{_BELOW}{below}"


def _error_text(record: logging.LogRecord) -> str:
    parts = []
    if record.exc_info and record.exc_info[0] is not None:
        parts.append(logging.Formatter().formatException(record.exc_info))
    if record.stack_info:
        parts.append(record.stack_info)
    return "\n".join(parts)


def _moment(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def set_up(
    *,
    level: str,
    form: str = "text",
    color: bool = False,
    to: TextIO | None = None,
    beside: tuple[logging.Handler, ...] = (),
) -> None:
    """Make this process's log: lines to `to` (standard error), and to the handlers `beside` it.

    `level` is a name of `LEVELS`, `form` is text or json; colours are used on a terminal only.
    """
    stream = to or sys.stderr
    shown = logging.StreamHandler(stream)
    shown.setFormatter(JsonFormatter() if form == "json" else TextFormatter(color=color and stream.isatty()))
    logging.addLevelName(TRACE, "TRACE")
    for handler in (shown, *beside):
        handler.addFilter(Stamp())
    logging.basicConfig(level=LEVELS[level], handlers=[shown, *beside], force=True)
    for noisy in ("alembic", "asyncio", "aiohttp.access", "urllib3", "docker"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, LEVELS[level]))


def set_color(color: bool) -> None:
    """Colours of the lines from now on: on a terminal only, and none in JSON."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and isinstance(handler.formatter, TextFormatter):
            handler.formatter.color = color and handler.stream.isatty()
