"""The last lines of the master's own log, kept in memory for the API."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from resolute import logs

KEPT_LINES = 10_000
"""Lines that are kept: some megabytes. The output of the process has the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """`id` counts from 1 with every line of this process; `fields` are the ids that the line is about."""

    id: int
    level: str
    logger: str
    message: str
    at: datetime
    fields: Mapping[str, str]


class LogRing(logging.Handler):
    """A logging handler that keeps the last lines and wakes followers. Any thread may log."""

    def __init__(self, kept: int = KEPT_LINES) -> None:
        super().__init__()
        self._lines: deque[LogLine] = deque(maxlen=kept)
        self._last = 0
        self._followers: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Called by `logging` with the handler's lock held."""
        self._last += 1
        at = datetime.fromtimestamp(record.created, UTC)
        fields = {name: logs.without_secrets(str(value)) for name, value in logs.fields_of(record).items()}
        line = LogLine(
            id=self._last,
            level=record.levelname,
            logger=record.name,
            message=f"{record.name}: {logs.text_of(record)}",
            at=at,
            fields=fields,
        )
        self._lines.append(line)
        for event, loop in tuple(self._followers.items()):
            loop.call_soon_threadsafe(event.set)

    @property
    def last(self) -> int:
        """Id of the newest line; 0 before the first."""
        return self._last

    def after(self, id_: int, *, since: datetime | None = None) -> tuple[LogLine, ...]:
        """Kept lines with a larger id and, if asked, a later time, oldest first."""
        self.acquire()
        try:
            return tuple(line for line in self._lines if line.id > id_ and (since is None or line.at > since))
        finally:
            self.release()

    @contextmanager
    def follow(self) -> Iterator[asyncio.Event]:
        """An event of the running loop that is set with each new line."""
        event = asyncio.Event()
        self._followers[event] = asyncio.get_running_loop()
        try:
            yield event
        finally:
            del self._followers[event]
