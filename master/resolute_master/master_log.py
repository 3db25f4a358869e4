"""The master's own log: to standard error, and the last lines in memory for `det master logs`."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime

KEPT_LINES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterLogLine:
    """`id` counts from 1 with the start of the process."""

    id: int
    at: datetime
    level: str
    message: str


class MasterLog(logging.Handler):
    """Keeps the newest lines and wakes who follows them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[MasterLogLine] = deque(maxlen=KEPT_LINES)
        self._count = 0
        self._more = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self._count += 1
        at = datetime.fromtimestamp(record.created, UTC)
        self.lines.append(
            MasterLogLine(
                id=self._count, at=at, level=record.levelname, message=f"{record.name}: {self.format(record)}"
            )
        )
        more, self._more = self._more, asyncio.Event()
        more.set()

    async def more(self) -> None:
        """Returns when a line was written after the call."""
        await self._more.wait()


def set_up(level: str) -> MasterLog:
    """Log to standard error and to the returned handler."""
    kept = MasterLog()
    kept.setFormatter(logging.Formatter("%(message)s"))
    shown = logging.StreamHandler()
    shown.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[shown, kept])
    return kept
