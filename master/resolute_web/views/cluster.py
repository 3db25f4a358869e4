"""The cluster: pools, agents with their slots, and machines of elastic pools with what each costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from aiohttp import web

from resolute_master.api.agents import show_agent
from resolute_master.api.authorise import Action
from resolute_master.api.call import Call, nothing
from resolute_master.api.context import ApiContext
from resolute_master.domain.agent import Agent
from resolute_master.domain.instance import Instance
from resolute_provisioner.model import Intent
from resolute_web.page import Page, page
from resolute_web.pools import glances

LOOKED_BACK = timedelta(days=1)
"""Machines that ended in this time are shown too."""

MOST_MACHINES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRow:
    """`slots` are squares: used, free or off."""

    agent: Agent
    state: str
    slots: Sequence[str]

    @property
    def used(self) -> int:
        return sum(slot == "used" for slot in self.slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """`seconds` were paid so far and cost `cost`, as far as its price is known; None when it never was."""

    instance: Instance
    state: str
    seconds: float
    cost: float | None


async def cluster(call: Call, _: None) -> web.Response:
    api = call.api
    now = api.clock.now()
    found = await api.store.instances(since=now - LOOKED_BACK)
    newest = sorted(found, key=lambda each: (each.over, -each.requested_at.timestamp(), each.id))
    return await page(
        call,
        "cluster.html",
        title="Cluster",
        section="Cluster",
        topics=("cluster", "queue"),
        pools=await glances(api),
        agents=[_agent(api, each) for each in sorted(api.engine.state.all(Agent), key=lambda each: each.id)],
        machines=[machine_row(each, now) for each in newest[:MOST_MACHINES]],
        more=max(0, len(newest) - MOST_MACHINES),
    )


def _agent(api: ApiContext, agent: Agent) -> AgentRow:
    shown = show_agent(api, agent)
    slots = [
        "used" if slot.container is not None else ("" if slot.enabled and not slot.draining else "off")
        for slot in shown.slots.values()
    ]
    return AgentRow(agent=agent, state=_state_of_agent(agent), slots=slots)


def _state_of_agent(agent: Agent) -> str:
    if not agent.connected:
        return "disconnected"
    if agent.leaving:
        return "leaving"
    if agent.draining:
        return "draining"
    return "connected" if agent.enabled else "disabled"


def machine_row(instance: Instance, now: datetime) -> Machine:
    begin, end = instance.paid_from, instance.paid_until or now
    seconds = 0.0 if begin is None else max(0.0, (end - begin).total_seconds())
    known = any(price is not None for *_, price in instance.prices(begin, end)) if begin is not None else False
    return Machine(
        instance=instance,
        state=state_of_machine(instance),
        seconds=seconds,
        cost=instance.cost(begin, end) if begin is not None and known else None,
    )


def state_of_machine(instance: Instance) -> str:
    """One word of what it is at: as the cloud and the agent tell."""
    if instance.refused:
        return "refused"
    if instance.over:
        return "gone"
    if instance.intent is Intent.STOP:
        return "stopping"
    if instance.notice is not None:
        return "leaving"
    if instance.draining_since is not None:
        return "draining"
    if instance.joined_at is None:
        return "requested" if instance.launched_at is None else "starting"
    return "busy" if instance.idle_since is None else "idle"


PAGES = (Page("GET", "/det/clusters", Action.VIEW, nothing, cluster),)
