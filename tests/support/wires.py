"""The agent link in memory, for tests of the master's end."""

from __future__ import annotations

import asyncio
from typing import Any

from resolute.wire.agent_link import AgentMessage, MasterMessage
from resolute_master.agents.session import Closed


class Wire:
    """Both ends of a transport in memory. With `stuck` the agent reads nothing."""

    def __init__(self) -> None:
        self.to_master: asyncio.Queue[AgentMessage | None] = asyncio.Queue()
        self.to_agent: asyncio.Queue[MasterMessage] = asyncio.Queue()
        self.stuck = False
        self.closed = asyncio.Event()

    async def receive(self) -> AgentMessage:
        if self.closed.is_set():
            raise Closed("closed")
        message = await self.to_master.get()
        if message is None:
            raise Closed("ended")
        return message

    async def send(self, message: MasterMessage) -> None:
        if self.closed.is_set():
            raise Closed("closed")
        if self.stuck:
            await self.closed.wait()
            raise Closed("closed")
        self.to_agent.put_nowait(message)

    async def close(self) -> None:
        self.closed.set()
        self.to_master.put_nowait(None)

    # -- the agent's side --

    def say(self, message: AgentMessage) -> None:
        self.to_master.put_nowait(message)

    def hang_up(self) -> None:
        self.to_master.put_nowait(None)

    async def hear(self, kind: Any) -> Any:
        """The next message, which is of this kind."""
        async with asyncio.timeout(10):
            message = await self.to_agent.get()
        assert kind is Any or isinstance(message, kind), message
        return message
