"""The wire between an agent and the master: ordered, delayed, and cut on the world's order.

Every message crosses it as the JSON frame that the sockets carry, so that what cannot be encoded is found here.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Generic, TypeVar

from resolute.wire.agent_link import AgentMessage, MasterMessage
from resolute_agent.link import LinkClosed, decode_agent_frame, decode_master_frame, encode_frame
from resolute_master.agents.session import Closed

Message = TypeVar("Message", AgentMessage, MasterMessage)

LATENCY_S = (0.001, 0.05)
"""Minimum and maximum delay of a message."""

APART_S = 1e-6


class Lane(Generic[Message]):
    """One direction. Messages arrive in order; those in flight when it is cut are lost."""

    def __init__(self, rng: random.Random, decode: Callable[[str], Message | None]) -> None:
        self._rng = rng
        self._decode: Callable[[str], Message | None] = decode
        self._arrived: asyncio.Queue[Message | None] = asyncio.Queue()
        self._last_arrival = 0.0
        self.broken = False
        """No message arrives any more, and neither end is informed."""
        self.closed = False

    def send(self, message: Message) -> None:
        loop = asyncio.get_running_loop()
        # Strictly later than the one before: timers of one moment have no order.
        self._last_arrival = max(self._last_arrival + APART_S, loop.time() + self._rng.uniform(*LATENCY_S))
        frame = encode_frame(message)
        loop.call_at(self._last_arrival, self._arrive, frame)

    def _arrive(self, frame: str) -> None:
        if not (self.broken or self.closed):
            self._arrived.put_nowait(self._decode(frame))

    async def receive(self) -> Message | None:
        """None at the end."""
        if self.closed:
            return None
        message = await self._arrived.get()
        self.closed = self.closed or message is None
        return message

    def finish(self) -> None:
        """The sender has died: what it has sent still arrives, then the end."""
        if not self.broken:
            self._last_arrival = max(self._last_arrival, asyncio.get_running_loop().time()) + APART_S
            asyncio.get_running_loop().call_at(self._last_arrival, self._arrived.put_nowait, None)

    def close(self) -> None:
        """The receiver gets no more messages."""
        if not self.closed:
            self.closed = True
            while not self._arrived.empty():
                self._arrived.get_nowait()
            self._arrived.put_nowait(None)


class Link:
    """One connection with its two ends."""

    def __init__(self, rng: random.Random) -> None:
        self.to_master: Lane[AgentMessage] = Lane(rng, decode_agent_frame)
        self.to_agent: Lane[MasterMessage] = Lane(rng, decode_master_frame)
        self.agent_end = AgentEnd(self)
        self.master_end = MasterEnd(self)

    def cut(self, *, agent_sees: bool = True, master_sees: bool = True) -> None:
        """The network fails. An end that is not informed waits until it detects the silence by itself."""
        self.to_master.broken = self.to_agent.broken = True
        if agent_sees:
            self.to_agent.close()
        if master_sees:
            self.to_master.close()


class AgentEnd:
    """The agent's `Connection`."""

    local_address = "10.0.0.1"

    def __init__(self, link: Link) -> None:
        self._link = link

    async def send(self, message: AgentMessage) -> None:
        if self._link.to_agent.closed:
            raise LinkClosed("the connection was cut")
        self._link.to_master.send(message)

    async def receive(self) -> MasterMessage:
        message = await self._link.to_agent.receive()
        if message is None:
            raise LinkClosed("the connection was cut")
        return message

    async def close(self) -> None:
        self._link.to_agent.close()
        self._link.to_master.finish()


class MasterEnd:
    """The session's `Transport`."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def receive(self) -> AgentMessage:
        message = await self._link.to_master.receive()
        if message is None:
            raise Closed("the connection was cut")
        return message

    async def send(self, message: MasterMessage) -> None:
        if self._link.to_master.closed:
            raise Closed("the connection was cut")
        self._link.to_agent.send(message)

    async def close(self) -> None:
        """What was sent before still arrives."""
        self._link.to_master.close()
        self._link.to_agent.finish()
