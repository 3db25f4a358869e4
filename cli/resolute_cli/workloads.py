"""A trial's timeline, one entry a step: what was trained, validated and saved there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from resolute.wire.rest.trials import CheckpointWorkload, MetricsWorkload, WorkloadContainer


@dataclass(slots=True, kw_only=True)
class Step:
    """Everything reported at one number of batches."""

    batches: int
    training: MetricsWorkload | None = None
    validation: MetricsWorkload | None = None
    checkpoint: CheckpointWorkload | None = None

    @property
    def report_time(self) -> datetime | None:
        """When the last of it was reported."""
        parts = (self.training, self.validation, self.checkpoint)
        return max((part.end_time for part in parts if part is not None and part.end_time is not None), default=None)


def steps_of(workloads: Iterable[WorkloadContainer]) -> list[Step]:
    """Entries of the timeline brought together, by number of batches."""
    steps: dict[int, Step] = {}
    for workload in workloads:
        for name in ("training", "validation", "checkpoint"):
            part = getattr(workload, name)
            if part is not None:
                step = steps.setdefault(part.total_batches, Step(batches=part.total_batches))
                setattr(step, name, part)
    return [steps[batches] for batches in sorted(steps)]
