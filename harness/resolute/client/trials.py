"""Trials, their timeline, metrics and log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from resolute.client.errors import MasterUnreachable
from resolute.client.paging import all_pages
from resolute.client.session import Session
from resolute.wire.rest.checkpoints import Checkpoint, GetCheckpointsQuery, GetTrialCheckpointsResponse
from resolute.wire.rest.empty import Empty
from resolute.wire.rest.extensions import GetTrialAllocationsResponse, TrialAllocation
from resolute.wire.rest.logs import LogsQuery, TrialLogsResponse
from resolute.wire.rest.metrics import GetMetricsQuery, GetMetricsResponse, MetricsReport
from resolute.wire.rest.paging import Pagination
from resolute.wire.rest.trials import (
    GetTrialResponse,
    GetTrialWorkloadsQuery,
    GetTrialWorkloadsResponse,
    PutTrialRetainLogsRequest,
    Trial,
    WorkloadContainer,
)

RECONNECT_PAUSES_S = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0)
"""The pauses before each attempt to continue a followed log, which survives a restart of its master."""


@dataclass(frozen=True, slots=True)
class Trials:
    """Calls about trials."""

    session: Session

    def get(self, trial_id: int) -> Trial:
        return self.session.get(f"api/v1/trials/{trial_id}", GetTrialResponse).trial

    def kill(self, trial_id: int) -> None:
        self.session.post(f"api/v1/trials/{trial_id}/kill", Empty)

    def workloads(self, trial_id: int, query: GetTrialWorkloadsQuery) -> tuple[WorkloadContainer, ...]:
        """The timeline from the query's offset on; its limit is the size of the pages."""

        def fetch(offset: int) -> tuple[tuple[WorkloadContainer, ...], Pagination]:
            asked = replace(query, offset=offset)
            answer = self.session.get(f"api/v1/trials/{trial_id}/workloads", GetTrialWorkloadsResponse, asked)
            return answer.workloads, answer.pagination

        return tuple(all_pages(fetch, query.offset))

    def checkpoints(self, trial_id: int, query: GetCheckpointsQuery) -> tuple[Checkpoint, ...]:
        """One page of checkpoints: all of them unless the query limits it."""
        return self.session.get(f"api/v1/trials/{trial_id}/checkpoints", GetTrialCheckpointsResponse, query).checkpoints

    def metrics(self, trial_ids: Sequence[int], group: str) -> Iterator[MetricsReport]:
        """Every report of a group, by trial and then by step."""
        query = GetMetricsQuery(group=group, trial_ids=tuple(trial_ids))
        for batch in self.session.stream("api/v1/trials/metrics/trial_metrics", GetMetricsResponse, query):
            yield from batch.metrics

    def allocations(self, trial_id: int) -> tuple[TrialAllocation, ...]:
        """Every attempt at the trial, oldest first."""
        return self.session.get(f"api/v1/trials/{trial_id}/allocations", GetTrialAllocationsResponse).allocations

    def retain_logs(self, trial_id: int, days: int) -> None:
        """Sets the retention of the trial's log in days; -1 keeps it for ever."""
        request = PutTrialRetainLogsRequest(trial_id=trial_id, num_days=days)
        self.session.put(f"api/v1/trials/{trial_id}/retain_logs", Empty, request)

    def logs(
        self, trial_id: int, query: LogsQuery, pause: Callable[[float], object] = time.sleep
    ) -> Iterator[TrialLogsResponse]:
        """Log lines. With `query.follow` until the trial has ended, also over a restart of the master."""
        path = f"api/v1/trials/{trial_id}/logs"
        last: str | None = None
        failures = 0
        while True:
            skipping = last is not None
            try:
                for line in self.session.stream(path, TrialLogsResponse, query):
                    failures = 0
                    if skipping:
                        skipping = line.id != last
                        continue
                    last = line.id
                    yield line
                return
            except MasterUnreachable:
                if not query.follow or failures == len(RECONNECT_PAUSES_S) or (last is None and failures == 0):
                    raise
                pause(RECONNECT_PAUSES_S[failures])
                failures += 1
