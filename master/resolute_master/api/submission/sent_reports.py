"""One report as training code sends it, decoded at one go: what is in another form is for the general codec, which is slower."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec

from resolute.wire.times import is_settled
from resolute_master.api.http.limits import MAX_JSON_DEPTH

Id = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class SentMetrics(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """`Metrics` of the wire."""

    avg_metrics: dict[str, Any] = {}
    batch_metrics: tuple[dict[str, Any], ...] = ()


class SentTrialMetrics(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """`TrialMetrics` of the wire."""

    metrics: SentMetrics
    trial_id: Id
    trial_run_id: Id
    report_time: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    steps_completed: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None


class SentReport(msgspec.Struct, forbid_unknown_fields=True):
    """`ReportTrialMetricsRequest` of the wire."""

    group: str
    metrics: SentTrialMetrics


_decoder = msgspec.json.Decoder(SentReport)


def decode_report(raw: bytes) -> SentReport | None:
    """None for a body that has to be looked at with more care."""
    if raw.count(b"{") + raw.count(b"[") > MAX_JSON_DEPTH:
        return None
    try:
        report = _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return report if is_settled(report.metrics.report_time) else None
