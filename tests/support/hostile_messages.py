"""A master with hostile responses: each text of each message, including keys of mappings, contains terminal control sequences."""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from resolute.client.session import Session

INJECTED = "injected"
HOSTILE = (
    f"{INJECTED}\x1b[35;7m\x1b]0;title\x07\x1b[2J\x9b31m\x7f\r\n\tforged\u202e\u2066\u200b\ufeff\u2028\ud800"
    "[bold]loud[/bold][link=https://example.invalid]click[/link]"
)
AT = datetime(2024, 5, 1, 12, tzinfo=UTC)
_PLAIN: Mapping[object, object] = {str: HOSTILE, int: 1, float: 1.5, bool: True, bytes: b"x", datetime: AT}


def hostile(kind: Any) -> Any:
    """A value of a wire type in which every text is hostile. Each optional part is present, and each list has one item."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind is Any or kind is object:
        return {HOSTILE: [HOSTILE, {"inner": HOSTILE}]}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return next(reversed(kind))
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{each.name: hostile(hints[each.name]) for each in dataclasses.fields(kind) if each.init})  # type: ignore[operator]
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return hostile(next(each for each in inner if each is not type(None)))
    if origin is tuple:
        return (hostile(inner[0]),)
    if origin is not None and issubclass(origin, Mapping):
        return {hostile(inner[0]): hostile(inner[1])}
    if (origin is not None and issubclass(origin, (list, set, frozenset))) or origin in (list,):
        return origin([hostile(inner[0])])
    if kind is Mapping or kind is dict:
        return hostile(Any)
    supertype: Callable[..., Any] | None = getattr(kind, "__supertype__", None) or getattr(kind, "__value__", None)
    if supertype is not None:
        return hostile(supertype)
    if origin is not None and inner:
        return hostile(inner[0])
    raise AssertionError(f"no hostile value of {kind!r} is known")


def answer_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request of every session is answered with a hostile message of the type that the client expects."""

    def answered(self: Session, path: str, answer: type, *_: object, **__: object) -> object:
        return hostile(answer)

    def streamed(self: Session, path: str, item: type, *_: object) -> Iterator[object]:
        yield hostile(item)

    for verb in ("get", "post", "put", "patch", "delete"):
        monkeypatch.setattr(Session, verb, answered)
    monkeypatch.setattr(Session, "stream", streamed)
