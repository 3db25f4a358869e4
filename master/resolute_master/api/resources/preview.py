"""A preview of a search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resolute.config import experiment_defaults, mask_experiment, parse_experiment
from resolute.errors import InvalidInput
from resolute.wire.rest.search import (
    PreviewHPSearchRequest,
    PreviewHPSearchResponse,
    SearchSummary,
    SearchUnit,
    TrialSummary,
)
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Route, nothing
from resolute_master.api.queue.search_estimates import forecast
from resolute_master.api.submission.experiment_limits import check_search
from resolute_master.searcher.methods import make


async def preview(call: Call, _: None) -> PreviewHPSearchResponse:
    """Previews how many trials train for how long. Results determine which trials continue, and barely affect how many."""
    request = await call.body(PreviewHPSearchRequest)
    if not request.config:
        raise InvalidInput("config: missing; send the experiment configuration")
    names = call.api.config.security.secrets.names
    defaults = experiment_defaults(call.api.config, request.config, ids=call.api.ids, clock=call.api.clock)
    parsed = parse_experiment(request.config, defaults=defaults)
    config = parsed.to_json()
    searcher = mask_experiment(config, names)["searcher"]
    check_search(config["searcher"], config["hyperparameters"])
    method = make(config["searcher"], config["hyperparameters"])
    trials = tuple(TrialSummary(count=each.trials, unit=_unit(searcher, each.units)) for each in method.plan())
    expected = None
    if request.forecast or request.seconds_per_unit is not None:
        expected = await forecast(call, parsed, method, _counts(searcher), request.seconds_per_unit)
    return PreviewHPSearchResponse(summary=SearchSummary(config=searcher, trials=trials, forecast=expected))


def _unit(searcher: Mapping[str, Any], units: int | None) -> SearchUnit:
    """The length of one trial in the preview. Without a length, the training code determines it."""
    if units is None:
        return SearchUnit(max_length=True)
    return SearchUnit(name=_counts(searcher), value=units, max_length=False)


def _counts(searcher: Mapping[str, Any]) -> str:
    """The unit of lengths."""
    if searcher.get("max_time") is not None and searcher.get("time_metric"):
        return str(searcher["time_metric"])
    length = searcher.get("max_length") or searcher.get("length_per_round")
    return str(next(iter(length))) if isinstance(length, Mapping) else "units"


ROUTES = (Route("POST", "/api/v1/preview-hp-search", Action.PREVIEW, nothing, preview),)
