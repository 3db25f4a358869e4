"""How machines outside of cloud pools join: their token, and names that are released. Beyond the contract."""

from __future__ import annotations

import logging

from resolute.wire.rest.extensions import AgentJoinTokenResponse, ForgetAgentRequest, ForgetAgentResponse
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Route, nothing
from resolute_master.domain.ids import AgentId
from resolute_master.domain.machines import ForgetAgent

log = logging.getLogger(__name__)


async def show_join_token(call: Call, _: None) -> AgentJoinTokenResponse:
    """The token with which machines outside of cloud pools join."""
    token = call.api.join_token
    return AgentJoinTokenResponse(join_token=token.value, configured=token.configured)


async def rotate_join_token(call: Call, _: None) -> AgentJoinTokenResponse:
    """Replaces the token with which machines join. Agents that have joined do not need it."""
    token = call.api.join_token
    value = await token.rotate()
    log.warning("the agents' join token was rotated; agents that have joined keep their credentials")
    return AgentJoinTokenResponse(join_token=value, configured=token.configured)


async def forget_agent(call: Call, _: None) -> ForgetAgentResponse:
    """Releases the name of an agent and revokes its credential."""
    force = (await call.body(ForgetAgentRequest)).force
    await call.api.engine.submit(ForgetAgent(agent=AgentId(call.text("agentId")), force=force))
    return ForgetAgentResponse()


ROUTES = (
    Route("GET", "/api/v1/agent-join-token", Action.ADMIT_AGENTS, nothing, show_join_token),
    Route("POST", "/api/v1/agent-join-token/rotate", Action.ADMIT_AGENTS, nothing, rotate_join_token),
    Route("POST", "/api/v1/agents/{agentId}/forget", Action.ADMIT_AGENTS, nothing, forget_agent),
)
