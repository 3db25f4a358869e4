"""Authentication: signed tokens, and passwords behind a slow hash.

A token is signed with the cluster's key and names its session or allocation. Each use looks that up in the committed state, so
the end of a session or an allocation invalidates its tokens at once.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from aiohttp import web

from resolute.clock import Clock
from resolute.errors import PermissionDenied, Unauthenticated
from resolute.ids import IdSource, SystemIds
from resolute_master.api.auth.fair_turns import FairTurns
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AllocationId, SessionId, UserId
from resolute_master.domain.user import Session, User
from resolute_master.engine.engine import Engine

SESSION_S = 7 * 24 * 3600
"""Lifetime of a login."""

KNOWN_TOKENS = 20_000
"""Number of tokens whose verified signature is cached: about 10 MiB."""

COOKIE = "auth"
TASK_TOKEN_HEADER = "Grpc-Metadata-x-allocation-token"
ALGORITHM = "HS256"


class TokenKind(StrEnum):
    SESSION = "session"
    """A login."""
    ALLOCATION = "allocation"
    """The token with which a task reports."""
    TASK_USER = "task_user"
    """The token for commands of a user inside a task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller. `session` is set for a login, `allocation` for a task that reports for itself, `in_task` for a user's commands
    inside a task."""

    user: User
    session: SessionId | None = None
    allocation: Allocation | None = None
    in_task: bool = False


class Tokens:
    """Issues and reads tokens. `signing_key` is the cluster's; with another one, every token is invalid."""

    def __init__(self, *, signing_key: str, engine: Engine, clock: Clock) -> None:
        self._key = signing_key
        self._engine = engine
        self._clock = clock
        self._known: dict[str, dict[str, Any]] = {}

    def issue_session(self, session: SessionId, user: UserId) -> str:
        """The token of a session that is in the state."""
        return self._sign({"kind": TokenKind.SESSION.value, "jti": session, "user": user})

    def issue_allocation(self, allocation: AllocationId, user: UserId) -> str:
        """The token with which `allocation` reports until it has ended."""
        return self._sign({"kind": TokenKind.ALLOCATION.value, "allocation": allocation, "user": user})

    def issue_task_user(self, allocation: AllocationId, user: UserId) -> str:
        """The token that the owner's commands use inside the task until the allocation has ended."""
        return self._sign({"kind": TokenKind.TASK_USER.value, "allocation": allocation, "user": user})

    def form_token(self, session: SessionId) -> str:
        """The token in forms on the session's pages. Other sites cannot read it, and it is of no use without the session's
        cookie."""
        return hmac.new(self._key.encode(), f"form {session}".encode(), hashlib.sha256).hexdigest()

    def is_form_token(self, sent: str, session: SessionId) -> bool:
        """Compares in constant time."""
        return hmac.compare_digest(sent.encode(errors="replace"), self.form_token(session).encode())

    def read_bearer(self, token: str) -> Caller:
        """Raises `Unauthenticated` for anything that is not a live session, and `PermissionDenied` for its user."""
        claims = self._claims(token)
        match claims.get("kind"):
            case TokenKind.SESSION:
                session = self._engine.state.get(Session, str(claims.get("jti")))
                if session is None or session.expires_at <= self._clock.now():
                    raise Unauthenticated("invalid credentials")
                return Caller(user=self._user(session.user_id), session=session.id)
            case TokenKind.TASK_USER:
                self._allocation(claims)
                return Caller(user=self._user(claims.get("user")), in_task=True)
            case _:
                raise Unauthenticated("invalid credentials")

    def read_task(self, token: str) -> Caller:
        """Raises `Unauthenticated` unless it is the token of an allocation that has not ended."""
        claims = self._claims(token)
        if claims.get("kind") != TokenKind.ALLOCATION:
            raise Unauthenticated("invalid credentials")
        return Caller(user=self._user(claims.get("user")), allocation=self._allocation(claims))

    def _sign(self, claims: dict[str, Any]) -> str:
        import jwt  # here: it brings all of cryptography along, and no task is started before the master has placed it

        return jwt.encode({**claims, "iat": int(self._clock.now().timestamp())}, self._key, algorithm=ALGORITHM)

    def _claims(self, token: str) -> dict[str, Any]:
        """The content of the token, cached: a task sends its own a thousand times a minute."""
        known = self._known.get(token)
        if known is None:
            if len(self._known) >= KNOWN_TOKENS:
                self._known.clear()
            known = self._known[token] = self._read(token)
        return known

    def _read(self, token: str) -> dict[str, Any]:
        import jwt

        try:
            # The ends of sessions are in the state; the library would compare with a clock of its own.
            options: Any = {"verify_exp": False, "verify_iat": False}
            claims: dict[str, Any] = jwt.decode(token, self._key, algorithms=[ALGORITHM], options=options)
        except jwt.InvalidTokenError:
            raise Unauthenticated("invalid credentials") from None
        return claims

    def _allocation(self, claims: dict[str, Any]) -> Allocation:
        allocation = self._engine.state.get(Allocation, str(claims.get("allocation")))
        if allocation is None or allocation.ended:
            raise Unauthenticated("invalid credentials")
        return allocation

    def _user(self, id_: Any) -> User:
        user = self._engine.state.get(User, id_) if isinstance(id_, int) else None
        if user is None:
            raise Unauthenticated("invalid credentials")
        if not user.active:
            raise PermissionDenied(f"user '{user.username}' is not active")
        return user


def authenticate(request: web.Request, tokens: Tokens) -> Caller:
    """Bearer header, else cookie (only without that header), else the token of a task."""
    authorization = request.headers.get("Authorization")
    if authorization is not None:
        return tokens.read_bearer(_without_prefix(authorization))
    if comes_by_cookie(request):
        return tokens.read_bearer(request.cookies[COOKIE])
    task = request.headers.get(TASK_TOKEN_HEADER)
    if task is not None:
        return tokens.read_task(_without_prefix(task))
    raise Unauthenticated("token missing")


def comes_by_cookie(request: web.Request) -> bool:
    """Whether `authenticate` reads the cookie, which browsers add to requests of other sites too."""
    return "Authorization" not in request.headers and "Cookie" in request.headers and bool(request.cookies.get(COOKIE))


def _without_prefix(header: str) -> str:
    scheme, _, token = header.partition(" ")
    if scheme != "Bearer" or not token:
        raise Unauthenticated("invalid credentials")
    return token.strip()


# ------------------------------------------------------------------------------------------------------- passwords


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Parameters of scrypt; 2**15 and 8 take 32 MiB and some tens of milliseconds."""

    log2_n: int = 15
    r: int = 8
    p: int = 1

    def derive(self, password: str, salt: bytes) -> bytes:
        n = 1 << self.log2_n
        memory = 128 * n * self.r + 1024 * 1024
        return hashlib.scrypt(password.encode(), salt=salt, n=n, r=self.r, p=self.p, maxmem=memory, dklen=32)


CONCURRENT_HASHES = 4
"""Concurrent hashes, each of which takes 32 MiB and a core. Further logins wait in a queue, which serves addresses in turn."""


class Passwords:
    """Hashes and checks what `resolute.wire.rest.passwords.hash_password` made of a password.

    The stored form carries its salt and parameters: `scrypt$<log2 n>$<r>$<p>$<salt>$<hash>`. Work is done in a thread, so that it
    does not block the event loop.
    """

    def __init__(self, ids: IdSource | None = None, cost: Cost | None = None) -> None:
        self._ids = ids or SystemIds()
        self._cost = cost or Cost()
        self._decoy: str | None = None
        self._turns = FairTurns(CONCURRENT_HASHES)

    async def hash(self, password: str) -> str:
        salt = self._ids.bits(128).to_bytes(16, "big")
        async with self._turns.turn(""):
            return await asyncio.to_thread(self._hash, password, salt)

    async def matches(self, password: str, stored: str | None, *, address: str = "") -> bool:
        """In constant time over `stored`. None (no such user) takes as long and is False. Addresses are served in turn."""
        if stored is None and self._decoy is None:
            self._decoy = await self.hash("")
        async with self._turns.turn(address):
            found = await asyncio.to_thread(self._matches, password, stored or self._decoy or "")
        return found and stored is not None

    def _hash(self, password: str, salt: bytes) -> str:
        cost = self._cost
        derived = cost.derive(password, salt)
        return "$".join(["scrypt", str(cost.log2_n), str(cost.r), str(cost.p), _text(salt), _text(derived)])

    @staticmethod
    def _matches(password: str, stored: str) -> bool:
        try:
            name, log2_n, r, p, salt, expected = stored.split("$")
            if name != "scrypt":
                return False
            cost = Cost(log2_n=int(log2_n), r=int(r), p=int(p))
            derived = cost.derive(password, base64.b64decode(salt))
            return hmac.compare_digest(derived, base64.b64decode(expected))
        except (ValueError, binascii.Error):
            return False


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
