"""The link over aiohttp: JSON text frames `{"type": ..., "body": {...}}` on `/agents/link`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

import msgspec
from aiohttp import WSMsgType, web

from resolute.errors import InvalidInput
from resolute.wire.agent_link import AGENT_MESSAGES, MAX_FRAME_BYTES, AgentMessage, MasterMessage, Welcome
from resolute.wire.codec import from_wire
from resolute.wire.times import check_times, times_settled
from resolute_master.agents.hub import AgentHub
from resolute_master.agents.session import Closed, Transport

LINK_PATH = "/agents/link"

SEND_TIMEOUT_S = 30.0
"""An agent that reads nothing for this long counts as disconnected."""


class WebSocketTransport:
    """One accepted socket."""

    def __init__(self, socket: web.WebSocketResponse, welcomed: Callable[[], None] = lambda: None) -> None:
        """`welcomed` is called when the master has authenticated the agent."""
        self._socket = socket
        self._welcomed = welcomed

    async def receive(self) -> AgentMessage:
        message = await self._socket.receive()
        if message.type is not WSMsgType.TEXT:
            raise Closed(f"socket {message.type.name.lower()}")
        return decode(message.data)

    async def send(self, message: MasterMessage) -> None:
        if isinstance(message, Welcome):
            self._welcomed()
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self._socket.send_str(encode(message))
        except (ConnectionError, TimeoutError, RuntimeError) as error:
            raise Closed(f"cannot send: {error or type(error).__name__}") from error

    async def close(self) -> None:
        await self._socket.close()


class _Envelope(msgspec.Struct):
    type: str
    body: msgspec.Raw


_ENVELOPES = msgspec.json.Decoder(_Envelope)
_BODIES: Mapping[str, msgspec.json.Decoder[AgentMessage]] = {
    name: msgspec.json.Decoder(kind) for name, kind in AGENT_MESSAGES.items()
}


def decode(frame: str) -> AgentMessage:
    """Raises `Closed` for what is not a message of the protocol: the agent has to begin again."""
    try:
        envelope = _ENVELOPES.decode(frame)
        message = _BODIES[envelope.type].decode(envelope.body)
        if times_settled(message):
            return message
        # A time with an offset, or one that is not taken: the codec of REST makes the first right and names the second.
        message = from_wire(AGENT_MESSAGES[envelope.type], msgspec.json.decode(envelope.body))
        check_times(message)
        return message
    except (msgspec.DecodeError, KeyError, TypeError, InvalidInput, RecursionError) as error:
        raise Closed(f"not a message of the agent link: {error}") from error


def encode(message: MasterMessage) -> str:
    return msgspec.json.encode({"type": type(message).__name__, "body": message}).decode()


def add_agent_link(
    app: web.Application,
    hub: AgentHub,
    *,
    watched: Callable[[Transport], Transport] = lambda transport: transport,
    welcomed: Callable[[web.BaseRequest], None] = lambda _: None,
) -> None:
    """Serve links. `watched` wraps each transport, to count; `welcomed` is called with the request of an accepted agent."""

    async def link(request: web.Request) -> web.WebSocketResponse:
        # Heartbeats of our own, so no pings: those are answered only while the socket is read.
        socket = web.WebSocketResponse(max_msg_size=MAX_FRAME_BYTES, compress=False)
        await socket.prepare(request)
        await hub.serve(watched(WebSocketTransport(socket, partial(welcomed, request))))
        return socket

    app.router.add_get(LINK_PATH, link)
