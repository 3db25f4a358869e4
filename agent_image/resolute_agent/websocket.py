"""The agent link over a WebSocket: `<master>/agents/link`."""

from __future__ import annotations

import asyncio
import logging
import ssl

import aiohttp

from resolute.wire.agent_link import MAX_FRAME_BYTES, AgentMessage, MasterMessage
from resolute_agent.link import Connection, FrameError, LinkClosed, decode_master_frame, encode_frame

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 10.0
SEND_TIMEOUT_S = 30.0
"""A peer that reads nothing for this long counts as disconnected, whatever the state of TCP."""

PATH = "/agents/link"


class WebSocketConnection:
    """One open WebSocket, and the client session that belongs to it."""

    def __init__(self, session: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._session = session
        self._socket = socket

    @property
    def local_address(self) -> str:
        name = self._socket.get_extra_info("sockname")
        return str(name[0]) if isinstance(name, tuple) else "127.0.0.1"

    async def send(self, message: AgentMessage) -> None:
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self._socket.send_str(encode_frame(message))
        except (aiohttp.ClientError, ConnectionError, TimeoutError, RuntimeError) as error:
            raise LinkClosed(f"sending failed: {error or type(error).__name__}") from error

    async def receive(self) -> MasterMessage:
        while True:
            frame = await self._socket.receive()
            if frame.type is aiohttp.WSMsgType.TEXT:
                try:
                    message = decode_master_frame(frame.data)
                except FrameError as error:
                    raise LinkClosed(str(error)) from error
                if message is not None:
                    return message
                log.warning("ignored a message of unknown type: %.200s", frame.data)
            elif frame.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED):
                raise LinkClosed(f"the master closed the connection (code {self._socket.close_code})")
            elif frame.type is aiohttp.WSMsgType.ERROR:
                raise LinkClosed(f"the connection broke: {self._socket.exception()}")

    async def close(self) -> None:
        try:
            async with asyncio.timeout(2.0):
                await self._socket.close()
        except (aiohttp.ClientError, OSError, TimeoutError):
            pass  # it is gone either way
        await self._session.close()


class WebSocketConnector:
    """Connects to a master at `http(s)://host:port`. `tls` is the trust of an https master, `cert_name` the name that its
    certificate must have where that is not the host."""

    def __init__(self, master_url: str, *, tls: ssl.SSLContext | None = None, cert_name: str = "") -> None:
        self._url = master_url.rstrip("/") + PATH
        self._tls = tls
        self._cert_name = cert_name or None

    async def connect(self) -> Connection:
        session = aiohttp.ClientSession()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                socket = await session.ws_connect(
                    self._url,
                    max_msg_size=MAX_FRAME_BYTES,
                    heartbeat=20.0,
                    ssl=self._tls if self._tls is not None else True,
                    server_hostname=self._cert_name if self._url.startswith("https:") else None,
                )
        except aiohttp.ClientConnectorCertificateError as error:
            await session.close()
            raise LinkClosed(
                f"the certificate of {self._url} is not trusted ({error.certificate_error}); give the agent the master's ca.pem as "
                "security.tls.master_cert, and the name in the certificate as master_host"
            ) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            await session.close()
            raise LinkClosed(f"cannot reach {self._url}: {error or type(error).__name__}") from error
        except BaseException:
            await session.close()
            raise
        return WebSocketConnection(session, socket)
