"""A ledger in memory with the rows of a master: recorded before the call, finished by a refusal or the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from resolute.clock import Clock
from resolute_provisioner.clouds.base import LaunchRequest
from resolute_provisioner.model import Intent, Observed, RefusalKind
from resolute_provisioner.reconcile import (
    CloudCallFailed,
    CloudReport,
    InstanceIntent,
    InstanceLaunched,
    InstanceObserved,
    LaunchRefused,
    StrayFound,
)


class MemoryLedger:
    """The ledger outlives its reconciler: a restart is a second reconciler on the same ledger."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.rows: dict[str, InstanceIntent] = {}
        self.finished: dict[str, str] = {}
        """Reason of each finished row, by instance id."""
        self.refusals: list[tuple[str, RefusalKind]] = []
        self.strays: list[str] = []
        self.failures: list[CloudCallFailed] = []
        self.paid: dict[str, tuple[datetime | None, datetime | None]] = {}

    def record(self, request: LaunchRequest) -> InstanceIntent:
        intent = InstanceIntent(request=request, intent=Intent.RUN, observed=Observed.UNKNOWN)
        self.rows[request.instance_id] = intent
        return intent

    def want_stopped(self, instance_id: str) -> None:
        self.rows[instance_id] = replace(self.rows[instance_id], intent=Intent.STOP)

    async def intents(self) -> Sequence[InstanceIntent]:
        return tuple(self.rows.values())

    async def report(self, report: CloudReport) -> None:
        match report:
            case InstanceLaunched():
                # As a master does: a launch may return an ended machine; the list reports its end.
                living = min(report.observed, Observed.STOPPING, key=lambda state: state.order)
                self._update(report.instance_id, report.provider_id, living, report.paid_from)
            case LaunchRefused():
                self.refusals.append((report.instance_id, report.kind))
                self._finish(report.instance_id, report.kind.value)
            case InstanceObserved():
                self._update(report.instance_id, report.provider_id, report.observed, report.paid_from)
                if report.observed is Observed.GONE:
                    self.paid[report.instance_id] = (report.paid_from, report.paid_until)
                    self._finish(report.instance_id, report.message)
            case StrayFound():
                self.strays.append(report.provider_id)
            case CloudCallFailed():
                self.failures.append(report)

    def _update(self, instance_id: str, provider_id: str, observed: Observed, paid_from: datetime | None) -> None:
        row = self.rows.get(instance_id)
        if row is not None:
            self.rows[instance_id] = replace(
                row,
                provider_id=provider_id or row.provider_id,
                observed=max(row.observed, observed, key=lambda state: state.order),
                launched_at=row.launched_at or self._clock.now(),
                paid_from=paid_from or row.paid_from,
            )

    def _finish(self, instance_id: str, why: str) -> None:
        if self.rows.pop(instance_id, None) is not None:
            self.finished[instance_id] = why
