"""Makes a session that the master accepts, from names, variables and stored tokens."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from resolute.client.session import NO_RETRY, Session, retry_from
from resolute.client.token_cache import TokenCache, configuration_directory
from resolute.errors import InvalidInput, PermissionDenied, Unauthenticated
from resolute.wire.codec import from_wire
from resolute.wire.rest.auth import GetMeResponse, LoginRequest, LoginResponse
from resolute.wire.rest.passwords import hash_password

AskPassword = Callable[[str], str]
"""Gets a prompt, returns a password; raises `InvalidInput` without a terminal."""

DEFAULT_USER = "determined"


def certificates_from(environ: Mapping[str, str]) -> bool | str:
    """Which certificates to trust: `DET_MASTER_CERT_FILE` is a path, or `noverify`."""
    named = environ.get("DET_MASTER_CERT_FILE")
    if not named:
        return True
    if named.lower() == "noverify":
        return False
    if not Path(named).exists():
        raise InvalidInput(f"DET_MASTER_CERT_FILE: there is no file {named!r}")
    return named


def anonymous_session(master: str, environ: Mapping[str, str] | None = None) -> Session:
    """A session for calls that need no login."""
    variables = os.environ if environ is None else environ
    return Session(master, retry=retry_from(variables), verify=certificates_from(variables))


def login(session: Session, user: str, password: str) -> LoginResponse:
    """Exchanges name and password for a token, which the session uses from then on. It is never retried automatically."""
    request = LoginRequest(username=user, password=hash_password(password), is_hashed=True)
    answer = from_wire(LoginResponse, session.request("POST", "api/v1/auth/login", body=request, retry=NO_RETRY))
    session.with_token(answer.token)
    return answer


def authenticated_session(
    master: str,
    *,
    user: str | None = None,
    password: str | None = None,
    ask_password: AskPassword | None = None,
    environ: Mapping[str, str] | None = None,
    cache: TokenCache | None = None,
) -> Session:
    """A session that the master accepts, as `authenticate` finds it."""
    session = anonymous_session(master, environ)
    try:
        authenticate(session, user=user, password=password, ask_password=ask_password, environ=environ, cache=cache)
    except BaseException:
        session.close()
        raise
    return session


def authenticate(
    session: Session,
    *,
    user: str | None = None,
    password: str | None = None,
    ask_password: AskPassword | None = None,
    environ: Mapping[str, str] | None = None,
    cache: TokenCache | None = None,
) -> None:
    """Makes the master accept the session, for the first of: the given user, `DET_USER` with `DET_PASS`, the active
    user of the stored logins, the built-in user without a password.

    A stored token is used while the master accepts it. `DET_USER` with `DET_USER_TOKEN` (set inside tasks) is tried
    before a password is requested. Raises `Unauthenticated` when nothing helps.
    """
    variables = os.environ if environ is None else environ
    tokens = cache if cache is not None else TokenCache(configuration_directory(variables))
    master = session.master
    name = user
    if name is None and password is None and variables.get("DET_USER") and "DET_PASS" in variables:
        name, password = variables["DET_USER"], variables["DET_PASS"]
    if name is None:
        name = tokens.active_user(master)
    fallback = name is None
    if name is None:
        name, password = DEFAULT_USER, password or ""
    stored = tokens.token(master, name)
    if stored is not None and _accepted(session, stored):
        return
    if stored is not None:
        tokens.forget(master, name)
    given = variables.get("DET_USER_TOKEN")
    if given and user in (None, variables.get("DET_USER")) and _accepted(session, given):
        return
    if password is None:
        if ask_password is None:
            raise Unauthenticated(f"no password for user {name!r} and no stored login at {master}")
        password = ask_password(f"Password for user '{name}': ")
    try:
        answer = login(session, name, password)
    except PermissionDenied as error:
        if fallback:
            raise Unauthenticated(str(error)) from None
        raise
    tokens.store(master, name, answer.token, active=False)


def _accepted(session: Session, token: str) -> bool:
    """Whether the master still accepts this token; the session uses it from then on."""
    session.with_token(token)
    try:
        session.get("api/v1/me", GetMeResponse)
    except (Unauthenticated, PermissionDenied):
        session.with_token(None)
        return False
    return True
