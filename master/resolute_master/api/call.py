"""A route, and the one path that every request takes: authenticate, find, authorise, handle, answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar, cast

import msgspec
from aiohttp import web

from resolute.errors import InvalidInput, PermissionDenied, Unauthenticated
from resolute.wire.codec import from_query, from_wire, to_wire
from resolute_master.api.auth import Caller, authenticate
from resolute_master.api.authorise import Action, can
from resolute_master.api.context import CONTEXT, ApiContext
from resolute_master.api.errors import BodyTooLarge

T = TypeVar("T")

THREAD_ABOVE_BYTES = 1024 * 1024
"""Larger bodies are parsed in a thread, so that the others do not wait."""

LARGEST = 2**63 - 1
"""What the databases' integers hold."""

MOST_DIGITS = len(str(LARGEST))
_MANY_DIGITS = re.compile(rb"\d{19}")


@dataclass(frozen=True, slots=True)
class Call:
    """One request, and who makes it."""

    api: ApiContext
    request: web.Request
    known_caller: Caller | None = None

    @property
    def caller(self) -> Caller:
        """Raises `Unauthenticated` on a public route without a token."""
        if self.known_caller is None:
            raise Unauthenticated("token missing")
        return self.known_caller

    @property
    def gone(self) -> bool:
        """Whether nobody waits for the answer any more."""
        transport = self.request.transport
        return transport is None or transport.is_closing()

    def text(self, name: str) -> str:
        """A part of the path."""
        return self.request.match_info[name]

    def number(self, name: str) -> int:
        """A part of the path that is an id."""
        text = self.text(name)
        if not (text.isascii() and text.isdigit()) or len(text) > MOST_DIGITS or int(text) > LARGEST:
            raise InvalidInput(f"{name}: '{text[:80]}' is not a number; use the id that the list shows")
        return int(text)

    def query(self, cls: type[T]) -> T:
        asked = from_query(cls, self.request.query.items())
        _check_integers(asdict(cast(Any, asked)))
        return asked

    async def json(self) -> Any:
        """The body as JSON, whatever it is labelled; an absent one is an empty object."""
        raw = await self._read()
        return await asyncio.to_thread(parse_json, raw) if len(raw) > THREAD_ABOVE_BYTES else parse_json(raw)

    async def body(self, cls: type[T]) -> T:
        raw = await self._read()
        if len(raw) > THREAD_ABOVE_BYTES:
            return await asyncio.to_thread(lambda: from_wire(cls, parse_json(raw)))
        return from_wire(cls, parse_json(raw))

    async def _read(self) -> bytes:
        try:
            return await self.request.read()
        except web.HTTPRequestEntityTooLarge:
            limit = self.api.max_request_bytes // (1024 * 1024)
            raise BodyTooLarge(
                f"the request is larger than {limit} MiB, the most that this master reads; "
                "leave large files out of the context directory (.detignore)"
            ) from None


def parse_json(raw: bytes) -> Any:
    """Raises `InvalidInput` for what is not JSON, or holds integers that no database could keep."""
    if not raw.strip():
        return {}
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the body is not JSON: {error}") from None
    # In a large body reading every character again costs more than looking at every value.
    if len(raw) > THREAD_ABOVE_BYTES or _MANY_DIGITS.search(raw):
        _check_integers(value)
    return value


def _check_integers(value: Any) -> None:
    if isinstance(value, int) and not -LARGEST <= value <= LARGEST:
        raise InvalidInput(f"the request holds the integer {value}, which does not fit in 64 bits; send it as text")
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            _check_integers(item)


# ---------------------------------------------------------------------------------------------------------- routes

Handler = Callable[[Call, Any], Awaitable[object]]
"""Gets what the route's finder found; returns a message of the wire, or a response it has made itself."""

Finder = Callable[[Call], Awaitable[Any]]


async def nothing(call: Call) -> None:
    """The finder of routes that concern the cluster as a whole."""


@dataclass(frozen=True, slots=True)
class Route:
    """One call: what it does, to what, and how. The action is authorised against what `find` finds."""

    method: str
    path: str
    action: Action
    find: Finder
    handle: Handler

    async def serve(self, request: web.Request) -> web.StreamResponse:
        api = request.app[CONTEXT]
        caller = None if self.action is Action.PUBLIC else authenticate(request, api.tokens)
        call = Call(api, request, caller)
        target = await self.find(call)
        allow(call, self.action, target)
        result = await self.handle(call, target)
        return result if isinstance(result, web.StreamResponse) else json_response(result)


def allow(call: Call, action: Action, target: Any = None) -> None:
    """Raises `PermissionDenied` unless the caller may."""
    if can(call.known_caller, action, target):
        return
    caller = call.caller
    who = f"the task of allocation {caller.allocation.id}" if caller.allocation else f"user '{caller.user.username}'"
    raise PermissionDenied(f"{who} may not {action}")


def json_response(message: object) -> web.Response:
    """Status 200 and nothing else: clients of the contract take any other for a failure."""
    return web.Response(body=msgspec.json.encode(to_wire(message)), content_type="application/json")


async def large_response(message: object) -> web.Response:
    """The same, rendered in a thread: for answers that may hold a whole archive."""
    return await asyncio.to_thread(json_response, message)
