"""Agents and their slots: list, show, enable, disable."""

from __future__ import annotations

from aiohttp import web

from resolute.errors import NotFound
from resolute.wire.rest.agents import Agent as WireAgent
from resolute.wire.rest.agents import (
    DisableAgentRequest,
    DisableAgentResponse,
    DisableSlotRequest,
    DisableSlotResponse,
    EnableAgentResponse,
    EnableSlotResponse,
    GetAgentResponse,
    GetAgentsQuery,
    GetAgentsResponse,
    GetSlotResponse,
    GetSlotsResponse,
)
from resolute.wire.rest.agents import Slot as WireSlot
from resolute.wire.rest.enums import AgentSortBy, OrderBy
from resolute_master.api.auth.authorise import Action
from resolute_master.api.context import ApiContext
from resolute_master.api.http.call import Call, Route, nothing, rendered
from resolute_master.api.http.paging import page_of
from resolute_master.api.reading.finders import agent_at, find_agent
from resolute_master.api.render.agents import agent as render_agent
from resolute_master.batches import map_in_batches
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.commands import SetAgentEnabled, SetSlotEnabled
from resolute_master.domain.copies import replace
from resolute_master.event_loop import yielding


def show_agent(api: ApiContext, agent: Agent) -> WireAgent:
    return render_agent(agent, api.engine.state.find(Allocation, "allocations_on_agent", agent.id))


async def list_agents(call: Call, _: None) -> web.Response:
    """One page of agents with their slots and containers."""
    query, state = call.query(GetAgentsQuery), call.api.engine.state
    agents = list(state.all(Agent))
    if query.sort_by is AgentSortBy.TIME:
        agents.sort(key=lambda agent: (agent.registered_at, agent.id))
    if query.order_by is OrderBy.DESC:
        agents.reverse()
    rows, pages = page_of(agents, offset=query.offset, limit=query.limit)
    found = await map_in_batches(rows, lambda agent: (agent, state.find(Allocation, "allocations_on_agent", agent.id)))

    def show() -> GetAgentsResponse:
        shown = tuple(_without(render_agent(agent, allocations), query) for agent, allocations in yielding(found))
        return GetAgentsResponse(agents=shown, pagination=pages)

    return await rendered(show)


def _without(agent: WireAgent, query: GetAgentsQuery) -> WireAgent:
    if query.exclude_containers:
        agent = replace(agent, containers={})
    return replace(agent, slots={}) if query.exclude_slots else agent


async def get_agent(call: Call, agent: Agent) -> GetAgentResponse:
    """An agent with its slots and containers."""
    return GetAgentResponse(agent=show_agent(call.api, agent))


async def enable_agent(call: Call, agent: Agent) -> EnableAgentResponse:
    """Enables an agent, so that new work may start on it."""
    await call.api.engine.submit(SetAgentEnabled(agent=agent.id, enabled=True))
    return EnableAgentResponse(agent=show_agent(call.api, find_agent(call.api, agent.id)))


async def disable_agent(call: Call, agent: Agent) -> DisableAgentResponse:
    """Disables an agent. With `drain`, its tasks may finish; otherwise they are killed."""
    drain = (await call.body(DisableAgentRequest)).drain
    await call.api.engine.submit(SetAgentEnabled(agent=agent.id, enabled=False, draining=drain))
    return DisableAgentResponse(agent=show_agent(call.api, find_agent(call.api, agent.id)))


# ----------------------------------------------------------------------------------------------------------- slots


def _index(call: Call, agent: Agent) -> int:
    text = call.text("slotId")
    # By their texts: a number may be longer than Python reads.
    index = {str(slot.index): slot.index for slot in agent.slots}.get(text.lstrip("0") or text[-1:])
    if index is None:
        raise NotFound("slot", f"{agent.id}/{text}")
    return index


def _show_slot(call: Call, agent: Agent) -> WireSlot:
    index = _index(call, agent)
    shown = show_agent(call.api, find_agent(call.api, agent.id))
    return shown.slots[f"{index:03d}"]


async def list_slots(call: Call, agent: Agent) -> GetSlotsResponse:
    """The slots of an agent."""
    return GetSlotsResponse(slots=tuple(show_agent(call.api, agent).slots.values()))


async def get_slot(call: Call, agent: Agent) -> GetSlotResponse:
    """A slot of an agent."""
    return GetSlotResponse(slot=_show_slot(call, agent))


async def enable_slot(call: Call, agent: Agent) -> EnableSlotResponse:
    """Enables a slot, so that new work may use it."""
    await call.api.engine.submit(SetSlotEnabled(agent=agent.id, index=_index(call, agent), enabled=True))
    return EnableSlotResponse(slot=_show_slot(call, agent))


async def disable_slot(call: Call, agent: Agent) -> DisableSlotResponse:
    """Disables a slot; with `drain` its present work may finish."""
    drain = (await call.body(DisableSlotRequest)).drain
    command = SetSlotEnabled(agent=agent.id, index=_index(call, agent), enabled=False, draining=drain)
    await call.api.engine.submit(command)
    return DisableSlotResponse(slot=_show_slot(call, agent))


_AT = "/api/v1/agents/{agentId}"
_SLOT = f"{_AT}/slots/{{slotId}}"
_one = agent_at("agentId")

ROUTES = (
    Route("GET", "/api/v1/agents", Action.VIEW, nothing, list_agents),
    Route("GET", _AT, Action.VIEW, _one, get_agent),
    Route("POST", f"{_AT}/enable", Action.CONTROL_AGENTS, _one, enable_agent),
    Route("POST", f"{_AT}/disable", Action.CONTROL_AGENTS, _one, disable_agent),
    Route("GET", f"{_AT}/slots", Action.VIEW, _one, list_slots),
    Route("GET", _SLOT, Action.VIEW, _one, get_slot),
    Route("POST", f"{_SLOT}/enable", Action.CONTROL_AGENTS, _one, enable_slot),
    Route("POST", f"{_SLOT}/disable", Action.CONTROL_AGENTS, _one, disable_slot),
)
