"""A frame of the agent link at its limit is read, and a larger one ends the link before it is in memory as a whole."""

from __future__ import annotations

from contextlib import suppress

from aiohttp import ClientSession, WSMsgType, web
from aiohttp.test_utils import TestServer

from resolute.clock import FixedClock
from resolute.wire.agent_link import MAX_FRAME_BYTES, Welcome
from resolute_agent.link import decode_master_frame, encode_frame
from resolute_master.agents.websocket import LINK_PATH, add_agent_link
from resolute_master.store.memory import MemoryStore
from support.cluster import T0
from support.engines import an_engine, running
from support.hubs import a_hello, a_hub


async def test_the_master_reads_frames_up_to_the_limit() -> None:
    store, clock = MemoryStore(), FixedClock(T0)
    async with running(an_engine(store, clock=clock)) as engine, a_hub(engine, store, clock) as hub:
        app = web.Application()
        add_agent_link(app, hub)
        largest = encode_frame(a_hello()).rjust(MAX_FRAME_BYTES - 1)  # for aiohttp the limit itself is too much
        async with TestServer(app) as server, ClientSession() as http:
            async with http.ws_connect(server.make_url(LINK_PATH)) as link:
                await link.send_str(largest)
                assert isinstance(decode_master_frame(await link.receive_str(timeout=60)), Welcome)
            async with http.ws_connect(server.make_url(LINK_PATH)) as link:
                with suppress(ConnectionError):  # the rest of it is not read any more
                    await link.send_str(" " + largest)
                answer = await link.receive(timeout=60)
                assert answer.type in (WSMsgType.CLOSE, WSMsgType.CLOSED), "where it is read, a Welcome follows"
