"""Login, tokens of every kind, users."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import jwt

from resolute.clock import FixedClock
from resolute.wire.rest.passwords import hash_password
from resolute_master.api.auth.authenticate import SESSION_S
from support.api import KEY, PASSWORD, World, an_api


async def test_login_gives_a_token_and_a_cookie(world: World) -> None:
    response = await world.send(
        "POST", "/api/v1/auth/login", {"username": "ada", "password": PASSWORD, "isHashed": False}, token=""
    )
    body = await response.json()
    assert response.status == 200
    assert response.cookies["auth"].value == body["token"]
    assert body["user"]["username"] == "ada"
    # The cookie alone is enough, and it does not beat a header.
    cookie = {"Cookie": f"auth={body['token']}"}
    assert (await world.get("/api/v1/me", token="", headers=cookie))["user"]["username"] == "ada"
    bob = await world.login("bob")
    assert (await world.get("/api/v1/auth/user", token=bob, headers=cookie))["user"]["username"] == "bob"


async def test_wrong_passwords_and_unknown_users_are_told_the_same(world: World) -> None:
    for name in ("ada", "nobody"):
        text = await world.error("POST", "/api/v1/auth/login", {"username": name, "password": "no"}, status=401)
        assert text == "invalid credentials"
    await world.error("POST", "/api/v1/auth/login", {"username": "", "password": ""}, status=400)


async def test_logout_ends_the_session(world: World) -> None:
    token = await world.login("ada")
    assert await world.post("/api/v1/auth/logout", token=token) == {}
    assert await world.error("GET", "/api/v1/me", token=token, status=401) == "invalid credentials"
    assert (await world.get("/api/v1/me"))["user"]["username"] == "ada"


async def test_a_session_ends_after_a_week(tmp_path: Path) -> None:
    clock = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
    async with an_api(tmp_path, clock=clock) as world:
        clock.advance(SESSION_S - 1)
        await world.get("/api/v1/me")
        clock.advance(2)
        await world.error("GET", "/api/v1/me", status=401)


async def test_a_token_signed_by_somebody_else_is_worth_nothing(world: World) -> None:
    claims = jwt.decode(world.token, KEY, algorithms=["HS256"])
    forged = jwt.encode(claims, "x" * 40, algorithm="HS256")
    unsigned = jwt.encode(claims, None, algorithm="none")
    for token in (forged, unsigned):
        await world.error("GET", "/api/v1/me", token=token, status=401)


async def test_a_task_s_token_lives_as_long_as_its_allocation(world: World) -> None:
    agent = await world.agent()
    _, allocation, task = await world.started(agent)
    assert (await world.get("/api/v1/me", task=task, token=""))["user"]["username"] == "ada"
    user_token = world.context.tokens.issue_task_user(allocation.id, world.owner_id)
    assert (await world.get("/api/v1/experiments", token=user_token))["pagination"]["total"] == 1
    await world.error("POST", "/api/v1/auth/logout", task=task, token="", status=400)
    # A kind of token works in its own header only.
    await world.error("GET", "/api/v1/me", token=task, status=401)
    await world.error("GET", "/api/v1/me", task=world.token, token="", status=401)
    await agent.run_all()
    await world.error("GET", "/api/v1/me", task=task, token="", status=401)
    await world.error("GET", "/api/v1/me", token=user_token, status=401)


async def test_a_task_reports_for_itself_only(world: World) -> None:
    agent = await world.agent(slots=2)
    mine, my_allocation, task = await world.started(agent)
    other, other_allocation, _ = await world.started(agent)
    assert await world.post(f"/api/v1/trials/{mine.id}/runner/metadata", {"state": "x"}, task=task) == {}
    for path, body in (
        (f"/api/v1/trials/{other.id}/runner/metadata", {"state": "x"}),
        (f"/api/v1/trials/{other.id}/progress", {"progress": 0.5}),
        (f"/api/v1/allocations/{other_allocation.id}/ready", None),
        ("/api/v1/runs/start", {"runId": other.id}),
        ("/api/v1/checkpoints", {"uuid": "u", "allocationId": other_allocation.id, "resources": {}}),
        ("/api/v1/task/logs", {"logs": [{"taskId": other.task_id, "log": "x"}]}),
        (f"/api/v1/experiments/{mine.experiment_id}/kill", None),
    ):
        text = await world.error("POST", path, body, task=task, token="", status=403)
        assert my_allocation.id in text


async def test_deactivated_users_are_out_at_once(world: World) -> None:
    root = await world.login("root")
    bob = await world.login("bob")
    (user,) = [u for u in world.users() if u.username == "bob"]
    await world.call("PATCH", f"/api/v1/users/{user.id}", {"active": False}, token=root)
    await world.error("GET", "/api/v1/me", token=bob, status=401)
    body = {"username": "bob", "password": hash_password(PASSWORD), "isHashed": True}
    text = await world.error("POST", "/api/v1/auth/login", body, token="", status=403)
    assert "not active" in text


async def test_the_last_active_administrator_stays_one(world: World) -> None:
    root = await world.login("root")
    paths = {user.username: f"/api/v1/users/{user.id}" for user in world.users()}
    await world.call("PATCH", paths["bob"], {"admin": True, "active": False}, token=root)
    for change in ({"active": False}, {"admin": False}, {"active": False, "admin": False}):
        text = await world.error("PATCH", paths["root"], change, token=root, status=400)
        assert "'root' is the last active administrator; make another user an administrator first" in text
    await world.call("PATCH", paths["root"], {"displayName": "Root", "admin": True}, token=root)
    await world.call("PATCH", paths["ada"], {"admin": True}, token=root)
    # Either may go, and not both: each is refused or not in the order in which the engine takes them.
    answers = await asyncio.gather(
        world.send("PATCH", paths["root"], {"active": False}, token=root),
        world.send("PATCH", paths["ada"], {"admin": False}),
    )
    assert sorted(answer.status for answer in answers) == [200, 400]
    assert len([user for user in world.users() if user.admin and user.active]) == 1


async def test_users_are_created_by_administrators(world: World) -> None:
    body = {"user": {"username": "eve", "admin": False, "active": True}, "password": "s3cret!", "isHashed": False}
    assert "ada" in await world.error("POST", "/api/v1/users", body, status=403)
    root = await world.login("root")
    created = (await world.post("/api/v1/users", body, token=root))["user"]
    assert (created["username"], created["id"]) == ("eve", 4)
    assert await world.login("eve", "s3cret!")
    await world.error("POST", "/api/v1/users", body, token=root, status=409)
    blank = {"user": {"username": "eva", "admin": False, "active": True}}
    assert "blank" in await world.error("POST", "/api/v1/users", blank, token=root, status=400)
    by_name = await world.get("/api/v1/users/eve/by-username")
    assert by_name["user"] == (await world.get("/api/v1/users/4"))["user"]
    assert await world.error("GET", "/api/v1/users/nobody/by-username", status=404) == "user 'nobody' not found"


async def test_a_changed_password_ends_the_old_sessions(world: World) -> None:
    me = (await world.get("/api/v1/me"))["user"]["id"]
    await world.call("PATCH", f"/api/v1/users/{me}", {"password": hash_password("other"), "isHashed": True})
    await world.error("GET", "/api/v1/me", status=401)
    world.token = await world.login("ada", "other")
    await world.error("PATCH", f"/api/v1/users/{me}", {"admin": True}, status=403)
    root_id = (await world.get("/api/v1/users/root/by-username"))["user"]["id"]
    await world.error("PATCH", f"/api/v1/users/{root_id}", {"displayName": "x"}, status=403)
    assert (await world.get("/api/v1/users?name=AD"))["users"][0]["username"] == "ada"


async def test_users_are_renamed_by_administrators(world: World) -> None:
    root = await world.login("root")
    (ada,) = [user for user in world.users() if user.username == "ada"]
    path = f"/api/v1/users/{ada.id}"
    assert "may not rename users" in await world.error("PATCH", path, {"username": "countess"}, status=403)
    assert "'bob' exists already" in await world.error("PATCH", path, {"username": "bob"}, status=409, token=root)
    for name in (" ", "x" * 257):
        assert "username" in await world.error("PATCH", path, {"username": name}, status=400, token=root)
    changed = await world.call("PATCH", path, {"username": "countess"}, token=root)
    assert changed["user"]["username"] == "countess"
    assert (await world.get("/api/v1/me"))["user"]["username"] == "countess"
    await world.error("POST", "/api/v1/auth/login", {"username": "ada", "password": PASSWORD}, status=401)
    await world.login("countess")
    await world.call("PATCH", path, {"username": "countess", "displayName": "Ada"}, token=await world.login("countess"))
