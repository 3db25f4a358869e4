"""Agents as rows, with what may be done to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from resolute.wire.rest.agents import Agent as WireAgent
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call
from resolute_master.api.resources.agents import show_agent
from resolute_master.domain.agent import Agent
from resolute_web.actions import Button, refusal_of


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRow:
    """`slots` are squares: used, free or off."""

    agent: Agent
    state: str
    slots: Sequence[str]
    buttons: Sequence[Button]

    @property
    def used(self) -> int:
        return sum(slot == "used" for slot in self.slots)


async def rows_of(call: Call, agents: Sequence[Agent]) -> Sequence[AgentRow]:
    """By name."""
    refusal = await refusal_of(call, Action.CONTROL_AGENTS)
    return [_row(call, each, refusal) for each in sorted(agents, key=lambda each: each.id)]


def _row(call: Call, agent: Agent, refusal: str) -> AgentRow:
    shown: WireAgent = show_agent(call.api, agent)
    slots = [
        "used" if slot.container is not None else ("" if slot.enabled and not slot.draining else "off")
        for slot in shown.slots.values()
    ]
    return AgentRow(agent=agent, state=state_of(agent), slots=slots, buttons=_buttons(agent, refusal))


def state_of(agent: Agent) -> str:
    if not agent.connected:
        return "disconnected"
    if agent.leaving:
        return "leaving"
    if agent.draining:
        return "draining"
    return "connected" if agent.enabled else "disabled"


def _buttons(agent: Agent, refusal: str) -> Sequence[Button]:
    path = f"/det/agents/{agent.id}"
    enable = Button(verb="enable", label="Enable", icon="power", path=f"{path}/enable", reason=refusal)
    drain = Button(verb="drain", label="Drain", icon="power-off", path=f"{path}/drain", reason=refusal)
    disable = Button(
        verb="disable", label="Disable", icon="ban", path=f"{path}/disable", reason=refusal, asks=True, danger=True
    )
    if agent.draining:
        return enable, disable
    return (drain, disable) if agent.enabled else (enable,)
