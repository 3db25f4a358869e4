"""What a search would do, without doing it."""

from __future__ import annotations

from resolute.config import experiment_defaults, mask_experiment, parse_experiment
from resolute.errors import InvalidInput
from resolute.wire.rest.search import (
    PreviewHPSearchRequest,
    PreviewHPSearchResponse,
    SearchSummary,
    SearchUnit,
    TrialSummary,
)
from resolute_master.api.authorise import Action
from resolute_master.api.call import Call, Route, nothing


async def preview(call: Call, _: None) -> PreviewHPSearchResponse:
    """`single` and `random` decide nothing by results: how many trials there will be is in the configuration."""
    request = await call.body(PreviewHPSearchRequest)
    if not request.config:
        raise InvalidInput("config: send the experiment configuration to look at")
    names = call.api.config.security.secrets.names
    defaults = experiment_defaults(call.api.config, request.config, ids=call.api.ids, clock=call.api.clock)
    config = parse_experiment(request.config, defaults=defaults).to_json()
    searcher = mask_experiment(config, names)["searcher"]
    unit = _unit(searcher.get("max_length"))
    trials = (TrialSummary(count=int(searcher.get("max_trials", 1)), unit=unit),)
    return PreviewHPSearchResponse(summary=SearchSummary(config=searcher, trials=trials))


def _unit(length: object) -> SearchUnit:
    """Without a length the training code decides alone."""
    if isinstance(length, dict):
        ((name, value),) = length.items()
        return SearchUnit(name=str(name), value=int(value), max_length=False)
    if isinstance(length, int):
        return SearchUnit(name="units", value=length, max_length=False)
    return SearchUnit(max_length=True)


ROUTES = (Route("POST", "/api/v1/preview-hp-search", Action.PREVIEW, nothing, preview),)
