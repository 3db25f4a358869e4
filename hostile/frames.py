"""Hellos and messages of the agent link: of unknown agents, and of a joined agent that reports for the victims' work."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec

from hostile.calls import Victims
from hostile.values import deep, leaf, mutated, name
from resolute.wire.agent_link import (
    AGENT_MESSAGES,
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    ContainerChanged,
    ContainerReport,
    Device,
    Exit,
    Heartbeat,
    Hello,
    LogBatch,
    LogLine,
    Notice,
)
from resolute.wire.states import ContainerState, FailureKind, NoticeKind, SlotKind
from support.extreme_values import variants

MOST_FRAMES = 12
"""Maximum number of frames of one connection, including its Hello."""

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rogue:
    """The attackers' agent, which has joined a separate pool."""

    name: str
    pool: str
    credential: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One connection with its frames in order. `welcome` is true if the master may accept the Hello."""

    who: str
    frames: tuple[str | bytes, ...]
    welcome: bool


def links(random_: random.Random, victims: Victims, rogue: Rogue, count: int) -> Iterator[Link]:
    """A connection with `count` frames."""
    while count > 0:
        link = _link(random_, victims, rogue, min(count, random_.randint(1, MOST_FRAMES)))
        count -= len(link.frames)
        yield link


def _link(random_: random.Random, victims: Victims, rogue: Rogue, frames: int) -> Link:
    joined = random_.random() < 0.5
    first = genuine(rogue) if joined else _stranger(random_, victims, rogue)
    forged = [_frame(random_, victims, rogue) for _ in range(frames - 1)]
    who = "joined agent" if joined else "strange agent"
    return Link(who=who, frames=(first, *forged), welcome=joined)


def _spelled(message: Any) -> str:
    return msgspec.json.encode({"type": type(message).__name__, "body": message}).decode()


def _hello(**changes: Any) -> Hello:
    given: dict[str, Any] = {
        "protocol": PROTOCOL_VERSION,
        "version": "1",
        "agent_id": "nobody",
        "resource_pool": "default",
        "incarnation": "first",
        "devices": (Device(index=0, kind=SlotKind.CPU, brand="b", uuid="u"),),
        "address": "127.0.0.1",
    }
    return Hello(**{**given, **changes})


def genuine(rogue: Rogue, *, join_token: str = "") -> str:
    """The Hello of the attackers' agent."""
    return _spelled(
        _hello(agent_id=rogue.name, resource_pool=rogue.pool, credential=rogue.credential, join_token=join_token)
    )


def _stranger(random_: random.Random, victims: Victims, rogue: Rogue) -> str | bytes:
    """A Hello that the master must refuse, or another frame in its place."""
    agent = random_.choice((*victims.parts["agentId"], "new", rogue.name))
    secret = random_.choice(("", "0" * 64, "join", name(random_)))
    match random_.randrange(7):
        case 0:  # without a secret, or with a wrong one
            return _text(_hello(agent_id=agent, credential=secret))
        case 1:
            return _text(_hello(agent_id=agent, credential=secret, join_token=random_.choice(("", "0" * 64, secret))))
        case 2:  # as a machine of a cloud pool
            machine = random_.choice((*victims.parts["agentId"], "i-0", name(random_)))
            return _text(_hello(agent_id=machine, instance_id=machine, join_token=secret, credential=secret))
        case 3:  # the own credential under another name
            other = random_.choice((*victims.parts["agentId"], "new"))
            return _text(_hello(agent_id=other, credential=rogue.credential, join_token=rogue.credential))
        case 4:  # with work of others
            reports = (_report(random_, victims),)
            return _text(_hello(agent_id=agent, credential=secret, containers=reports))
        case 5:
            return _extreme(random_, "Hello")
        case _:
            return _odd(random_)


def _frame(random_: random.Random, victims: Victims, rogue: Rogue) -> str | bytes:
    match random_.randrange(9):
        case 0 | 1:
            return _text(ContainerChanged(report=_report(random_, victims)))
        case 2 | 3:
            return _text(LogBatch(batch=random_.randrange(10), lines=_lines(random_, victims)))
        case 4:
            return _extreme(random_, random_.choice(sorted(AGENT_MESSAGES)))
        case 5:
            body = mutated(random_, _plain(ContainerChanged(report=_report(random_, victims))))
            return json.dumps({"type": random_.choice(sorted(AGENT_MESSAGES)), "body": body})
        case 6:
            kind = random_.choice(list(NoticeKind))
            return _text(Notice(kind=kind, deadline=None, reason=_clean(name(random_)), at=NOW))
        case 7:
            return random_.choice((_text(Heartbeat(at=NOW)), genuine(rogue)))
        case _:
            return _odd(random_)


def _report(random_: random.Random, victims: Victims) -> ContainerReport:
    """A report of a state change of a victim's container."""
    failure = random_.choice((None, *FailureKind))
    return ContainerReport(
        container_id=random_.choice((*victims.parts["resourcesId"], "none")),
        allocation_id=random_.choice((*victims.parts["allocationId"], "none")),
        state=random_.choice(list(ContainerState)),
        sequence=random_.choice((0, 1, 2**31, 2**63 - 1)),
        at=NOW,
        exit=Exit(code=random_.choice((0, 1, 137, None)), failure=failure, message="forged"),
    )


def _lines(random_: random.Random, victims: Victims) -> tuple[LogLine, ...]:
    return tuple(
        LogLine(
            task_id=random_.choice(victims.parts["taskId"]),
            allocation_id=random_.choice(victims.parts["allocationId"]),
            container_id=random_.choice(victims.parts["resourcesId"]),
            stdtype=random_.choice(("stdout", "stderr", "x" * 100)),
            offset=random_.choice((0, 1, 2**63 - 1, -1)),
            at=NOW,
            log=f"forged {_clean(name(random_))}",
        )
        for _ in range(random_.choice((1, 3, 1001)))
    )


def _clean(text: str) -> str:
    """The text without characters that UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


def _text(message: Any) -> str:
    return json.dumps({"type": type(message).__name__, "body": _plain(message)})


def _plain(message: Any) -> Any:
    return json.loads(json.dumps(asdict(message), default=str))


@cache
def _extremes() -> Mapping[str, tuple[Any, ...]]:
    found = {}
    for kind, cls in AGENT_MESSAGES.items():
        every = list(variants(cls, lambda name, hint: NotImplemented))
        found[kind] = tuple(message for _, message in every[:: max(1, len(every) // 400)])
    return found


def _extreme(random_: random.Random, kind: str) -> str:
    return _text(random_.choice(_extremes()[kind]))


def _odd(random_: random.Random) -> str | bytes:
    """Frames that are not a message."""
    match random_.randrange(9):
        case 0:
            return random_.randbytes(random_.choice((0, 1, 1_000)))
        case 1:
            return "[" * 100_000
        case 2:
            return json.dumps({"type": random_.choice(("Hello", "Nothing", "", "__init__")), "body": leaf(random_)})
        case 3:
            return json.dumps({"type": "Heartbeat", "body": deep(random_)})
        case 4:
            return '{"type": "Heartbeat", "type": "Hello", "body": {}, "body": null}'
        case 5:
            return ""
        case 6:
            return json.dumps(leaf(random_))
        case 7 if random_.random() < 0.1:
            return "x" * random_.choice((MAX_FRAME_BYTES - 1, MAX_FRAME_BYTES + 1))
        case _:
            return json.dumps({"type": "LogBatch", "body": {"batch": 2**70, "lines": [{}] * 2_000}})
