"""An end of the agent link that takes nothing is treated as gone after a while, and not before: of either program's side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import resolute_agent.websocket
import resolute_master.agents.websocket
from resolute.wire.agent_link import Heartbeat, HeartbeatAnswer
from resolute_agent.link import LinkClosed
from resolute_agent.websocket import WebSocketConnection
from resolute_master.agents.session import Closed
from resolute_master.agents.websocket import WebSocketTransport
from support.agent_virtual import run_virtually
from support.cluster import T0


class SlowSocket:
    """Stands where aiohttp's socket does: takes each frame after so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def send_str(self, _: str) -> None:
        await asyncio.sleep(self._seconds)


Send = Callable[[Any], Awaitable[None]]

ENDS: dict[str, tuple[Callable[[Any], Send], float, type[Exception]]] = {
    "master": (
        lambda socket: lambda _: WebSocketTransport(socket).send(HeartbeatAnswer(at=T0)),
        resolute_master.agents.websocket.SEND_TIMEOUT_S,
        Closed,
    ),
    "agent": (
        lambda socket: lambda _: WebSocketConnection(socket, socket).send(Heartbeat(at=T0)),
        resolute_agent.websocket.SEND_TIMEOUT_S,
        LinkClosed,
    ),
}


@pytest.mark.parametrize("end", sorted(ENDS))
def test_a_peer_that_takes_nothing_is_gone_at_the_limit_and_a_slow_one_is_not(end: str) -> None:
    sender, limit_s, closed = ENDS[end]

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        await sender(SlowSocket(limit_s - 1))(None)
        began = loop.time()
        with pytest.raises(closed, match="send"):
            await sender(SlowSocket(1000 * limit_s))(None)
        assert loop.time() - began == limit_s

    run_virtually(scenario())
