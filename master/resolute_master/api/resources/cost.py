"""The cost of paid time by owner and purpose; as JSON and as CSV."""

from __future__ import annotations

import asyncio
import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime, timedelta

from aiohttp import web

from resolute.config.durations import parse_duration
from resolute.errors import InvalidInput
from resolute.wire.rest.costs import (
    CostRow,
    GetCostQuery,
    GetCostResponse,
    GetExperimentCostResponse,
)
from resolute.wire.rest.costs import (
    SpotSaving as WireSpotSaving,
)
from resolute.wire.rest.extensions import LedgerRow
from resolute.wire.times import in_utc
from resolute_master.api.auth.authorise import Action
from resolute_master.api.context import ApiContext
from resolute_master.api.http.call import Call, Route, nothing
from resolute_master.api.reading.booked_runs import runs_of, runs_on
from resolute_master.api.reading.finders import experiment_at
from resolute_master.api.resources.ledger import shown
from resolute_master.domain.account import Account, Owner, account_id
from resolute_master.domain.change import PoolBelief
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import JobId, UserId
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job
from resolute_master.domain.trial import Trial
from resolute_master.domain.user import User
from resolute_master.lifecycle.cost import ACCOUNTS, Grouping, Line, SpotSaving, cost_by, spot_saving, total
from resolute_master.lifecycle.ledger import Books, Run
from resolute_master.lifecycle.prices import belief_key
from resolute_master.lifecycle.workspaces import workspaces
from resolute_master.store.base import TrialQuery
from resolute_provisioner.catalogue import shipped
from resolute_provisioner.model import Market, Offer
from resolute_provisioner.offers import price_in_force, priced

GROUPINGS = tuple(each.value for each in Grouping if each is not Grouping.TRIAL)
"""Values of `groupBy`. Trials are shown with their experiment."""

FORMATS = ("json", "csv")

_DAYS = re.compile(r"(\d{1,5})d")


async def get_cost(call: Call, _: None) -> GetCostResponse | web.Response:
    """Spending in a period, by purpose and by owner."""
    query = call.query(GetCostQuery)
    _check_one_of("format", query.format, FORMATS)
    answer = await cost_of(call.api, query)
    return csv_of(answer) if query.format == "csv" else answer


async def cost_of(api: ApiContext, query: GetCostQuery) -> GetCostResponse:
    """The cost, for every format. Raises `InvalidInput` for an invalid query."""
    now = api.clock.now()
    _check_one_of("groupBy", query.group_by, GROUPINGS)
    since, until = moment("since", query.since, now), min(moment("until", query.until, now) or now, now)
    if since is not None and since >= until:
        raise InvalidInput(f"since: {query.since} is not before {query.until or 'now'}; give a time in the past")
    store, grouping = api.store, Grouping(query.group_by)
    instances = await store.instances(since=since, until=until)
    runs = await runs_on(store, instances, since=since, until=until)
    jobs = await _jobs_of(api, runs)
    on_demand = on_demand_prices(api)
    # In a thread: it looks at every slot of every machine.
    lines, spot = await asyncio.to_thread(
        lambda: (
            cost_by(grouping, instances, Books(runs), jobs, now=now, since=since, until=until),
            spot_saving(instances, on_demand, now=now, since=since, until=until),
        )
    )
    return GetCostResponse(
        group_by=grouping,
        since=since,
        until=until,
        rows=_rows(lines, _names(api, grouping, jobs.values())),
        totals=shown(total(lines.values())),
        price_sources=_sources(api, instances),
        spot=None if spot == SpotSaving() else WireSpotSaving(**asdict(spot)),
    )


async def get_experiment_cost(call: Call, experiment: Experiment) -> GetExperimentCostResponse:
    """The cost of an experiment by trial, and its limit."""
    return await experiment_cost(call.api, experiment)


async def experiment_cost(api: ApiContext, experiment: Experiment) -> GetExperimentCostResponse:
    """The cost of the slots that its trials have held, at any time."""
    lines = await _lines_of(api, (await api.store.page_trials(TrialQuery(experiment_id=experiment.id))).rows)
    account = api.engine.state.get(Account, account_id(Owner.EXPERIMENT, experiment.id))
    return GetExperimentCostResponse(
        experiment_id=experiment.id,
        totals=shown(total(lines.values())),
        trials=_rows(lines, {}),
        max_cost=experiment.max_cost,
        wind_down_reason=account.wind_down_reason if account is not None else "",
    )


async def trial_cost(api: ApiContext, trial: Trial) -> LedgerRow | None:
    """Cost of the slots that one trial held; None if it held none on a machine that is paid for."""
    line = (await _lines_of(api, [trial])).get(str(trial.id))
    return None if line is None else shown(line)


async def _lines_of(api: ApiContext, trials: Sequence[Trial]) -> dict[str, Line]:
    """What each trial's slots were spent on, by trial."""
    runs = await runs_of(api.store, [trial.task_id for trial in trials])
    begun = [run.allocation.assigned_at for run in runs if run.allocation.assigned_at is not None]
    instances = await api.store.instances(since=min(begun)) if begun else ()
    lines = cost_by(Grouping.TRIAL, instances, Books(runs), {}, now=api.clock.now())
    lines.pop("", None)
    return lines


def moment(key: str, text: str, now: datetime) -> datetime | None:
    """A time, a date (its beginning, in UTC), or how long ago; None for an empty text. Raises `InvalidInput`."""
    text = text.strip()
    if not text:
        return None
    try:
        if (days := _DAYS.fullmatch(text)) is not None:
            return now - timedelta(days=int(days[1]))
        if text[:1].isdigit() and "-" not in text:
            return now - timedelta(seconds=parse_duration(text))
        found = datetime.fromisoformat(text)
        return in_utc(found if found.tzinfo is not None else found.replace(tzinfo=UTC), key)
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"{key}: '{text[:80]}' is no time; write 2026-05-01, 2026-05-01T12:00:00Z, or how long ago: 7d, 36h, 90m"
        ) from None


def _check_one_of(key: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise InvalidInput(f"{key}: '{value[:80]}' is not known; use one of {', '.join(known)}")


async def _jobs_of(api: ApiContext, runs: Iterable[Run]) -> dict[JobId, Job]:
    return {job.id: job for job in await api.store.jobs(sorted({run.allocation.job_id for run in runs}))}


# ---------------------------------------------------------------------------------------------------------------- rows


def _names(api: ApiContext, grouping: Grouping, jobs: Iterable[Job]) -> Mapping[str, str]:
    """Displayed names by the keys of the rows."""
    state = api.engine.state
    match grouping:
        case Grouping.USER:
            users = {job.owner for job in jobs}
            return {str(id_): user.username for id_ in users if (user := state.get(User, UserId(id_))) is not None}
        case Grouping.WORKSPACE:
            return {str(one.id): one.name for one in workspaces(state)}
        case Grouping.EXPERIMENT:
            return {str(job.experiment_id): job.name for job in jobs}
        case Grouping.JOB:
            return {job.id: job.name for job in jobs}
        case _:
            return {}


def _rows(lines: Mapping[str, Line], names: Mapping[str, str]) -> tuple[CostRow, ...]:
    keys = sorted(lines, key=lambda key: (not key, int(key) if key.isdigit() else 0, key))
    return tuple(CostRow(key=key, name=names.get(key, ""), row=shown(lines[key])) for key in keys)


def _sources(api: ApiContext, instances: Iterable[Instance]) -> tuple[str, ...]:
    """The sources of the prices of these machines' offers, as far as the pools still have the offers."""
    used = {(instance.pool, instance.offer_id) for instance in instances}
    found: set[str] = set()
    for name, pool in api.engine.pools.items():
        for offer in pool.scaling.offers if pool.scaling is not None else ():
            if (name, offer.offer_id) in used:
                known = api.engine.state.get(PoolBelief, belief_key(name, offer.offer_id))
                found.add(priced(offer, None if known is None else known.belief).source)
    return tuple(sorted(source for source in found if source))


def on_demand_prices(api: ApiContext) -> Callable[[Instance], float | None]:
    """The on-demand price of a machine of the same type: from an offer of its own pool, from one of another pool, or from the
    shipped table of list prices of its cloud."""
    own: dict[tuple[str, str], float] = {}
    anywhere: dict[tuple[str, str], float] = {}
    for name, pool in sorted(api.engine.pools.items()):
        for offer in pool.scaling.offers if pool.scaling is not None else ():
            known = api.engine.state.get(PoolBelief, belief_key(name, offer.offer_id))
            price = price_in_force(offer, None if known is None else known.belief)
            if offer.market is Market.ON_DEMAND and price is not None:
                own.setdefault((name, offer.instance_type), price)
                anywhere.setdefault((offer.region, offer.instance_type), price)

    def find(instance: Instance) -> float | None:
        offer = instance.offer
        if offer is None:
            return None
        found = own.get((instance.pool, offer.instance_type), anywhere.get((offer.region, offer.instance_type)))
        return _listed(offer) if found is None else found

    return find


def _listed(offer: Offer) -> float | None:
    table = shipped(offer.offer_id.partition("/")[0])
    shape = table.shapes.get(offer.instance_type)
    return None if shape is None else table.price(shape, offer.region)


def csv_of(answer: GetCostResponse) -> web.Response:
    """The cost as CSV, a line per row, times in seconds. There is no line of totals, because a spreadsheet computes its own."""
    text = io.StringIO()
    writer = csv.writer(text)
    numbers = [field.name for field in fields(LedgerRow) if field.name not in ("costs", "steps_lost")]
    writer.writerow([answer.group_by, "name", *numbers, *(f"{account}_cost" for account in ACCOUNTS)])
    for each in answer.rows:
        costs = (each.row.costs[account] for account in ACCOUNTS)
        writer.writerow([each.key, each.name, *(getattr(each.row, name) for name in numbers), *costs])
    return web.Response(text=text.getvalue(), content_type="text/csv", charset="utf-8")


ROUTES = (
    Route("GET", "/api/v1/cost", Action.VIEW, nothing, get_cost),
    Route(
        "GET",
        "/api/v1/experiments/{experimentId}/cost",
        Action.VIEW,
        experiment_at("experimentId"),
        get_experiment_cost,
    ),
)
