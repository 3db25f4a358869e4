"""The notice source that asks an endpoint, as clouds have one on each machine."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from resolute.clock import SystemClock
from resolute.wire.states import NoticeKind
from resolute_agent.notices import HttpNotices


async def test_an_endpoint_is_asked_until_it_has_a_notice(caplog: pytest.LogCaptureFixture) -> None:
    answers = ["missing", "error", "found"]
    asked = 0

    async def notice(request: web.Request) -> web.Response:
        nonlocal asked
        answer = answers[min(asked, 2)]
        asked += 1
        match answer:
            case "missing":
                return web.Response(status=404)
            case "error":
                return web.Response(status=500, text="not a notice")
            case _:
                return web.json_response({"kind": "interruption", "deadline": None, "reason": "spot"})

    app = web.Application()
    app.router.add_get("/notice", notice)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        source = HttpNotices(f"http://127.0.0.1:{runner.addresses[0][1]}/notice", clock=SystemClock(), poll_s=0.2)
        found = await asyncio.wait_for(source.next(), 30)
        assert (found.kind, found.reason) == (NoticeKind.INTERRUPTION, "spot")
        assert asked == 3
    finally:
        await runner.cleanup()
    # An endpoint that is away is complained about once, not at each attempt.
    caplog.clear()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(source.next(), 1.0)
    assert len([record for record in caplog.records if "cannot query" in record.message]) == 1
