"""Log lines for display."""

from __future__ import annotations

from datetime import UTC, datetime

from resolute.wire.rest.enums import LogLevel
from resolute.wire.rest.logs import TaskLogsResponse, TrialLogsResponse
from resolute_master.api.render.states import level_of
from resolute_master.domain.metrics import LogRecord

SHORT_ID = 8


def message(record: LogRecord) -> str:
    """`[time] container [rank=N] || LEVEL: text`; what is not known is left out, the container's place stays."""
    rank = f" [rank={record.rank}]" if record.rank is not None else ""
    level = level_of(record.level)
    shown = f"{level.name}: " if level is not LogLevel.UNSPECIFIED else ""
    return f"[{_time(record.at)}] {record.container_id[:SHORT_ID]:{SHORT_ID}}{rank} || {shown}{_line(record.log)}"


def _time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _line(text: str) -> str:
    """Clients print a line as it is and add nothing."""
    return text if text.endswith("\n") else text + "\n"


def trial_line(record: LogRecord, trial_id: int) -> TrialLogsResponse:
    return TrialLogsResponse(
        id=str(record.id),
        trial_id=trial_id,
        timestamp=record.at,
        level=level_of(record.level),
        message=message(record),
        log=_line(record.log),
        agent_id=record.agent_id or None,
        container_id=record.container_id or None,
        rank_id=record.rank,
        source=record.source or None,
        stdtype=record.stdtype or None,
    )


def task_line(record: LogRecord) -> TaskLogsResponse:
    return TaskLogsResponse(
        id=str(record.id),
        task_id=record.task_id,
        allocation_id=record.allocation_id,
        timestamp=record.at,
        level=level_of(record.level),
        message=message(record),
        log=_line(record.log),
        agent_id=record.agent_id or None,
        container_id=record.container_id or None,
        rank_id=record.rank,
        source=record.source or None,
        stdtype=record.stdtype or None,
    )
