"""The timeline of a trial: its reports and its checkpoints, merged.

Sorted by steps, only the page is read. Sorted by a metric, all requested entries are read, a page at a time, and sorted in a
thread.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import merge

from resolute.wire.rest.enums import MetricType, OrderBy, WorkloadFilter
from resolute.wire.rest.paging import Pagination
from resolute.wire.rest.trials import GetTrialWorkloadsQuery, GetTrialWorkloadsResponse, WorkloadContainer
from resolute.wire.states import CheckpointState
from resolute_master.api.auth.authorise import Action
from resolute_master.api.context import ApiContext
from resolute_master.api.http.call import Call, Route, rendered
from resolute_master.api.http.paging import bounds_of, page_of, pagination
from resolute_master.api.reading.finders import trial_at
from resolute_master.api.render.trials import checkpoint_workload, metrics_workload
from resolute_master.domain.metrics import MetricReport
from resolute_master.domain.trial import Trial
from resolute_master.event_loop import yielding
from resolute_master.lifecycle.checkpoints import searcher_metric
from resolute_master.store.base import CheckpointQuery, MetricQuery
from resolute_master.store.metric_rows import STEPPED_GROUPS, TRAINING, VALIDATION

Place = tuple[int, int]
"""Sort key: steps, then training before validation before checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One entry of the timeline."""

    place: Place
    metric: float | None
    shown: WorkloadContainer


async def workloads(call: Call, trial: Trial) -> object:
    """One page of the timeline of a trial: its trainings, validations and checkpoints."""
    query = call.query(GetTrialWorkloadsQuery)
    groups, checkpoints = _groups(query), await _checkpoints(call.api, trial, query)
    if query.sort_key and query.sort_key != "batches":
        reports = await _all_reports(call.api, trial, groups)

        def by_metric() -> GetTrialWorkloadsResponse:
            entries = [*(_report_entry(report, query) for report in yielding(reports)), *checkpoints]
            rows, pages = page_of(_by_metric(entries, query), offset=query.offset, limit=query.limit)
            return _answer(rows, pages)

        return await rendered(by_metric)
    total = len(checkpoints) + await _count(call.api, trial, groups)
    first, after = bounds_of(total, offset=query.offset, limit=query.limit)
    found = await _window(call.api, trial, groups, query, first - len(checkpoints), after)
    pages = pagination(start=first, count=after - first, total=total, limit=query.limit)
    return await rendered(lambda: _answer(_page(found, checkpoints, query, first, after), pages))


def _answer(rows: Sequence[_Entry], pages: Pagination) -> GetTrialWorkloadsResponse:
    return GetTrialWorkloadsResponse(workloads=tuple(entry.shown for entry in rows), pagination=pages)


def _groups(query: GetTrialWorkloadsQuery) -> tuple[str, ...]:
    """Metric groups whose reports are requested."""
    wanted = {
        MetricType.TRAINING: (TRAINING,),
        MetricType.VALIDATION: (VALIDATION,),
        MetricType.PROFILING: (),
    }.get(query.metric_type, STEPPED_GROUPS)
    groups = {query.group} if query.group else set(wanted)
    if query.filter is WorkloadFilter.CHECKPOINT:
        return ()
    if query.filter in (WorkloadFilter.VALIDATION, WorkloadFilter.CHECKPOINT_OR_VALIDATION):
        groups &= {VALIDATION}
    return tuple(sorted(groups))


async def _checkpoints(api: ApiContext, trial: Trial, query: GetTrialWorkloadsQuery) -> list[_Entry]:
    """The entries of the trial's checkpoints, in the order of the timeline."""
    only_metrics = query.metric_type is not MetricType.UNSPECIFIED or query.filter is WorkloadFilter.VALIDATION
    if only_metrics or query.group:
        return []
    states = () if query.remove_deleted_checkpoints else tuple(CheckpointState)
    found = await api.store.checkpoints(CheckpointQuery(trial_id=trial.id, states=states))
    entries = [
        _Entry(place=(c.steps_completed, 2), metric=None, shown=WorkloadContainer(checkpoint=checkpoint_workload(c)))
        for c in found
    ]
    return sorted(entries, key=_by_place, reverse=query.order_by is OrderBy.DESC)


async def _count(api: ApiContext, trial: Trial, groups: Sequence[str]) -> int:
    if not groups:
        return 0
    found = await api.store.metric_chunks([trial.id], groups)
    return sum(chunk.reports for chunks in found.values() for chunk in chunks)


async def _window(
    api: ApiContext, trial: Trial, groups: tuple[str, ...], query: GetTrialWorkloadsQuery, first: int, after: int
) -> _Window:
    """The reports from number `first` up to `after`, counted without checkpoints. These are all that may be on the page, because
    at most all checkpoints precede a report."""
    first = max(first, 0)
    if not groups or after <= first:
        return _Window(first=first, reports=())
    wanted = MetricQuery(
        trial=trial.id,
        groups=groups,
        descending=query.order_by is OrderBy.DESC,
        offset=first,
        limit=after - first,
    )
    return _Window(first=first, reports=await api.store.ordered_metrics(wanted))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """Some of the reports in order; `first` come before them."""

    first: int
    reports: tuple[MetricReport, ...]


def _page(
    window: _Window, checkpoints: Sequence[_Entry], query: GetTrialWorkloadsQuery, first: int, after: int
) -> Sequence[_Entry]:
    """The entries from `first` up to `after` of reports and checkpoints together."""
    descending = query.order_by is OrderBy.DESC
    entries = [_report_entry(report, query) for report in yielding(window.reports)]
    # Of several runs that count at one step, the store has each run's together.
    entries.sort(key=_by_place, reverse=descending)
    earlier = 0
    if entries and window.first:
        edge = entries[0].place
        earlier = sum(each.place > edge if descending else each.place < edge for each in checkpoints)
    begin = window.first + earlier
    together = [*merge(entries, checkpoints[earlier:], key=_by_place, reverse=descending)]
    return together[first - begin : after - begin]


def _by_place(entry: _Entry) -> Place:
    return entry.place


async def _all_reports(api: ApiContext, trial: Trial, groups: Sequence[str]) -> list[MetricReport]:
    """Page by page, so that other calls run in between."""
    found: list[MetricReport] = []
    for group in groups:
        async for page in api.store.metric_pages(trial.id, group):
            found += page
            await asyncio.sleep(0)
    return found


def _report_entry(report: MetricReport, query: GetTrialWorkloadsQuery) -> _Entry:
    shown = metrics_workload(report, with_batches=query.include_batch_metrics)
    is_validation = report.group == VALIDATION
    return _Entry(
        place=(report.steps_completed or 0, 1 if is_validation else 0),
        metric=searcher_metric(report.metrics, query.sort_key or ""),
        shown=WorkloadContainer(validation=shown) if is_validation else WorkloadContainer(training=shown),
    )


def _by_metric(entries: Sequence[_Entry], query: GetTrialWorkloadsQuery) -> list[_Entry]:
    """The entries that lack it last, by steps."""
    descending = query.order_by is OrderBy.DESC
    entries = sorted(entries, key=_by_place, reverse=descending)
    having = [e for e in entries if e.metric is not None and not math.isnan(e.metric)]
    having.sort(key=lambda e: e.metric or 0.0, reverse=descending)
    return having + [e for e in entries if e.metric is None or math.isnan(e.metric)]


ROUTES = (Route("GET", "/api/v1/trials/{trialId}/workloads", Action.VIEW, trial_at("trialId"), workloads),)
