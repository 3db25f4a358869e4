"""What a browser is told with each answer, and what another site cannot make it do."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from aiohttp import FormData, web

from resolute_master.api.app import ALL_ROUTES
from resolute_master.api.auth.authenticate import COOKIE
from resolute_master.api.auth.authorise import Action
from resolute_master.api.auth.cross_site import FIELD, HEADER
from resolute_master.api.http.addresses import Addresses
from resolute_master.api.http.connections import Listening, runner_of
from resolute_master.api.http.response_headers import HEADERS, STRICT_TRANSPORT
from support.api import PASSWORD, World, an_api

LOGIN = "/api/v1/auth/login"
WORKSPACES = "/api/v1/workspaces"


async def logged_in(world: World, name: str = "ada") -> tuple[dict[str, str], str]:
    """The cookie of a new login, and the token of its session."""
    answer = await world.send("POST", LOGIN, {"username": name, "password": PASSWORD, "isHashed": False}, token="")
    return {"Cookie": f"{COOKIE}={answer.cookies[COOKIE].value}"}, answer.headers[HEADER]


# ------------------------------------------------------------------------------------------------------------- headers


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 200),
        ("GET", "/api/v1/me", 200),
        ("GET", "/api/v1/experiments/77", 404),
        ("GET", "/no/such/call", 404),
        ("PUT", "/health", 405),
        ("POST", WORKSPACES, 400),
        ("GET", "/api/v1/experiments?limit=x", 400),
    ],
)
async def test_every_answer_tells_a_browser_what_it_may_do(world: World, method: str, path: str, status: int) -> None:
    answer = await world.send(method, path)
    assert answer.status == status
    assert {name: answer.headers.get(name) for name in HEADERS} == dict(HEADERS)
    assert STRICT_TRANSPORT not in answer.headers  # plain HTTP cannot promise it


@pytest.mark.parametrize(("limit", "status"), [(100, b" 400 "), (0, b" 503 ")])
async def test_what_no_application_sees_is_told_the_same(limit: int, status: bytes) -> None:
    runner = runner_of(web.Application(), stop_grace_s=0.1)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    listening = Listening(runner, limit=limit)
    await listening.begin(listener)
    try:
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"GARBAGE\r\n\r\n")
        told = await asyncio.wait_for(reader.read(), 30)
        writer.close()
    finally:
        await listening.end()
        await runner.cleanup()
    assert status in told.splitlines()[0]
    for name, value in HEADERS.items():
        assert f"{name}: {value}".encode() in told


async def test_streams_are_told_the_same(world: World) -> None:
    agent = await world.agent()
    trial, *_ = await world.started(agent)
    answer = await world.send("GET", f"/api/v1/trials/{trial.id}/logs")
    assert {name: answer.headers.get(name) for name in HEADERS} == dict(HEADERS)


# -------------------------------------------------------------------------------------------------------------- cookie


async def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(tmp_path: Path) -> None:
    credentials = {"username": "ada", "password": PASSWORD, "isHashed": False}
    async with an_api(tmp_path, addresses=Addresses(["127.0.0.1"])) as world:
        plain = (await world.send("POST", LOGIN, credentials, token="")).cookies[COOKIE]
        assert (plain["httponly"], plain["samesite"], plain["secure"]) == (True, "Lax", "")
        behind = {"X-Forwarded-Proto": "https"}
        safe = await world.send("POST", LOGIN, credentials, token="", headers=behind)
        assert safe.cookies[COOKIE]["secure"] is True
        assert safe.headers[STRICT_TRANSPORT] == f"max-age={30 * 24 * 3600}"
        token = safe.cookies[COOKIE].value
        out = await world.send("POST", "/api/v1/auth/logout", token=token, headers=behind)
        gone = out.cookies[COOKIE]
        assert (gone.value, gone["max-age"], gone["secure"], gone["httponly"]) == ("", "0", True, True)


# --------------------------------------------------------------------------------------------------------- other sites


async def test_a_change_by_cookie_needs_the_token_of_its_session(world: World) -> None:
    cookie, token = await logged_in(world)
    for headers in (cookie, {**cookie, HEADER: "0" * 64}, {**cookie, HEADER: "\u00e9"}):
        text = await world.error("POST", WORKSPACES, {"name": "w"}, status=403, token="", headers=headers)
        assert HEADER in text and FIELD in text
    assert "w" not in {each["name"] for each in (await world.get(WORKSPACES))["workspaces"]}
    made = await world.post(WORKSPACES, {"name": "w"}, token="", headers={**cookie, HEADER: token})
    assert made["workspace"]["name"] == "w"


async def test_the_token_of_another_session_is_worth_nothing(world: World) -> None:
    cookie, token = await logged_in(world)
    again, other = await logged_in(world)
    _, of_bob = await logged_in(world, "bob")
    assert len({token, other, of_bob}) == 3
    for wrong in (other, of_bob):
        await world.error("POST", WORKSPACES, {"name": "w"}, status=403, token="", headers={**cookie, HEADER: wrong})
    await world.post(WORKSPACES, {"name": "w"}, token="", headers={**again, HEADER: other})


async def test_a_page_with_the_cookie_alone_finds_the_token(world: World) -> None:
    cookie, token = await logged_in(world)
    answer = await world.send("GET", "/api/v1/me", token="", headers=cookie)
    assert answer.headers[HEADER] == token


async def test_the_token_may_stand_in_a_form(world: World) -> None:
    """It passes this check; the call itself reads JSON and refuses the form."""
    cookie, token = await logged_in(world)
    url = world.server.make_url(WORKSPACES)
    files = FormData({FIELD: token})
    files.add_field("f", b"\x00\xff", filename="a.bin")
    for form in (FormData({FIELD: token, "name": "w"}), files):
        assert (await world.http.post(url, data=form, headers=cookie)).status == 400
    for form in (FormData({FIELD: "x", "name": "w"}), FormData({"name": "w"})):
        assert (await world.http.post(url, data=form, headers=cookie)).status == 403
    broken = {**cookie, "Content-Type": "multipart/form-data"}
    assert (await world.http.post(url, data=b"\xff\xfe", headers=broken)).status == 403


async def test_callers_that_show_a_token_themselves_are_not_asked(world: World) -> None:
    cookie, _ = await logged_in(world)
    await world.post(WORKSPACES, {"name": "a"})  # a Bearer token
    await world.post(WORKSPACES, {"name": "b"}, headers=cookie)  # which goes before the cookie
    agent = await world.agent()
    _, allocation, task = await world.started(agent)
    await world.post(f"/api/v1/allocations/{allocation.id}/ready", {}, task=task, token="")


async def test_no_call_that_changes_is_left_out(world: World) -> None:
    cookie, _ = await logged_in(world)
    open_to_all = []
    for route in ALL_ROUTES:
        if route.method == "GET" or route.action is Action.PUBLIC:
            continue
        path = "/".join("1" if part.startswith("{") else part for part in route.path.split("/"))
        text = await (await world.send(route.method, path, {}, token="", headers=cookie)).text()
        if HEADER not in text:
            open_to_all.append(f"{route.method} {route.path}: {text[:80]}")
    assert open_to_all == []
