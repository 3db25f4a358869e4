"""Rows of the streams: appended and paged, never loaded as state.

What comes a hundred thousand times a second is a struct: one is made in a fifth of the time of a dataclass, and the garbage
collector has nothing to look at, for nothing in a row refers back to it. They are never modified.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from resolute_master.domain.ids import AllocationId, TaskId, TrialId


class MetricReport(msgspec.Struct, kw_only=True, gc=False):
    """One report, keyed (trial_id, run_id, group, steps_completed).

    A repeat with the same values is a no-op, with other values an error; new names are merged. System metrics
    (`steps_completed` None) are keyed by their time instead.
    """

    trial_id: TrialId
    run_id: int
    group: str
    steps_completed: int | None
    reported_at: datetime
    metrics: Mapping[str, Any]
    batch_metrics: tuple[Mapping[str, Any], ...] | None = None
    archived: bool = False


class LogRecord(msgspec.Struct, kw_only=True, gc=False):
    """One log line. `key` makes it unique: a repeated line with the same key is stored once.

    For the agent's lines the key is (container, stream, offset); posted and master-made lines carry a fresh one.
    """

    key: str
    task_id: TaskId
    allocation_id: AllocationId | None
    agent_id: str
    container_id: str
    rank: int | None
    at: datetime
    level: str
    stdtype: str
    source: str
    log: str
    id: int = 0
    """Given by the store: grows with each line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMark:
    """How far a run was at a moment, for the ledger: from its first step on."""

    allocation_id: AllocationId
    steps_completed: int
    at: datetime
    checkpointing_s: float
    """Seconds of this allocation that the step loop was blocked by saves so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """The number of steps that a run had reported at a time."""

    trial_id: TrialId
    run_id: int
    steps_completed: int
    at: datetime
