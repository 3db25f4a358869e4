"""Many reports of one trial in one request (an extension), for tasks that report a thousand times a second.

POST /api/v1/trials/{trialId}/metrics/batch
{"group": "training", "trialRunId": 1, "reports": [{"stepsCompleted": 7, "metrics": {"loss": 0.5}, "reportTime": "..."}]}
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from resolute.errors import InvalidInput
from resolute.wire.rest.extensions import MetricBatchStored
from resolute.wire.times import in_utc, is_settled
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.bodies import check_values
from resolute_master.api.http.call import Call, Route
from resolute_master.api.http.limits import MAX_GROUP_LENGTH, MAX_METRIC_NAME_LENGTH, MAX_METRIC_NAMES
from resolute_master.api.reading.finders import trial_at
from resolute_master.api.resources.metrics import EPOCHS, MAX_STEPS, SYSTEM_GROUPS
from resolute_master.domain.metrics import MetricReport
from resolute_master.domain.trial import Trial
from resolute_master.store.base import MetricOutcome

MAX_REPORTS = 5_000
"""Reports in one request. Larger requests gain nothing, and would delay other callers."""

Steps = Annotated[int, msgspec.Meta(ge=0, le=MAX_STEPS)]


class BatchedReport(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """One report; `reportTime` is when the master got it if it is left out."""

    steps_completed: Steps
    metrics: dict[str, Any]
    report_time: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class MetricBatch(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Reports of one run for one group."""

    group: str
    trial_run_id: int
    reports: list[BatchedReport]


_decoder = msgspec.json.Decoder(MetricBatch)
"""A typed decoder: one pass over the body, without a step in Python for each value."""


async def report_batch(call: Call, trial: Trial) -> MetricBatchStored:
    """Stores reports and answers when all are durable. Repeats are harmless. A report that differs from an earlier one is not
    stored; the answer names it."""
    raw = await call.raw()
    try:
        batch = _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the body is not a batch of reports: {error}") from None
    _check(batch, trial)
    if raw.count(b"{") + raw.count(b"[") > 2 + 2 * len(batch.reports):
        # Values within values, or brackets in a name: only then are they worth a look at each.
        for report in batch.reports:
            check_values(report.metrics)
    now, reports = call.api.clock.now(), _timed(batch.reports)
    group, run_id = batch.group, batch.trial_run_id
    outcomes = await call.api.reporting.metric_batch(
        [
            MetricReport(
                trial_id=trial.id,
                run_id=run_id,
                group=group,
                steps_completed=report.steps_completed,
                reported_at=report.report_time or now,
                metrics=report.metrics,
            )
            for report in reports
        ]
    )
    conflicts: list[int] = []
    if MetricOutcome.CONFLICT in outcomes:
        told = zip(batch.reports, outcomes, strict=True)
        conflicts = [report.steps_completed for report, outcome in told if outcome is MetricOutcome.CONFLICT]
    return MetricBatchStored(stored=len(outcomes) - len(conflicts), conflicting_steps=tuple(conflicts))


def _timed(reports: list[BatchedReport]) -> list[BatchedReport]:
    """The reports with times in UTC. Raises `InvalidInput` for an invalid time."""
    if all(is_settled(report.report_time) for report in reports):
        return reports
    return [
        report
        if report.report_time is None
        else replace(report, report_time=in_utc(report.report_time, f"reports[{number}].reportTime"))
        for number, report in enumerate(reports)
    ]


def _check(batch: MetricBatch, trial: Trial) -> None:
    if not 0 < len(batch.group) <= MAX_GROUP_LENGTH or "." in batch.group or batch.group in SYSTEM_GROUPS:
        raise InvalidInput(
            f"group: '{batch.group[:MAX_GROUP_LENGTH]}' must be a name of 1 to {MAX_GROUP_LENGTH} characters without a dot, "
            f"and none of {', '.join(sorted(SYSTEM_GROUPS))}"
        )
    if not batch.reports or len(batch.reports) > MAX_REPORTS:
        raise InvalidInput(f"reports: {len(batch.reports)} reports; send 1 to {MAX_REPORTS} in one request")
    if batch.trial_run_id > trial.run_id or batch.trial_run_id < 0:
        raise InvalidInput(f"trialRunId: trial {trial.id} is at run {trial.run_id}, not {batch.trial_run_id}")
    names = set[str]().union(*(report.metrics for report in batch.reports))
    if max(len(report.metrics) for report in batch.reports) > MAX_METRIC_NAMES:
        raise InvalidInput(f"reports.metrics: one has more than {MAX_METRIC_NAMES} names; send fewer")
    if max(map(len, names), default=0) > MAX_METRIC_NAME_LENGTH:
        raise InvalidInput(f"reports.metrics: one name has more than {MAX_METRIC_NAME_LENGTH} characters; shorten it")
    for name in names.intersection(EPOCHS):
        for report in batch.reports:
            value = report.metrics.get(name, 0)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InvalidInput(f"reports.metrics.{name}: {value!r} must be a number; use another name for it")


ROUTES = (Route("POST", "/api/v1/trials/{trialId}/metrics/batch", Action.REPORT, trial_at("trialId"), report_batch),)
