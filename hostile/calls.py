"""Requests of the REST API: every route, with exact, extreme and malformed parameters and bodies, by every attacker."""

from __future__ import annotations

import dataclasses
import gzip
import importlib
import json
import pkgutil
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import quote

from hostile.attackers import COLUMN, Attacker
from hostile.values import DEEP, leaf, mutated, name, number, query
from resolute.wire import rest
from resolute.wire.codec import to_wire, wire_names
from resolute_master.api.app import ROUTES
from resolute_master.api.auth.authorise import RULES, Action, Rule
from resolute_master.api.http.call import Route
from resolute_master.api.http.limits import MAX_BODY_BYTES
from resolute_master.api.resources import not_yet
from resolute_master.api.rights import NEEDS_NO_REST, rows_of
from support.extreme_values import variants
from support.rest_schema import contract

PARAMETER = re.compile(r"\{(\w+)\}")
NUMBERED = frozenset(
    {"experimentId", "trialId", "runId", "userId", "workspaceId", "id", "slotId", "projectId", "tokenId", "groupId"}
)
SERVED_TIMES = 4
LARGE = 0.05
"""Fraction of truncated bodies that are replaced by bodies over the limit."""

MOST_VARIANTS = 400
"""Number of extreme values per message type, drawn from all of them."""

FINAL = frozenset({Action.LOG_OUT})
"""Calls that end the session of the attacker."""

ENDING = ("/early_exit", "/daemon")
"""Calls that may end the attackers' own task."""

WAITING = ("/all_gather", "/signals/preemption", "/rendezvous")

OWN = 0.35
"""Share of the requests about the attacker's own objects."""

WEIGHTS: Mapping[Attacker, int] = {Attacker.OTHER_TASK: 3, Attacker.FROM_TASK: 3, Attacker.OTHER: 3}
"""Weights of attackers: unauthenticated ones are refused early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Victims:
    """Objects of the victims: the values of each path parameter, and well-formed bodies that reference them, by call."""

    parts: Mapping[str, tuple[str, ...]]
    bodies: Mapping[str, Any]
    own_user: str
    """Id of the attackers' user, whose password and name they may change."""
    own: Mapping[str, str] = field(default_factory=dict)
    """The attackers' own objects, by parameter. They get extreme values, too."""
    own_task: Mapping[str, str] = field(default_factory=dict)
    """Allocation of the task whose token they have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. `refused` is true if the table of calls does not permit it for this attacker."""

    who: Attacker
    method: str
    path: str
    """The escaped path with its query."""
    call: str
    """The call's name in the table of calls."""
    kind: str
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    refused: bool
    waits: bool = False
    """The response may depend on another event."""


class Caller:
    """Draws requests. Equal generators and victims give equal requests."""

    def __init__(
        self, random_: random.Random, victims: Victims, attackers: Sequence[Attacker] = tuple(Attacker)
    ) -> None:
        self._random = random_
        self._victims = victims
        self._attackers = attackers

    def requests(self, count: int) -> Iterator[Request]:
        """Weights of routes: equal for served routes, lower for routes that are not served yet."""
        routes: list[Route] = []
        for _ in range(count):
            if not routes:
                routes = [route for route in (*ROUTES * SERVED_TIMES, *not_yet.ROUTES) if route.action not in FINAL]
                self._random.shuffle(routes)
            yield self._request(routes.pop())

    def _request(self, route: Route) -> Request:
        random_ = self._random
        who = random_.choices(self._attackers, [WEIGHTS.get(each, 1) for each in self._attackers])[0]
        kind = random_.choices(("exact", "extreme", "malformed"), (3, 5, 2))[0]
        own = self._own(route, who)
        path, all_victims = self._path(route, kind, own)
        call = f"{route.method} {route.path}"
        body, headers = self._body(route, call, kind)
        if own and body is not None:
            body = self._about_own(body, own)
        return Request(
            who=who,
            method=route.method,
            path=path + self._query(kind),
            call=call,
            kind=kind,
            body=body,
            headers=headers,
            refused=_refused(route, who, is_victims=all_victims and ("{" in route.path or kind == "exact")),
            waits=route.path.endswith(WAITING),
        )

    def _own(self, route: Route, who: Attacker) -> Mapping[str, str]:
        """The attackers' own objects for the call; empty for a call on the victims' objects."""
        if who is Attacker.OTHER_TASK and RULES[route.action] is Rule.REPORT and not route.path.endswith(ENDING):
            found = self._victims.own_task
        else:
            found = self._victims.own if who in (Attacker.OTHER, Attacker.FROM_TASK) else {}
        return found if self._random.random() < OWN else {}

    def _about_own(self, body: bytes, own: Mapping[str, str]) -> bytes:
        """Replaces references to victims' objects by references to the attackers' own."""
        for key, value in own.items():
            for known in self._victims.parts.get(key, ()):
                body = body.replace(json.dumps(known).encode(), json.dumps(value).encode())
                if known.isdigit() and value.isdigit():
                    body = re.sub(rb"(?<=Id\": )%s\b" % known.encode(), value.encode(), body)
        return body

    def _path(self, route: Route, kind: str, own: Mapping[str, str]) -> tuple[str, bool]:
        """The path, and whether each of its parameters references a victim's object."""
        random_, all_victims = self._random, not own

        def part(match: re.Match[str]) -> str:
            nonlocal all_victims
            key = match[1]
            known = (own[key],) if key in own else self._victims.parts.get(key, ())
            if known and (kind != "extreme" or random_.random() < 0.5):
                return quote(random_.choice(known), safe="")
            all_victims = False
            drawn = number(random_) if key in NUMBERED and random_.random() < 0.7 else name(random_)
            if drawn == self._victims.own_user:
                drawn = "0"
            return quote(drawn.encode("utf-8", "surrogatepass"), safe="") or "%00"

        return PARAMETER.sub(part, route.path), all_victims

    def _query(self, kind: str) -> str:
        pairs = query(self._random, query_names()) if kind != "exact" or self._random.random() < 0.2 else []
        return "?" + "&".join(f"{_quoted(key)}={_quoted(value)}" for key, value in pairs) if pairs else ""

    def _body(self, route: Route, call: str, kind: str) -> tuple[bytes | None, tuple[tuple[str, str], ...]]:
        random_ = self._random
        if route.method == "GET" and random_.random() < 0.95:
            return None, ()
        exact = self._victims.bodies.get(call)
        if kind == "exact":
            return (None if exact is None else _json(exact)), ()
        if kind == "extreme":
            drawn = body_variants().get(call, ())
            body = random_.choice(drawn) if drawn and random_.random() < 0.6 else exact if exact is not None else {}
            if isinstance(exact, Mapping) and isinstance(exact.get("config"), str) and random_.random() < 0.7:
                config = json.dumps(mutated(random_, json.loads(exact["config"])))
                body = {**exact, "config": config, "validateOnly": random_.random() < 0.3}
            return _json(mutated(random_, body) if random_.random() < 0.6 else body), ()
        return _malformed(random_, _json(exact if exact is not None else {"a": 1}))


def _quoted(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"), safe="")


def _refused(route: Route, who: Attacker, *, is_victims: bool) -> bool:
    """Whether the call is refused regardless of its body. For objects of unknown owners the result is false."""
    column = COLUMN[who]
    if column in rows_of(route)[0].granted:
        return False
    return column in NEEDS_NO_REST or is_victims or RULES[route.action] is Rule.ADMINISTRATOR


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _malformed(random_: random.Random, good: bytes) -> tuple[bytes, tuple[tuple[str, str], ...]]:
    """Bytes that are not JSON, or that have another content type."""
    match random_.randrange(11):
        case 0 if random_.random() < LARGE:
            return b" " * (MAX_BODY_BYTES + 1), ()
        case 0:
            return good[: random_.randrange(len(good))], ()
        case 1:
            return b"[" * DEEP * 10, ()
        case 2:
            return good + b"\x00", ()
        case 3:
            return b"\xff\xfe" + good, ()
        case 4:
            return random_.randbytes(random_.choice((1, 100, 5_000))), ()
        case 5:
            return b'{"a":' + b"9" * 5_000 + b"}", ()
        case 6:
            return good, (("Content-Type", random_.choice(("text/plain", "application/xml", "\u00ff", "a" * 3_000))),)
        case 7:
            return good, (("Content-Encoding", random_.choice(("gzip", "deflate", "br", "identity", "zstd"))),)
        case 8:
            return _bomb(), (("Content-Encoding", "gzip"),)
        case 9:
            return b'{"a":1,"a":2,"a":' + json.dumps(str(leaf(random_))).encode() + b"}", ()
        case _:
            return good, _odd(random_)


@cache
def _bomb() -> bytes:
    """64 MiB of zeros in 64 KiB."""
    return gzip.compress(bytes(64 * 1024 * 1024), mtime=0)


def _odd(random_: random.Random) -> tuple[tuple[str, str], ...]:
    return random_.choice(
        (
            (("X-Forwarded-For", "127.0.0.1"), ("X-Forwarded-User", "admin")),
            (("X-HTTP-Method-Override", "DELETE"),),
            (("Cookie", "auth=a; auth=b; " + "c=d; " * 500),),
            (("Cookie", 'auth="\\073"; $Version=1'),),
            (("Expect", "100-continue"),),
            (("Range", "bytes=0-18446744073709551615"),),
            (("traceparent", "00-" + "f" * 32 + "-" + "f" * 16 + "-01"), ("tracestate", "a=b," * 100)),
            (("Accept", "text/event-stream"), ("Accept-Encoding", "gzip;q=NaN")),
            (("Origin", "null"), ("Host", "attacker.example")),
            (("If-None-Match", "*"), ("If-Modified-Since", "Thu, 01 Jan 0001 00:00:00 GMT")),
        )
    )


# ---------------------------------------------------------------------------------------------- what calls understand


@cache
def _wire_classes() -> Mapping[str, type]:
    found: dict[str, type] = {}
    for module in pkgutil.iter_modules(rest.__path__):
        for key, value in vars(importlib.import_module(f"{rest.__name__}.{module.name}")).items():
            if isinstance(value, type) and dataclasses.is_dataclass(value):
                found[key] = value
    return found


@cache
def query_names() -> tuple[str, ...]:
    """Query parameters of every call."""
    classes = [cls for key, cls in sorted(_wire_classes().items()) if key.endswith("Query")]
    return tuple(sorted({spelled for cls in classes for spelled in wire_names(cls).values()}))


@cache
def body_variants() -> Mapping[str, tuple[Any, ...]]:
    """For each call its message with an extreme value at one place, as JSON values."""
    known = {(e.method, e.path): e.body_type for e in contract().endpoints if e.body_type}
    found = {}
    for route in ROUTES:
        cls = _wire_classes().get((known.get((route.method, route.path)) or "").removeprefix("v1"))
        if cls is not None:
            found[f"{route.method} {route.path}"] = _of_class(cls)
    return found


@cache
def _of_class(cls: type) -> tuple[Any, ...]:
    every = [message for _, message in variants(cls, lambda name, hint: NotImplemented)]
    step = max(1, len(every) // MOST_VARIANTS)
    return tuple(body for message in every[::step] if (body := _spelled(message)) is not None)


def _spelled(message: Any) -> Any:
    """None for a value that JSON cannot represent."""
    try:
        return json.loads(json.dumps(to_wire(message)))
    except (ValueError, TypeError, OverflowError):
        return None
