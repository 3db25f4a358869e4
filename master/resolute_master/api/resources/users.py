"""Users: list, show, create, change, set passwords."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from resolute.errors import InvalidInput, NotFound
from resolute.wire.rest.enums import OrderBy, UserSortBy
from resolute.wire.rest.passwords import hash_password
from resolute.wire.rest.users import (
    GetUserByUsernameResponse,
    GetUserResponse,
    GetUsersQuery,
    GetUsersResponse,
    PatchUser,
    PatchUserResponse,
    PostUserRequest,
    PostUserResponse,
    SetUserPasswordResponse,
)
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Also, Call, Route, allow, nothing
from resolute_master.api.http.paging import page_of
from resolute_master.api.reading.finders import find_user, user_at, user_named
from resolute_master.api.render.users import user as render_user
from resolute_master.api.submission import agent_users
from resolute_master.domain.commands import ChangeUser, CreateUser
from resolute_master.domain.ids import UserId
from resolute_master.domain.user import User

MAX_NAME = 256
_NEVER = datetime.min.replace(tzinfo=UTC)


async def list_users(call: Call, _: None) -> GetUsersResponse:
    """One page of users."""
    query = call.query(GetUsersQuery)
    name = (query.name or "").lower()
    found = [
        user
        for user in call.api.engine.state.all(User)
        if (query.active is None or user.active == query.active)
        and (query.admin is None or user.admin == query.admin)
        and (name in user.username.lower() or name in user.display_name.lower())
    ]
    found.sort(key=lambda user: _sort_key(user, query.sort_by), reverse=query.order_by is OrderBy.DESC)
    rows, pages = page_of(found, offset=query.offset, limit=query.limit)
    return GetUsersResponse(users=tuple(render_user(user) for user in rows), pagination=pages)


def _sort_key(user: User, by: UserSortBy) -> tuple[Any, ...]:
    match by:
        case UserSortBy.USER_NAME:
            return (user.username, user.id)
        case UserSortBy.DISPLAY_NAME | UserSortBy.NAME:
            return (user.display_name or user.username, user.id)
        case UserSortBy.ADMIN:
            return (user.admin, user.id)
        case UserSortBy.ACTIVE:
            return (user.active, user.id)
        case UserSortBy.MODIFIED_TIME:
            return (user.modified_at, user.id)
        case UserSortBy.LAST_AUTH_TIME:
            return (user.last_login_at or _NEVER, user.id)
        case _:
            return (user.id,)


async def get_user(call: Call, user: User) -> GetUserResponse:
    """A user, by id."""
    return GetUserResponse(user=render_user(user))


async def _named(call: Call) -> User:
    name = call.text("username")
    user = user_named(call.api, name)
    if user is None:
        raise NotFound("user", name)
    return user


async def get_by_username(call: Call, user: User) -> GetUserByUsernameResponse:
    """A user, by name."""
    return GetUserByUsernameResponse(user=render_user(user))


async def create_user(call: Call, _: None) -> PostUserResponse:
    """Creates a user."""
    request = await call.body(PostUserRequest)
    wanted = request.user
    if wanted is None:
        raise InvalidInput("user: missing; name the user to create")
    _check_name(wanted.username, "user.username")
    if wanted.remote:
        raise InvalidInput("user.remote: remote users are not available yet; leave it out")
    account = agent_users.asked(wanted.agent_user_group)[0]
    id_: UserId = await call.api.engine.submit(
        CreateUser(
            username=wanted.username,
            password_hash=await _hashed(call, request.password or "", is_hashed=request.is_hashed),
            admin=wanted.admin,
            active=wanted.active,
            display_name=wanted.display_name or "",
            agent_user=account,
        )
    )
    return PostUserResponse(user=render_user(find_user(call.api, id_)))


def _check_name(name: str, key: str) -> None:
    if not name.strip() or len(name) > MAX_NAME:
        raise InvalidInput(f"{key}: must be a name of 1 to {MAX_NAME} characters")


async def _hashed(call: Call, password: str, *, is_hashed: bool) -> str:
    """The stored form of a password. A blank password is only allowed for a master that only its own machine can reach."""
    security = call.api.config.security
    if not password and not security.allow_blank_password:
        raise InvalidInput("password: must not be blank; give one (det user change-password)")
    return await call.api.passwords.hash(password if is_hashed else hash_password(password))


async def patch_user(call: Call, user: User) -> PatchUserResponse:
    """Changes a user."""
    request = await call.body(PatchUser)
    renamed = request.username is not None and request.username != user.username
    if request.admin is not None or request.active is not None or renamed:
        await allow(call, Action.GRANT)
    if request.remote:
        raise InvalidInput("remote: remote users are not available yet; leave it out")
    if request.agent_user_group is not None:
        await allow(call, Action.LINK_AGENT_USER)
    account, unlinked = agent_users.asked(request.agent_user_group)
    if renamed:
        _check_name(request.username or "", "username")
    password_hash = None
    if request.password is not None:
        password_hash = await _hashed(call, request.password, is_hashed=bool(request.is_hashed))
    await call.api.engine.submit(
        ChangeUser(
            user=user.id,
            username=request.username,
            password_hash=password_hash,
            admin=request.admin,
            active=request.active,
            display_name=request.display_name,
            agent_user=account,
            without_agent_user=unlinked,
        )
    )
    return PatchUserResponse(user=render_user(find_user(call.api, user.id)))


async def set_password(call: Call, user: User) -> SetUserPasswordResponse:
    """Changes a password. The body is the password alone, as a JSON string, hashed by the client."""
    body = await call.json()
    if not isinstance(body, str):
        raise InvalidInput("the body must be the password as JSON text")
    await call.api.engine.submit(ChangeUser(user=user.id, password_hash=await _hashed(call, body, is_hashed=True)))
    return SetUserPasswordResponse(user=render_user(find_user(call.api, user.id)))


_LINKED = Also(Action.LINK_AGENT_USER, "with `agentUserGroup`")
_GRANTED = Also(Action.GRANT, "with `admin`, `active` or another `username`")

ROUTES = (
    Route("GET", "/api/v1/users", Action.VIEW, nothing, list_users),
    Route("POST", "/api/v1/users", Action.CREATE_USER, nothing, create_user),
    Route("GET", "/api/v1/users/{userId}", Action.VIEW, user_at("userId"), get_user),
    Route("PATCH", "/api/v1/users/{userId}", Action.EDIT_USER, user_at("userId"), patch_user, also=(_GRANTED, _LINKED)),
    Route("POST", "/api/v1/users/{userId}/password", Action.EDIT_USER, user_at("userId"), set_password),
    Route("GET", "/api/v1/users/{username}/by-username", Action.VIEW, _named, get_by_username),
)
