"""What a metric report does to the rows that are there: the part of `append_metrics` that every store shares.

Pure: rows in, outcome and rows out. How rows are found and kept is the store's own affair.
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from resolute_master.domain.metrics import MetricReport
from resolute_master.store.base import MetricOutcome
from resolute_master.store.encoding import decode_plain, encode

SYSTEM_GROUPS = frozenset({"cpu", "disk", "gpu", "memory", "network"})
"""Groups of reports of a machine about itself: kept raw, shown only if requested by name, never rolled back."""

TRAINING, VALIDATION = "training", "validation"

STEPPED_GROUPS = (TRAINING, VALIDATION)
"""Groups that roll back each on their own; all others count as one."""

RowKey = tuple[int, int, str, int]
"""Trial, run, group, step count."""


def row_key(report: MetricReport) -> RowKey | None:
    """None for a report without a step count: those are keyed by their time and content."""
    if report.steps_completed is None:
        return None
    return (report.trial_id, report.run_id, report.group, report.steps_completed)


def rollback_group(group: str) -> str:
    """Which groups compare as the same one when a newer run rolls back an older one."""
    return group if group in STEPPED_GROUPS else ""


def rolls_back(report: MetricReport) -> bool:
    """Whether such a report can archive rows of older runs at all."""
    return report.steps_completed is not None and group_rolls_back(report.group)


def group_rolls_back(group: str) -> bool:
    return group not in SYSTEM_GROUPS


def is_rolled_back(row: MetricReport, by: MetricReport) -> bool:
    """Whether `row` no longer counts once `by` is stored: an older run reported it for work that is done again."""
    if row.trial_id != by.trial_id or row.run_id >= by.run_id or not (rolls_back(row) and rolls_back(by)):
        return False
    assert row.steps_completed is not None and by.steps_completed is not None
    if row.steps_completed > by.steps_completed:
        return True
    return row.steps_completed == by.steps_completed and rollback_group(row.group) == rollback_group(by.group)


def plain_report(report: MetricReport) -> MetricReport:
    """The report with its values as they will be read back, so that a repeat of it compares equal."""
    batches = report.batch_metrics
    return replace(
        report,
        metrics=decode_plain(encode(report.metrics)),
        batch_metrics=None if batches is None else tuple(decode_plain(encode(batches))),
    )


def merged(row: MetricReport, report: MetricReport) -> tuple[MetricOutcome, MetricReport]:
    """What becomes of `row` when `report` with the same key arrives; both must be plain. The row keeps its time."""
    if any(name in row.metrics and row.metrics[name] != value for name, value in report.metrics.items()):
        return MetricOutcome.CONFLICT, row
    if report.batch_metrics is not None and row.batch_metrics not in (None, report.batch_metrics):
        return MetricOutcome.CONFLICT, row
    new_names = report.metrics.keys() - row.metrics.keys()
    if not new_names and (report.batch_metrics is None or row.batch_metrics is not None):
        return MetricOutcome.REPEATED, row
    batches = row.batch_metrics if report.batch_metrics is None else report.batch_metrics
    return MetricOutcome.MERGED, replace(row, metrics={**row.metrics, **report.metrics}, batch_metrics=batches)


def same_moment(row: MetricReport, report: MetricReport) -> bool:
    """Whether a report without a step count is already there as `row`; both must be plain."""
    return (
        (row.trial_id, row.run_id, row.group) == (report.trial_id, report.run_id, report.group)
        and row.steps_completed is None
        and row.reported_at == report.reported_at
        and row.metrics == report.metrics
        and row.batch_metrics == report.batch_metrics
    )


def listing_order(report: MetricReport) -> tuple[int, int, str, datetime]:
    """How reports are listed: by step count (those without one first), then run, group and time."""
    steps = -1 if report.steps_completed is None else report.steps_completed
    return (steps, report.run_id, report.group, report.reported_at)
