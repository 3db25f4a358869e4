"""Reports of the trials of an experiment, as streams: first all present ones, then at intervals the new ones.

Each ends when its experiments have ended and all reports were sent, or when the caller disconnects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol

from aiohttp import web

from resolute.errors import InvalidInput
from resolute.wire.rest.enums import MetricType
from resolute.wire.rest.series import (
    ExpMetricNamesQuery,
    ExpMetricNamesResponse,
    MetricBatchesQuery,
    MetricBatchesResponse,
    MetricIdentifier,
    TrialsSampleQuery,
    TrialsSampleResponse,
    TrialsSampleResponseTrial,
    TrialsSnapshotQuery,
    TrialsSnapshotResponse,
    TrialsSnapshotResponseTrial,
)
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Route
from resolute_master.api.http.limits import MAX_SAMPLED_TRIALS, MAX_STREAM_PERIOD_S, MAX_TRIALS_PER_STREAM
from resolute_master.api.http.streaming import stream
from resolute_master.api.reading.finders import experiment_at, find_experiment, trials_of
from resolute_master.api.reading.series import series
from resolute_master.api.resources.compare_trials import bounds, data_points, group_of, points
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import TrialId
from resolute_master.domain.trial import Trial
from resolute_master.engine.engine import Watch
from resolute_master.lifecycle.checkpoints import searcher_metric
from resolute_master.store.metric_chunks import NUMBER, Chunk, whole
from resolute_master.store.metric_rows import TRAINING, VALIDATION

PERIOD_S = 30
"""Default interval between two polls."""

SAMPLED_TRIALS = 25
"""Default size of a sample."""

MAX_MARGIN = 1_000
"""Batches before and after a snapshot within which a report belongs to it."""

LISTENER_CHECK_S = 10.0
"""Interval at which a stream without news checks its client."""

TRIALS_AT_ONCE = 200
"""Trials whose chunks are read in one query."""

Look = Callable[[], Awaitable[object | None]]
"""Returns what is new since the last call; None if nothing is."""


class _Metric(Protocol):
    """A query of one metric."""

    @property
    def metric_name(self) -> str: ...
    @property
    def metric_type(self) -> MetricType: ...
    @property
    def group(self) -> str | None: ...
    @property
    def period_seconds(self) -> int: ...


def _checked(query: _Metric) -> tuple[str, str, float]:
    """Group, name and period. Raises `InvalidInput`."""
    if not query.metric_name:
        raise InvalidInput("metricName: name the metric")
    return group_of(query.group, query.metric_type), query.metric_name, _period(query.period_seconds)


def _period(asked: int) -> float:
    if not 0 <= asked <= MAX_STREAM_PERIOD_S:
        raise InvalidInput(
            f"periodSeconds: {asked} must be from 1 to {MAX_STREAM_PERIOD_S}; 0 means the default, {PERIOD_S}"
        )
    return float(asked or PERIOD_S)


async def _repeated(
    call: Call, experiments: Sequence[Experiment], look: Look, period_s: float
) -> AsyncGenerator[object, None]:
    """What is new at each poll. When all experiments have ended, one more poll follows at once."""
    with ExitStack() as stack:
        moves = [stack.enter_context(call.api.engine.watch("experiment", one.id)) for one in experiments]
        while True:
            over = _are_over(call, experiments)
            news = await look()
            if news is not None:
                yield news
            until = call.api.clock.monotonic() + period_s
            while not over and (left := until - call.api.clock.monotonic()) > 0 and not _are_over(call, experiments):
                if call.gone:
                    return
                await _first(moves, min(left, LISTENER_CHECK_S))
            if over or call.gone:
                return


def _are_over(call: Call, experiments: Sequence[Experiment]) -> bool:
    """Whether no further reports will arrive. The engine holds only experiments that may continue in memory."""
    now = (call.api.engine.state.get(Experiment, one.id) for one in experiments)
    return all(one is None or one.state.gone for one in now)


async def _first(watches: Sequence[Watch], timeout_s: float) -> None:
    """Waits until one of the watches changes, or until the timeout."""
    waiting = [asyncio.ensure_future(watch.changed()) for watch in watches]
    try:
        await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _chunks(call: Call, trials: Sequence[Trial], group: str | None) -> dict[tuple[int, str], Chunk]:
    """One chunk that covers all reports of a trial, by trial and group."""
    found: dict[tuple[int, str], Chunk] = {}
    ids = [trial.id for trial in trials]
    for first in range(0, len(ids), TRIALS_AT_ONCE):
        some = await call.api.store.metric_chunks(ids[first : first + TRIALS_AT_ONCE], [group] if group else [])
        found |= {key: together for key, chunks in some.items() if (together := whole(chunks)) is not None}
    return found


# ------------------------------------------------------------------------------------------------------------- names


async def _experiments(call: Call) -> tuple[Experiment, ...]:
    ids = call.query(ExpMetricNamesQuery).ids
    if not ids:
        raise InvalidInput("ids: name at least one experiment")
    if len(ids) > MAX_TRIALS_PER_STREAM:
        raise InvalidInput(f"ids: {len(ids)} ids are over the limit of {MAX_TRIALS_PER_STREAM}; split the call")
    return tuple([await find_experiment(call.api, id_) for id_ in sorted(set(ids))])


async def names(call: Call, experiments: tuple[Experiment, ...]) -> web.StreamResponse:
    """Names of the metrics of experiments; the stream continues until they have ended."""
    period_s = _period(call.query(ExpMetricNamesQuery).period_seconds)
    told: set[tuple[str, str]] = set()
    searched: set[str] = set()

    async def look() -> object | None:
        found: set[tuple[str, str]] = set()
        for experiment in experiments:
            chunks = await _chunks(call, await trials_of(call.api, experiment), None)
            found |= {(group, name) for (_, group), chunk in chunks.items() for name in chunk.names}
        fresh, metrics = sorted(found - told), sorted({one.metric for one in experiments} - searched)
        told.update(fresh)
        searched.update(metrics)
        if not fresh and not metrics:
            return None
        return ExpMetricNamesResponse(
            searcher_metrics=tuple(metrics),
            training_metrics=tuple(name for group, name in fresh if group == TRAINING),
            validation_metrics=tuple(name for group, name in fresh if group == VALIDATION),
            metric_names=tuple(MetricIdentifier(group=group, name=name) for group, name in fresh),
        )

    return await stream(call, _repeated(call, experiments, look, period_s))


# ----------------------------------------------------------------------------------------------- batches and snapshot


async def batches(call: Call, experiment: Experiment) -> web.StreamResponse:
    """Steps at which a metric was reported; the stream continues until the experiment has ended."""
    query = call.query(MetricBatchesQuery)
    group, name, period_s = _checked(query)
    told: set[int] = set()

    async def look() -> object | None:
        fresh: set[int] = set()
        chunks = await _chunks(call, await trials_of(call.api, experiment), group)
        for (trial, _), chunk in sorted(chunks.items()):
            if name in chunk.names:
                async for page in call.api.store.metric_pages(TrialId(trial), group):
                    fresh.update(r.steps_completed or 0 for r in page if name in r.metrics)
        fresh -= told
        told.update(fresh)
        return MetricBatchesResponse(batches=tuple(sorted(fresh))) if fresh else None

    return await stream(call, _repeated(call, [experiment], look, period_s))


async def snapshot(call: Call, experiment: Experiment) -> web.StreamResponse:
    """Values of a metric of all trials at one step; the stream continues until the experiment has ended."""
    query = call.query(TrialsSnapshotQuery)
    group, name, period_s = _checked(query)
    at, margin = query.batches_processed, query.batches_margin
    if at < 0:
        raise InvalidInput(f"batchesProcessed: {at} must not be negative")
    if not 0 <= margin <= MAX_MARGIN:
        raise InvalidInput(f"batchesMargin: {margin} must be from 0 to {MAX_MARGIN}")
    told: dict[int, TrialsSnapshotResponseTrial] = {}

    async def look() -> object | None:
        trials = {trial.id: trial for trial in await trials_of(call.api, experiment)}
        found = await call.api.store.metrics_between(
            tuple(trials), group, first_step=max(at - margin, 0), last_step=at + margin
        )
        newest: dict[int, TrialsSnapshotResponseTrial] = {}
        for report in found:
            value = searcher_metric(report.metrics, name)
            if value is not None:
                newest[report.trial_id] = TrialsSnapshotResponseTrial(
                    trial_id=report.trial_id,
                    hparams=trials[report.trial_id].hparams,
                    metric=value,
                    batches_processed=report.steps_completed or 0,
                )
        fresh = tuple(one for id_, one in sorted(newest.items()) if told.get(id_) != one)
        told.update(newest)
        return TrialsSnapshotResponse(trials=fresh) if fresh else None

    return await stream(call, _repeated(call, [experiment], look, period_s))


# ------------------------------------------------------------------------------------------------------------- sample


@dataclass(slots=True, kw_only=True)
class _Sent:
    """What was sent to the reader of a sample: its trials, and the step up to which the points of each were sent."""

    trials: set[int] = field(default_factory=set)
    last: dict[int, int] = field(default_factory=dict)


async def sample(call: Call, experiment: Experiment) -> web.StreamResponse:
    """Series of a metric of the best trials; the stream continues until the experiment has ended."""
    query = call.query(TrialsSampleQuery)
    group, name, period_s = _checked(query)
    most, (first, last) = points(query.max_datapoints), bounds(query.start_batches, query.end_batches)
    if not 0 <= query.max_trials <= MAX_SAMPLED_TRIALS:
        raise InvalidInput(
            f"maxTrials: {query.max_trials} must be from 1 to {MAX_SAMPLED_TRIALS}; 0 means the default, {SAMPLED_TRIALS}"
        )
    count, told = query.max_trials or SAMPLED_TRIALS, _Sent()

    async def look() -> object | None:
        trials = {trial.id: trial for trial in await trials_of(call.api, experiment)}
        chunks = await _chunks(call, tuple(trials.values()), group)
        chosen = _best(experiment, name, {trial: chunk for (trial, _), chunk in chunks.items()}, count)
        sampled: list[TrialsSampleResponseTrial] = []
        for id_ in chosen:
            begin = told.last[id_] + 1 if id_ in told.last else first
            reports = await series(call.api, TrialId(id_), group, [name], most=most, first=begin, last=last)
            data = data_points((report for report in reports if name in report.metrics), [name])
            if data:
                told.last[id_] = data[-1].batches
                sampled.append(TrialsSampleResponseTrial(trial_id=id_, hparams=trials[TrialId(id_)].hparams, data=data))
        promoted = tuple(sorted(set(chosen) - told.trials))
        demoted = tuple(sorted(told.trials - set(chosen)))
        told.trials = set(chosen)
        if not (sampled or promoted or demoted):
            return None
        return TrialsSampleResponse(trials=tuple(sampled), promoted_trials=promoted, demoted_trials=demoted)

    return await stream(call, _repeated(call, [experiment], look, period_s))


def _best(experiment: Experiment, name: str, chunks: dict[int, Chunk], count: int) -> list[int]:
    """The trials with the best value of the metric so far, in the direction of the experiment's own; ties by id."""
    found: list[tuple[float, int]] = []
    for trial, chunk in chunks.items():
        one = chunk.names.get(name)
        if one is not None and one.type == NUMBER:
            found.append((one.low if experiment.smaller_is_better else -one.high, trial))
    # NaN is worse than everything.
    return [trial for _, trial in sorted(found, key=lambda each: (each[0] != each[0], each))[:count]]


_OF_EXPERIMENT = "/api/v1/experiments/{experimentId}/metrics-stream"

ROUTES = (
    Route("GET", "/api/v1/experiments/metrics-stream/metric-names", Action.VIEW, _experiments, names),
    Route("GET", f"{_OF_EXPERIMENT}/batches", Action.VIEW, experiment_at("experimentId"), batches),
    Route("GET", f"{_OF_EXPERIMENT}/trials-snapshot", Action.VIEW, experiment_at("experimentId"), snapshot),
    Route("GET", f"{_OF_EXPERIMENT}/trials-sample", Action.VIEW, experiment_at("experimentId"), sample),
)
