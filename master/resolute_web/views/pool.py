"""A pool: its machines over time, what clouds refused and when they are asked again, its agents and its machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from aiohttp import web

from resolute.errors import InvalidInput, NotFound
from resolute.wire.rest.agents import DisableAgentRequest
from resolute.wire.rest.offers import GetPoolOffersResponse, PoolOffer
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call
from resolute_master.api.reading.finders import agent_at
from resolute_master.api.resources.agents import disable_agent, enable_agent
from resolute_master.api.resources.offers import pool_offers
from resolute_master.domain.agent import Agent
from resolute_master.domain.ids import PoolName
from resolute_master.domain.instance import Instance
from resolute_master.domain.pool import PoolPolicy
from resolute_web import agents
from resolute_web.actions import refusal_of
from resolute_web.forms import asking, read_form
from resolute_web.machines import Machine, machine_row
from resolute_web.page import Page, page, see
from resolute_web.pools import summaries
from resolute_web.timeline import Timeline, Window, timeline_of
from resolute_web.views.login import inside

PERIODS: Mapping[str, int] = {"1": 1, "6": 6, "24": 24, "168": 168}
"""Hours that can be drawn, by how an address says it."""

MOST_MACHINES = 100


async def find_pool(call: Call) -> PoolPolicy:
    name = PoolName(call.text("poolName"))
    policy = call.api.engine.pools.get(name)
    if policy is None:
        raise NotFound("resource pool", name, "the page of the cluster lists those that there are")
    return policy


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolProblem:
    """An offer that was refused or is not asked for, and what to do about it."""

    offer: PoolOffer
    advice: str


async def pool(call: Call, policy: PoolPolicy) -> web.Response:
    api, now = call.api, call.api.clock.now()
    hours = call.request.query.get("hours", "6")
    if hours not in PERIODS:
        raise InvalidInput(f"hours: '{hours[:80]}' is not known; use {', '.join(PERIODS)}")
    elastic = policy.scaling is not None
    machines = await _machines(call, policy, now - timedelta(hours=PERIODS[hours])) if elastic else ()
    offers = await pool_offers(call, policy.scaling) if policy.scaling is not None else None
    newest = sorted(machines, key=lambda each: (each.over, -each.requested_at.timestamp(), each.id))
    return await page(
        call,
        "pool.html",
        title=f"Pool {policy.name}",
        section="Cluster",
        topics=(f"pool:{policy.name}", "queue"),
        summary=next(each for each in await summaries(api) if each.pool.name == policy.name),
        policy=policy,
        hours_chosen=hours,
        periods=PERIODS,
        timeline=await _timeline(call, policy, machines, PERIODS[hours], now) if elastic else None,
        offers=offers,
        pool_problems=_pool_problems(offers),
        agents=await agents.rows_of(call, [each for each in api.engine.state.all(Agent) if each.pool == policy.name]),
        machines=[_with_countdown(machine_row(each, now), policy) for each in newest[:MOST_MACHINES]],
        more=max(0, len(newest) - MOST_MACHINES),
    )


async def _machines(call: Call, policy: PoolPolicy, since: datetime) -> Sequence[Instance]:
    return [each for each in await call.api.store.instances(since=since) if each.pool == policy.name]


async def _timeline(
    call: Call, policy: PoolPolicy, machines: Sequence[Instance], hours: int, now: datetime
) -> Timeline:
    window = Window(begin=now - timedelta(hours=hours), end=now)
    names = sorted({each.agent_id for each in machines if each.agent_id is not None})
    ran = await call.api.store.allocations_on_agents(names, since=window.begin, until=window.end)
    scaling = policy.scaling
    return timeline_of(machines, ran, window, limit=scaling.max_instances if scaling is not None else 0)


# ----------------------------------------------------------------------------------------------------------- machines


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A machine and when it is released if no work comes; None where it works, or is kept."""

    machine: Machine
    given_back_at: datetime | None


def _with_countdown(machine: Machine, policy: PoolPolicy) -> Counted:
    since, scaling = machine.instance.idle_since, policy.scaling
    idle = machine.state == "idle" and since is not None and scaling is not None
    at = (
        since + timedelta(seconds=scaling.idle_timeout_s)
        if idle and since is not None and scaling is not None
        else None
    )
    return Counted(machine=machine, given_back_at=at)


# ----------------------------------------------------------------------------------------------------------- capacity

ADVICE: Sequence[tuple[tuple[str, ...], str]] = (
    (("quota", "limit"), "Ask the cloud for a higher quota, or give the pool offers that use another one."),
    (
        ("capacity", "exhausted", "stockout"),
        "The cloud has none now. Other zones, types or markets in the pool's offers help.",
    ),
    (
        ("permission", "denied", "unauthorized", "forbidden"),
        "Give the master's account the right that the message names.",
    ),
    (("image", "ami"), "Correct the image in the pool's configuration."),
    (("budget",), "Raise the budget, or wait for its next period."),
    (("boot", "join"), "Check the console output of such a machine: it starts, but its agent does not join."),
)
"""By words of the refusal."""

NO_ADVICE = "The pool retries automatically; the message has details."


def _pool_problems(offers: GetPoolOffersResponse | None) -> Sequence[PoolProblem]:
    """What keeps machines from coming, the newest refusal first."""
    if offers is None:
        return ()
    found = [each for each in offers.offers if each.blocked or each.consecutive_refusals or each.boot_failures]
    found.sort(key=lambda each: each.last_refusal_at.timestamp() if each.last_refusal_at else 0.0, reverse=True)
    return [PoolProblem(offer=each, advice=_advice(each)) for each in found]


def _advice(offer: PoolOffer) -> str:
    said = f"{offer.last_refusal} {offer.last_message} {offer.blocked}".lower()
    return next((advice for words, advice in ADVICE if any(word in said for word in words)), NO_ADVICE)


# ------------------------------------------------------------------------------------------------------------- agents


async def _enable(call: Call, agent: Agent) -> web.Response:
    await enable_agent(asking(call, DisableAgentRequest()), agent)
    return await _back(call, agent)


async def _drain(call: Call, agent: Agent) -> web.Response:
    await disable_agent(asking(call, DisableAgentRequest(drain=True)), agent)
    return await _back(call, agent)


async def _disable(call: Call, agent: Agent) -> web.Response:
    await disable_agent(asking(call, DisableAgentRequest(drain=False)), agent)
    return await _back(call, agent)


async def _back(call: Call, agent: Agent) -> web.Response:
    wanted = (await read_form(call)).text("back")
    return see(inside(wanted) if wanted else f"/det/resourcepool/{agent.pool}")


async def _ask(call: Call, agent: Agent) -> web.Response:
    values: dict[str, Any] = {
        "subject": agent.id,
        "question": "What runs on it is ended at once, without a checkpoint. Drain lets it finish instead.",
        "reason": await refusal_of(call, Action.CONTROL_AGENTS),
        "path": f"/det/agents/{agent.id}/disable",
        "button": f"Disable {agent.id}",
        "symbol": "ban",
        "back": f"/det/resourcepool/{agent.pool}",
    }
    return await page(call, "ask.html", title=f"Disable agent {agent.id}?", section="Cluster", **values)


_AGENT = "/det/agents/{agentId}"
_one = agent_at("agentId")

PAGES = (
    Page("GET", "/det/resourcepool/{poolName}", Action.VIEW, find_pool, pool),
    Page("POST", f"{_AGENT}/enable", Action.CONTROL_AGENTS, _one, _enable),
    Page("POST", f"{_AGENT}/drain", Action.CONTROL_AGENTS, _one, _drain),
    Page("POST", f"{_AGENT}/disable", Action.CONTROL_AGENTS, _one, _disable),
    Page("GET", f"{_AGENT}/ask/disable", Action.VIEW, _one, _ask),
)
