"""Log lines of trials and tasks."""

# Written by scripts/rest_shapes.py: change its table or the contract, not this file.

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from resolute.wire.codec import Int64
from resolute.wire.rest.enums import LogLevel, OrderBy


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLogsResponse:
    """One line of a trial. `message` is the whole line for display, its line end included."""

    id: str
    level: LogLevel
    message: str
    timestamp: datetime
    trial_id: int
    agent_id: str | None = None
    container_id: str | None = None
    log: str | None = None
    rank_id: int | None = None
    source: str | None = None
    stdtype: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLogsResponse:
    """One line of a task. `message` is the whole line for display, its line end included."""

    id: str
    level: LogLevel
    log: str
    message: str
    task_id: str
    timestamp: datetime
    agent_id: str | None = None
    allocation_id: str | None = None
    container_id: str | None = None
    rank_id: int | None = None
    source: str | None = None
    stdtype: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLog:
    """A line that a task sends. `id` must not be set."""

    log: str
    task_id: str
    agent_id: str | None = None
    allocation_id: str | None = None
    container_id: str | None = None
    id: int | None = None
    level: LogLevel | None = None
    rank_id: int | None = None
    source: str | None = None
    stdtype: str | None = None
    timestamp: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PostTaskLogsRequest:
    """Lines of one task."""

    logs: tuple[TaskLog, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupLogsResponse:
    """How many lines were removed."""

    removed_count: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsQuery:
    """Query of both log streams; `allocation_ids` means something for tasks only."""

    agent_ids: tuple[str, ...] = ()
    allocation_ids: tuple[str, ...] = ()
    container_ids: tuple[str, ...] = ()
    enable_regex: bool = False
    follow: bool = False
    levels: tuple[LogLevel, ...] = ()
    limit: int = 0
    order_by: OrderBy = OrderBy.UNSPECIFIED
    rank_ids: tuple[int, ...] = ()
    search_text: str | None = None
    sources: tuple[str, ...] = ()
    stdtypes: tuple[str, ...] = ()
    timestamp_after: datetime | None = None
    timestamp_before: datetime | None = None
