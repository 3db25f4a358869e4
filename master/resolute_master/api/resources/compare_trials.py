"""Series of several trials, for a chart that compares them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from aiohttp import web

from resolute.errors import InvalidInput
from resolute.wire.rest.enums import MetricType
from resolute.wire.rest.experiments import Int32FieldFilter
from resolute.wire.rest.series import (
    ComparableTrial,
    CompareTrialsQuery,
    CompareTrialsResponse,
    DataPoint,
    DownsampledMetrics,
    TimeSeriesFilter,
)
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Route, rendered
from resolute_master.api.http.limits import MAX_DATAPOINTS, MAX_METRICS_OF_SERIES, MAX_TRIALS_PER_STREAM
from resolute_master.api.reading.finders import find_trial
from resolute_master.api.reading.series import series
from resolute_master.api.reading.showing import show_trial
from resolute_master.domain.metrics import MetricReport
from resolute_master.domain.trial import Trial
from resolute_master.lifecycle.checkpoints import searcher_metric
from resolute_master.store.metric_rows import STEPPED_GROUPS, TRAINING, VALIDATION

DATAPOINTS = 1000
"""Default number of points of a series: about the width of a screen in pixels."""

EPOCHS = ("epoch", "epochs")
GROUPS = {MetricType.TRAINING: TRAINING, MetricType.VALIDATION: VALIDATION}
TYPES = {group: type_ for type_, group in GROUPS.items()}


async def _trials(call: Call) -> tuple[Trial, ...]:
    ids = call.query(CompareTrialsQuery).trial_ids
    if not ids:
        raise InvalidInput("trialIds: name at least one trial")
    if len(ids) > MAX_TRIALS_PER_STREAM:
        raise InvalidInput(f"trialIds: {len(ids)} ids are over the limit of {MAX_TRIALS_PER_STREAM}; split the call")
    return tuple([await find_trial(call.api, id_) for id_ in sorted(set(ids))])


async def compare(call: Call, trials: Sequence[Trial]) -> web.Response:
    """Series of metrics of several trials, reduced to a number of points."""
    query = call.query(CompareTrialsQuery)
    names = _names(query)
    most = points(query.max_datapoints)
    first, last = bounds(query.start_batches, query.end_batches)
    first, last = _narrowed(query.time_series_filter, first, last)
    found: list[tuple[Any, list[tuple[str, tuple[MetricReport, ...]]]]] = []
    for trial in trials:
        groups = []
        for group, of_group in names.items():
            reports = await series(call.api, trial.id, group, of_group, most=most, first=first, last=last)
            groups.append((group, reports))
        found.append((await show_trial(call.api, trial), groups))
    keep = query.time_series_filter

    def answer() -> CompareTrialsResponse:
        return CompareTrialsResponse(
            trials=tuple(
                ComparableTrial(
                    trial=shown,
                    metrics=tuple(
                        DownsampledMetrics(
                            group=group,
                            type=TYPES.get(group, MetricType.UNSPECIFIED),
                            data=data_points((report for report in reports if _fits(report, keep)), names[group]),
                        )
                        for group, reports in groups
                    ),
                )
                for shown, groups in found
            )
        )

    return await rendered(answer)


def data_points(reports: Iterable[MetricReport], names: Sequence[str]) -> tuple[DataPoint, ...]:
    """The points of a chart."""
    return tuple(
        DataPoint(
            batches=report.steps_completed or 0,
            time=report.reported_at,
            values={name: report.metrics[name] for name in names if name in report.metrics},
            epoch=_epoch(report.metrics),
        )
        for report in reports
    )


def _epoch(metrics: Mapping[str, Any]) -> float | None:
    return next((searcher_metric(metrics, name) for name in EPOCHS if name in metrics), None)


# ---------------------------------------------------------------------------------------------------------- the query


def group_of(group: str | None, metric_type: MetricType) -> str:
    """The group in the query of a single metric. Raises `InvalidInput`."""
    if group:
        return group
    if metric_type not in GROUPS:
        raise InvalidInput(
            f"group: name the group of the metric, or send metricType {MetricType.TRAINING} or {MetricType.VALIDATION}"
        )
    return GROUPS[metric_type]


def points(asked: int) -> int:
    """The number of points. Raises `InvalidInput` for a number out of range."""
    if asked and not 2 <= asked <= MAX_DATAPOINTS:
        raise InvalidInput(
            f"maxDatapoints: {asked} must be from 2 to {MAX_DATAPOINTS}; 0 means the default, {DATAPOINTS}"
        )
    return asked or DATAPOINTS


def bounds(start: int, end: int) -> tuple[int | None, int | None]:
    """The first and the last step, both included; 0 is no bound. Raises `InvalidInput` for an empty range."""
    if start < 0 or end < 0:
        raise InvalidInput(f"startBatches, endBatches: {min(start, end)} must not be negative; 0 means no bound")
    if end and end < start:
        raise InvalidInput(f"endBatches: {end} is before startBatches {start}")
    return start or None, end or None


def _names(query: CompareTrialsQuery) -> dict[str, tuple[str, ...]]:
    """The requested names, by group. Raises `InvalidInput` if there are none."""
    found: dict[str, list[str]] = {}
    for id_ in query.metric_ids:
        group, dot, name = id_.partition(".")
        if not (group and dot and name):
            raise InvalidInput(f"metricIds: '{id_}' is not of the form <group>.<name>, such as validation.loss")
        found.setdefault(group, []).append(name)
    if query.metric_names:
        single = query.group or GROUPS.get(query.metric_type)
        for group in (single,) if single else STEPPED_GROUPS:
            found.setdefault(group, []).extend(query.metric_names)
    if not found:
        raise InvalidInput("metricNames: name at least one metric, or metricIds of the form <group>.<name>")
    if sum(map(len, found.values())) > MAX_METRICS_OF_SERIES:
        raise InvalidInput(f"metricNames: the metrics are over the limit of {MAX_METRICS_OF_SERIES}; split the call")
    return {group: tuple(dict.fromkeys(names)) for group, names in found.items()}


class _Bounds(Protocol):
    @property
    def gt(self) -> Any: ...
    @property
    def gte(self) -> Any: ...
    @property
    def lt(self) -> Any: ...
    @property
    def lte(self) -> Any: ...


Value = TypeVar("Value", float, datetime)


def _narrowed(asked: TimeSeriesFilter | None, first: int | None, last: int | None) -> tuple[int | None, int | None]:
    """The range of steps, which is narrowed before points are chosen."""
    if asked is None or asked.name != "batches" or asked.integer_range is None:
        return first, last
    range_ = asked.integer_range
    lows = [low for low in (first, range_.gte, None if range_.gt is None else range_.gt + 1) if low is not None]
    highs = [high for high in (last, range_.lte, None if range_.lt is None else range_.lt - 1) if high is not None]
    return max(lows, default=None), min(highs, default=None)


def _fits(report: MetricReport, asked: TimeSeriesFilter | None) -> bool:
    """Whether a selected point passes the filter."""
    if asked is None:
        return True
    if asked.name == "time":
        return asked.time_range is None or _between(report.reported_at, asked.time_range)
    value = (
        float(report.steps_completed or 0) if asked.name == "batches" else searcher_metric(report.metrics, asked.name)
    )
    ranges = [range_ for range_ in (asked.double_range, asked.integer_range) if range_ is not None]
    if not ranges:
        return True
    return value is not None and all(_between(value, range_) and _listed(value, range_) for range_ in ranges)


def _between(value: Value, range_: _Bounds) -> bool:
    return (
        (range_.gt is None or value > range_.gt)
        and (range_.gte is None or value >= range_.gte)
        and (range_.lt is None or value < range_.lt)
        and (range_.lte is None or value <= range_.lte)
    )


def _listed(value: float, range_: object) -> bool:
    if not isinstance(range_, Int32FieldFilter):
        return True
    return (not range_.incl or value in range_.incl) and value not in range_.not_in


ROUTES = (Route("GET", "/api/v1/trials/time-series", Action.VIEW, _trials, compare),)
