"""The past usage of a virtual pool by its users: the rows of `lifecycle.usage`, in virtual time."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from resolute_master.domain.copies import replace
from resolute_master.domain.ids import PoolName
from resolute_master.domain.job import Job
from resolute_master.domain.usage import Usage, interval, usage_id


@dataclass(slots=True, kw_only=True)
class UsageBook:
    """Past usage in a pool, which decays with `half_life_s`."""

    pool: PoolName
    half_life_s: float
    rows: dict[str, Usage] = field(default_factory=dict)

    def copy(self) -> UsageBook:
        return replace(self, rows=dict(self.rows))

    def holds(self, job: Job, more: int, now: datetime) -> None:
        """Adds `more` to the held slots of the job's owner from now on."""
        id_ = usage_id(self.pool, job.workspace_id, job.owner)
        row = self.rows.get(id_) or Usage.none_yet(self.pool, job.workspace_id, job.owner, now=now)
        self.rows[id_] = row.holding(row.held + more, now, self.half_life_s)

    def due(self) -> datetime | None:
        """Time of the next measurement of the rows."""
        first = min((row.measured_at for row in self.rows.values()), default=None)
        return None if first is None else first + interval(self.half_life_s)

    def measure(self, now: datetime) -> list[tuple[Usage, bool]]:
        """Measures all rows at one moment; each with whether it is kept."""
        found = []
        for id_, row in sorted(self.rows.items()):
            measured = row.measured(now, self.half_life_s)
            if measured is None:
                del self.rows[id_]
            else:
                self.rows[id_] = measured
            found.append((measured or row, measured is not None))
        return found
