"""Agents and slots."""

from __future__ import annotations

from dataclasses import dataclass

from resolute.client.paging import segment
from resolute.client.session import Session
from resolute.wire.rest.agents import (
    Agent,
    DisableAgentRequest,
    DisableAgentResponse,
    DisableSlotRequest,
    DisableSlotResponse,
    EnableAgentResponse,
    EnableSlotResponse,
    GetAgentsResponse,
    Slot,
)
from resolute.wire.rest.extensions import AgentJoinTokenResponse, ForgetAgentRequest, ForgetAgentResponse
from resolute.wire.rest.tasks import AllocationSummary, GetTasksResponse


@dataclass(frozen=True, slots=True)
class Agents:
    """Calls about agents, their slots, and what occupies them."""

    session: Session

    def list(self) -> tuple[Agent, ...]:
        return self.session.get("api/v1/agents", GetAgentsResponse).agents

    def enable(self, agent_id: str) -> Agent | None:
        return self.session.post(f"api/v1/agents/{segment(agent_id)}/enable", EnableAgentResponse).agent

    def disable(self, agent_id: str, *, drain: bool = False) -> Agent | None:
        """Disables an agent. With `drain`, running tasks may finish; otherwise they are killed."""
        body = DisableAgentRequest(agent_id=agent_id, drain=drain)
        return self.session.post(f"api/v1/agents/{segment(agent_id)}/disable", DisableAgentResponse, body).agent

    def join_token(self) -> AgentJoinTokenResponse:
        """The token with which machines outside of cloud pools join."""
        return self.session.get("api/v1/agent-join-token", AgentJoinTokenResponse)

    def rotate_join_token(self) -> AgentJoinTokenResponse:
        """Replaces the token. Agents that have joined do not need it."""
        return self.session.post("api/v1/agent-join-token/rotate", AgentJoinTokenResponse)

    def forget(self, agent_id: str, *, force: bool = False) -> None:
        """Release the name of an agent and revoke its credential. With `force` also while it is connected."""
        path = f"api/v1/agents/{segment(agent_id)}/forget"
        self.session.post(path, ForgetAgentResponse, ForgetAgentRequest(force=force))

    def enable_slot(self, agent_id: str, slot_id: str) -> Slot | None:
        path = f"api/v1/agents/{segment(agent_id)}/slots/{segment(slot_id)}/enable"
        return self.session.post(path, EnableSlotResponse).slot

    def disable_slot(self, agent_id: str, slot_id: str, *, drain: bool = False) -> Slot | None:
        path = f"api/v1/agents/{segment(agent_id)}/slots/{segment(slot_id)}/disable"
        body = DisableSlotRequest(agent_id=agent_id, slot_id=slot_id, drain=drain)
        return self.session.post(path, DisableSlotResponse, body).slot

    def tasks(self) -> tuple[AllocationSummary, ...]:
        """Pending and running allocations, by id."""
        found = self.session.get("api/v1/tasks", GetTasksResponse).allocation_id_to_summary
        return tuple(found[key] for key in sorted(found))
