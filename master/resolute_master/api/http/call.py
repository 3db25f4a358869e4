"""A route, and the one path that every request takes: authenticate, find, authorise, handle, answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar, cast

import msgspec
from aiohttp import web

from resolute import logs
from resolute.errors import InvalidInput, PermissionDenied, Unauthenticated
from resolute.wire.codec import Rows, from_query, from_wire, to_wire, to_wire_in_rows
from resolute.wire.rest.empty import Empty
from resolute.wire.times import check_times
from resolute_master.api.auth import cross_site
from resolute_master.api.auth.authenticate import Caller, authenticate
from resolute_master.api.auth.authorise import Action, Policy, can, depends_on_owner, refusal
from resolute_master.api.auth.ownership import of_task, owned
from resolute_master.api.context import ApiContext
from resolute_master.api.http.admission import identity
from resolute_master.api.http.bodies import LARGEST, check_values, parse_json, read_body
from resolute_master.api.http.limits import MAX_BODY_BYTES, MAX_PUBLIC_BODY_BYTES, PUBLIC_BODY_FIRST_S
from resolute_master.api.http.protocol import prove
from resolute_master.api.http.serving import SERVING
from resolute_master.event_loop import yielding

T = TypeVar("T")

THREAD_ABOVE_BYTES = 1024 * 1024
"""Larger bodies are parsed in a thread, so that the others do not wait."""

MOST_DIGITS = len(str(LARGEST))


def number_in(name: str, text: str) -> int:
    """The id that `text` is. Raises `InvalidInput`, which calls it `name`."""
    if not (text.isascii() and text.isdigit()) or len(text) > MOST_DIGITS or int(text) > LARGEST:
        raise InvalidInput(f"{name}: '{text[:80]}' is not a number; use the id that the list shows")
    return int(text)


def without_nul(name: str, text: str) -> str:
    """Raises `InvalidInput`, which calls the text `name`: PostgreSQL stores no NUL."""
    if "\0" in text:
        raise InvalidInput(f"{name[:80]}: must not contain the character NUL; remove it")
    return text


@dataclass(slots=True)
class Call:
    """One request and its caller."""

    api: ApiContext
    request: web.Request
    known_caller: Caller | None = None
    body_limit: int = MAX_BODY_BYTES
    body_read: bytes | None = None

    @property
    def caller(self) -> Caller:
        """Raises `Unauthenticated` on a public route without a token."""
        if self.known_caller is None:
            raise Unauthenticated("token missing")
        return self.known_caller

    @property
    def gone(self) -> bool:
        """Whether the caller no longer waits for the answer."""
        transport = self.request.transport
        return transport is None or transport.is_closing()

    def admit_again(self) -> None:
        """Checks the token again: streams last for days. Raises `Unauthenticated` or `PermissionDenied` if it is no longer
        valid."""
        if self.known_caller is not None:
            authenticate(self.request, self.api.tokens)

    def text(self, name: str) -> str:
        """A part of the path. Raises `InvalidInput` for a text that no database keeps."""
        return without_nul(name, self.request.match_info[name])

    def number(self, name: str) -> int:
        """A part of the path that is an id."""
        return number_in(name, self.text(name))

    def query(self, cls: type[T]) -> T:
        given = self.request.query
        for name, text in given.items():
            without_nul(name, text)
        asked = from_query(cls, given.items())
        check_values(asdict(cast(Any, asked)))
        check_times(asked)
        return asked

    async def json(self) -> Any:
        """The body as JSON, whatever it is labelled; an absent one is an empty object."""
        raw = await self._read()
        return await asyncio.to_thread(parse_json, raw) if len(raw) > THREAD_ABOVE_BYTES else parse_json(raw)

    async def body(self, cls: type[T]) -> T:
        raw = await self._read()
        if len(raw) > THREAD_ABOVE_BYTES:
            return await asyncio.to_thread(_message, cls, raw)
        return _message(cls, raw)

    async def raw(self) -> bytes:
        """The body as it came, for handlers that decode it at once. Raises what reading it raises."""
        return await self._read()

    async def _read(self) -> bytes:
        """Reads the body once, because finders read it too."""
        if self.body_read is None:
            self.body_read = await read_body(self.request, self.body_limit)
        return self.body_read


def _message(cls: type[T], raw: bytes) -> T:
    message = from_wire(cls, parse_json(raw))
    check_times(message)
    return message


# ---------------------------------------------------------------------------------------------------------- routes

Handler = Callable[[Call, Any], Awaitable[object]]
"""The handler of a route. It gets what the route's finder found, and returns a message of the wire or a complete response."""

Finder = Callable[[Call], Awaitable[Any]]


async def nothing(call: Call) -> None:
    """The finder of routes that concern the cluster as a whole."""


@dataclass(frozen=True, slots=True)
class Also:
    """Authorisation by the content of the body: of every request, or of those that `when` describes."""

    action: Action
    when: str = ""


@dataclass(frozen=True, slots=True)
class Route:
    """One call: its action, its target and its handler. The action is authorised for what `find` finds."""

    method: str
    path: str
    action: Action
    find: Finder
    handle: Handler
    max_body: int = MAX_BODY_BYTES
    """Bytes of the body; `MAX_UPLOAD_BYTES` for calls that carry a context directory."""
    also: tuple[Also, ...] = ()
    """Authorisations by the handler, in addition to `action`."""

    async def serve(self, request: web.Request) -> web.StreamResponse:
        api = request.app[SERVING].context
        if self.action is Action.PUBLIC:
            return await self._serve_anybody(api, request)
        caller = authenticate(request, api.tokens)
        prove(request)
        logs.also_about(user=caller.user.username, allocation=caller.allocation and caller.allocation.id)
        limit = min(self.max_body, api.max_request_bytes)
        # What does not say its length may become as long as it may.
        length = request.content_length if request.content_length is not None else limit * request.body_exists
        with api.admission.request(caller):
            async with api.admission.bodies.held(length if length <= limit else 0, identity(caller)):
                call = Call(api, request, caller, limit)
                if cross_site.is_asked(request):
                    await _check_session(call)
                return await self._answer(call)

    async def _serve_anybody(self, api: ApiContext, request: web.Request) -> web.StreamResponse:
        """A call without a token is admitted when its whole body has arrived."""
        limit, address = min(self.max_body, MAX_PUBLIC_BODY_BYTES), api.addresses.of(request)
        call = Call(api, request, None, limit)
        if not request.content.is_eof():
            async with api.admission.unread.waiting(address):
                call.body_read = await read_body(request, limit, first_s=PUBLIC_BODY_FIRST_S)
        with api.admission.request(None, address):
            return await self._answer(call)

    async def _answer(self, call: Call) -> web.StreamResponse:
        target = await self.find(call)
        await allow(call, self.action, target)
        result = await self.handle(call, target)
        return result if isinstance(result, web.StreamResponse) else json_response(result)


async def _check_session(call: Call) -> None:
    """Raises `PermissionDenied` for a change that another site may have made a browser send."""
    sent = call.request.headers.get(cross_site.HEADER, "")
    if not sent:
        sent = await cross_site.field_of(call.request.headers.get("Content-Type", ""), await call.raw())
    cross_site.check(call.request, call.caller, call.api.tokens, sent)


async def allow(call: Call, action: Action, target: Any = None) -> None:
    """Raises `PermissionDenied` unless the caller may do `action` to `target`: an entity, a reference, a tuple of them, or None."""
    if not await may(call, action, target):
        policy, caller = policy_of(call), call.caller
        targets = of_task(target) if caller.allocation is not None else await owned(call.api, target)
        raise PermissionDenied(refusal(caller, action, targets, policy=policy))


async def may(call: Call, action: Action, target: Any = None) -> bool:
    """Whether the caller may take the action. Raises `NotFound` for a reference to nothing."""
    caller, policy = call.known_caller, policy_of(call)
    known = depends_on_owner(caller, action, policy)
    targets = await owned(call.api, target) if known else of_task(target)
    return can(caller, action, targets, policy=policy)


def policy_of(call: Call) -> Policy:
    """The policy of authorisation in the configuration."""
    authz = call.api.config.security.authz
    return Policy(open=authz.type == "open", strict_queue=authz.strict_job_queue_control)


def json_response(message: object) -> web.Response:
    """An answer with status 200. Clients of the contract treat any other status as a failure."""
    body = b"{}" if isinstance(message, Empty) else msgspec.json.encode(to_wire(message))
    return web.Response(body=body, content_type="application/json")


async def rendered(make: Callable[[], object]) -> web.Response:
    """An answer that is made and rendered in a thread, for lists of everything in a large cluster. `make` reads immutable values
    only."""
    return await asyncio.to_thread(lambda: _response(make()))


async def large_response(message: object) -> web.Response:
    """A message rendered in a thread, for answers that may contain a whole archive."""
    return await asyncio.to_thread(_response, message)


def _response(message: object) -> web.Response:
    return web.Response(body=in_pieces(message), content_type="application/json")


def in_pieces(message: object) -> bytes:
    """The body of `json_response`, made in a thread: a row at a time, and yields to the event loop between two. While one call
    encodes or frees ten thousand rows, the loop waits for the interpreter."""
    parts: list[bytes] = []
    for key, value in to_wire_in_rows(message):
        parts += (b",", msgspec.json.encode(key), b":")
        parts += _rows(value) if isinstance(value, Rows) else (msgspec.json.encode(value),)
    return b"{%s}" % b"".join(parts[1:])


def _rows(rows: Rows) -> Iterator[bytes]:
    keyed = isinstance(rows.of, Mapping)
    yield b"{" if keyed else b"["
    for number, (key, row) in enumerate(yielding(rows)):
        if number:
            yield b","
        if keyed:
            yield msgspec.json.encode(key) + b":"
        yield msgspec.json.encode(row)
    yield b"}" if keyed else b"]"
