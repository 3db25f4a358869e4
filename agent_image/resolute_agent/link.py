"""The link to the master: a port, its framing, its back-off and an in-memory pair that implements it.

A frame is one JSON object, `{"type": <class name>, "body": {...}}`. The agent connects and sends `Hello` first; then both sides
send in any order. A connection is used by one reader and one writer.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any, Protocol

import msgspec

from resolute.errors import ResoluteError
from resolute.wire.agent_link import (
    AGENT_MESSAGES,
    MASTER_MESSAGES,
    MAX_FRAME_BYTES,
    AgentMessage,
    MasterMessage,
)

BACKOFF_FIRST_S = 0.25
BACKOFF_CAP_S = 30.0
"""A restarted master is found within seconds; a cluster of agents does not storm it."""


class LinkClosed(ResoluteError):
    """The connection is closed, or could not be made; the text is the reason."""


class FrameError(ResoluteError):
    """What arrived is not a message of the link."""


class Connection(Protocol):
    """One connection. Every method raises `LinkClosed` once it is closed."""

    @property
    def local_address(self) -> str:
        """This machine's address on the way to the master."""
        ...

    async def send(self, message: AgentMessage) -> None: ...

    async def receive(self) -> MasterMessage: ...

    async def close(self) -> None:
        """Never fails; repeating it is harmless."""
        ...


class Connector(Protocol):
    async def connect(self) -> Connection:
        """Raises `LinkClosed` when the master cannot be reached."""
        ...


class _Frame(msgspec.Struct):
    type: str
    body: msgspec.Raw


def encode_frame(message: AgentMessage | MasterMessage) -> str:
    """The text frame of a message."""
    return msgspec.json.encode({"type": type(message).__name__, "body": message}).decode()


def decode_master_frame(text: str | bytes) -> MasterMessage | None:
    """The message in a frame from the master; `None` for a type that this version does not know.

    Raises `FrameError` for anything else that is not a message.
    """
    message: MasterMessage | None = _decode(text, MASTER_MESSAGES)
    return message


def decode_agent_frame(text: str | bytes) -> AgentMessage | None:
    """The message in a frame from an agent; as `decode_master_frame`."""
    message: AgentMessage | None = _decode(text, AGENT_MESSAGES)
    return message


def _decode(text: str | bytes, kinds: Any) -> Any:
    if len(text) > MAX_FRAME_BYTES:
        raise FrameError(f"a frame of {len(text)} bytes is over the limit of {MAX_FRAME_BYTES}")
    try:
        frame = msgspec.json.decode(text, type=_Frame)
        kind = kinds.get(frame.type)
        return None if kind is None else msgspec.json.decode(frame.body, type=kind)
    except msgspec.MsgspecError as error:
        raise FrameError(f"not a message of the agent link: {error}") from error


class Backoff:
    """Waiting times between attempts: exponential, jittered, capped, without end."""

    def __init__(self, rng: random.Random, *, first_s: float = BACKOFF_FIRST_S, cap_s: float = BACKOFF_CAP_S) -> None:
        self._rng = rng
        self._first_s = first_s
        self._cap_s = cap_s
        self._attempt = 0

    def next_s(self) -> float:
        """Seconds to wait before the next attempt: between a half and the whole of the current step."""
        step_s = min(self._cap_s, self._first_s * 2.0**self._attempt)
        self._attempt = min(self._attempt + 1, 32)
        return step_s * (0.5 + 0.5 * self._rng.random())

    def reset(self) -> None:
        self._attempt = 0


class MemoryConnection:
    """The agent's end of a pair of queues. `cut()` is the network's failure: each end then finds `None`."""

    def __init__(self, local_address: str = "127.0.0.1") -> None:
        self.local_address = local_address
        self.to_master: asyncio.Queue[AgentMessage | None] = asyncio.Queue()
        self.to_agent: asyncio.Queue[MasterMessage | None] = asyncio.Queue()
        self.closed = asyncio.Event()

    async def send(self, message: AgentMessage) -> None:
        if self.closed.is_set():
            raise LinkClosed("the connection was cut")
        self.to_master.put_nowait(message)

    async def receive(self) -> MasterMessage:
        if self.closed.is_set():
            raise LinkClosed("the connection was cut")
        message = await self.to_agent.get()
        if message is None:
            raise LinkClosed("the connection was cut")
        return message

    async def close(self) -> None:
        self.cut()

    def cut(self) -> None:
        if not self.closed.is_set():
            self.closed.set()
            self.to_agent.put_nowait(None)
            self.to_master.put_nowait(None)


class MemoryConnector:
    """Hands out memory connections while `reachable`; a master takes them from `accepted`."""

    def __init__(self, local_address: str = "127.0.0.1") -> None:
        self.reachable = True
        self.accepted: asyncio.Queue[MemoryConnection] = asyncio.Queue()
        self._local_address = local_address

    async def connect(self) -> Connection:
        if not self.reachable:
            raise LinkClosed("the master is not reachable")
        connection = MemoryConnection(self._local_address)
        self.accepted.put_nowait(connection)
        return connection
