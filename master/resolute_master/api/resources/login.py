"""Login, logout, and the caller's own user."""

from __future__ import annotations

from datetime import timedelta

from aiohttp import web

from resolute.errors import FailedPrecondition, InvalidInput, PermissionDenied, Unauthenticated
from resolute.wire.rest.auth import CurrentUserResponse, GetMeResponse, LoginRequest, LoginResponse
from resolute.wire.rest.empty import Empty
from resolute.wire.rest.passwords import hash_password
from resolute_master.api.auth import cross_site
from resolute_master.api.auth.authenticate import COOKIE, SESSION_S
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Route, json_response, nothing
from resolute_master.api.reading.finders import find_user, user_named
from resolute_master.api.render import users as render_users
from resolute_master.domain.commands import EndSession, StartSession
from resolute_master.domain.ids import SessionId
from resolute_master.domain.user import User


async def login(call: Call, _: None) -> web.Response:
    """Logs in. The answer and its time do not distinguish an unknown user from a wrong password."""
    request = await call.body(LoginRequest)
    if not request.username:
        raise InvalidInput("username: must not be empty; give the name of a user")
    user = await _proven(call, request)
    if not user.active:
        raise PermissionDenied("user is not active")
    session = SessionId(call.api.ids.uuid())
    expires_at = call.api.clock.now() + timedelta(seconds=SESSION_S)
    await call.api.engine.submit(StartSession(session=session, user=user.id, expires_at=expires_at))
    token = call.api.tokens.issue_session(session, user.id)
    answer = json_response(LoginResponse(token=token, user=render_users.user(find_user(call.api, user.id))))
    secure = call.api.addresses.secure(call.request)
    answer.set_cookie(COOKIE, token, path="/", max_age=SESSION_S, httponly=True, samesite="Lax", secure=secure)
    answer.headers[cross_site.HEADER] = call.api.tokens.form_token(session)
    return answer


async def _proven(call: Call, request: LoginRequest) -> User:
    """The user with this password. Raises `Unauthenticated`, and `LimitExceeded` after too many failures."""
    api, address = call.api, call.api.addresses.of(call.request)
    attempt = await api.logins.begin(request.username, address, api.clock)
    right: bool | None = None
    try:
        user = user_named(api, request.username)
        password = request.password if request.is_hashed else hash_password(request.password)
        right = await api.passwords.matches(password, user.password_hash if user else None, address=address)
    finally:
        attempt.end(right=right, now=api.clock.monotonic())
    if user is None or not right:
        raise Unauthenticated("invalid credentials")
    return user


async def logout(call: Call, _: None) -> web.Response:
    """Ends the session of the token. Tokens of other logins stay valid."""
    session = call.caller.session
    if session is None:
        raise FailedPrecondition("this token belongs to a task and ends with it; there is no session to end")
    await call.api.engine.submit(EndSession(session=session))
    answer = json_response(Empty())
    secure = call.api.addresses.secure(call.request)
    answer.del_cookie(COOKIE, path="/", httponly=True, samesite="Lax", secure=secure)
    return answer


async def me(call: Call, _: None) -> web.Response:
    """The caller. A header of the answer contains the form token of the session, for a page that has only the cookie."""
    answer = json_response(GetMeResponse(user=render_users.user(call.caller.user)))
    if call.caller.session is not None:
        answer.headers[cross_site.HEADER] = call.api.tokens.form_token(call.caller.session)
    return answer


async def current_user(call: Call, _: None) -> CurrentUserResponse:
    """The user of the token."""
    return CurrentUserResponse(user=render_users.user(call.caller.user))


ROUTES = (
    Route("POST", "/api/v1/auth/login", Action.PUBLIC, nothing, login),
    Route("POST", "/api/v1/auth/logout", Action.LOG_OUT, nothing, logout),
    Route("GET", "/api/v1/me", Action.VIEW, nothing, me),
    Route("GET", "/api/v1/auth/user", Action.VIEW, nothing, current_user),
)
