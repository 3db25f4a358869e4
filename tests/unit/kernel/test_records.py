"""Dataclasses whose methods are made late are the standard library's in all that a program can see."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
import re
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
import pytest

from resolute import records

T = TypeVar("T")

KINDS = ("late", "standard")


def shapes(decorator: Any) -> dict[str, Any]:
    """The same classes by either decorator."""

    @decorator(frozen=True, slots=True, kw_only=True)
    class Frozen:
        """Frozen."""

        LIMIT: ClassVar[int] = 3
        name: str
        size: float = 1.0
        parts: list[int] = field(default_factory=list)
        hidden: int = field(default=0, repr=False)
        beside: int = field(default=0, compare=False)
        number: int = field(init=False, default=7)

    @decorator(slots=True)
    class Changing:
        """Not frozen: cannot be hashed."""

        a: int
        b: int = 2
        c: int = field(default=3, kw_only=True)

    @decorator(slots=True, eq=False)
    class ByIdentity:
        """Equal to itself alone."""

        a: int

    @decorator(frozen=True, slots=True)
    class Checked:
        """Looks at itself once it is made."""

        a: int
        twice: int = field(init=False)

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError("a is negative")
            object.__setattr__(self, "twice", 2 * self.a)

    @decorator(frozen=True)
    class Open:
        """Without slots."""

        a: int

        def __repr__(self) -> str:
            return "mine"

    @decorator(frozen=True, slots=True, kw_only=True)
    class Below(Frozen):
        """Inherits fields."""

        more: int = 5

    @decorator(frozen=True, slots=True)
    class Empty:
        """No fields."""

    @decorator(frozen=True, slots=True)
    class Box(Generic[T]):
        """Of anything."""

        inside: T

    found = (Frozen, Changing, ByIdentity, Checked, Open, Below, Empty, Box)
    for cls in found:
        cls.__qualname__ = cls.__name__
    return {cls.__name__: cls for cls in found}


SHAPES = {"late": shapes(records.dataclass), "standard": shapes(dataclasses.dataclass)}

CASES: dict[str, Callable[[dict[str, Any]], object]] = {
    "defaults": lambda s: [(c := s["Frozen"](name="a")).size, c.parts, c.hidden, c.number, c.LIMIT],
    "each has a list of its own": lambda s: s["Frozen"](name="a").parts is s["Frozen"](name="a").parts,
    "repr": lambda s: repr(s["Frozen"](name="a", parts=[1])),
    "repr of its own": lambda s: repr(s["Open"](1)),
    "repr of what holds itself": lambda s: repr(_holding_itself(s["Frozen"])),
    "repr of an inheriting class": lambda s: repr(s["Below"](name="a")),
    "equal": lambda s: s["Frozen"](name="a", beside=1) == s["Frozen"](name="a", beside=2),
    "unequal": lambda s: s["Frozen"](name="a") == s["Frozen"](name="b"),
    "equal to another class": lambda s: s["Below"](name="a") == s["Frozen"](name="a"),
    "the same value that is not a number": lambda s: s["Box"](math.nan) == s["Box"](math.nan),
    "equal by identity": lambda s: s["ByIdentity"](1) == s["ByIdentity"](1),
    "no fields": lambda s: [s["Empty"]() == s["Empty"](), hash(s["Empty"]()) == hash(s["Empty"]()), repr(s["Empty"]())],
    "hash": lambda s: hash(s["Open"](1)) == hash((1,)),
    "hash without what is not compared": lambda s: hash(s["Checked"](1)) == hash((1, 2)),
    "what changes has no hash": lambda s: hash(s["Changing"](1)),
    "what is inside has no hash": lambda s: hash(s["Frozen"](name="a")),
    "by position and name": lambda s: repr(s["Changing"](1, c=5)),
    "kw_only by position": lambda s: s["Changing"](1, 2, 3),
    "unknown name": lambda s: s["Frozen"](name="a", colour=1),
    "nothing given": lambda s: s["Frozen"](),
    "not to be given": lambda s: s["Frozen"](name="a", number=1),
    "checked": lambda s: s["Checked"](-1),
    "set on a frozen one": lambda s: setattr(s["Frozen"](name="a"), "size", 2.0),
    "delete on a frozen one": lambda s: delattr(s["Open"](1), "a"),
    "a new name on a frozen one": lambda s: setattr(s["Open"](1), "b", 2),
    "a new name on one with slots": lambda s: setattr(s["Changing"](1), "other", 2),
    "changed": lambda s: _changed(s["Changing"](1)),
    "replace": lambda s: repr(dataclasses.replace(s["Frozen"](name="a", size=2), name="b")),
    "replace what is not to be given": lambda s: dataclasses.replace(s["Frozen"](name="a"), number=2),
    "asdict": lambda s: dataclasses.asdict(s["Below"](name="a")),
    "fields": lambda s: [(f.name, f.kw_only, f.init) for cls in s.values() for f in dataclasses.fields(cls)],
    "match": lambda s: [cls.__match_args__ for cls in s.values()],
    "slots": lambda s: [getattr(cls, "__slots__", None) for cls in s.values()],
    "frozen": lambda s: [cls.__dataclass_params__.frozen for cls in s.values()],
    "documentation": lambda s: [cls.__doc__ for cls in s.values()],
    "copies": lambda s: copy.deepcopy(s["Frozen"](name="a", parts=[1])) == s["Frozen"](name="a", parts=[1]),
    "messages": lambda s: msgspec.json.encode(msgspec.json.decode(b'{"name":"a","size":2}', type=s["Frozen"])),
    "refused messages": lambda s: msgspec.json.decode(b'{"size":2}', type=s["Frozen"]),
}


def _holding_itself(cls: Any) -> object:
    found = cls(name="a")
    found.parts.append(found)
    return found


def _changed(found: Any) -> object:
    found.a = 9
    return found.a


def outcome(case: Callable[[dict[str, Any]], object], kind: str) -> object:
    try:
        return case(SHAPES[kind])
    except Exception as error:
        return type(error), str(error).replace("shapes.<locals>.", "")


@pytest.mark.parametrize("name", CASES)
def test_it_does_what_the_standard_library_does(name: str) -> None:
    found = [(outcome(CASES[name], "late"), outcome(CASES[name], "standard")) for _ in range(2)]
    assert found[0][0] == found[0][1]
    assert found[1] == found[0], "a method does the same when it is called again"


@records.dataclass(frozen=True, slots=True)
class Sent:
    """At the top of a module, where pickles find it."""

    a: int


def test_a_pickle_comes_back() -> None:
    assert pickle.loads(pickle.dumps(Sent(1))) == Sent(1)


def test_a_field_without_a_value_may_not_follow_one_with_a_value() -> None:
    @records.dataclass(slots=True)
    class Wrong:
        a: int = 1
        b: int

    with pytest.raises(SyntaxError, match="non-default argument"):
        Wrong(1, 2)


def test_what_is_never_called_is_never_compiled() -> None:
    @records.dataclass(frozen=True)
    class Seldom:
        a: int

    assert Seldom.__init__.__code__.co_filename == records.__file__
    first = Seldom(1)
    assert Seldom.__init__.__code__.co_filename == f"<__init__ of {Seldom.__qualname__}>"
    assert Seldom.__hash__.__code__.co_filename == records.__file__  # type: ignore[attr-defined]
    assert {first: 1}[Seldom(1)] == 1


def test_an_option_it_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match="order"):
        records.dataclass(order=True)


ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("harness", "master", "provisioner", "agent_image", "cli")


def test_every_dataclass_of_the_packages_is_made_late() -> None:
    found = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert len(found) > 300
    early = re.compile(r"^ *from dataclasses import (.*\bdataclass\b|\()|dataclasses\.dataclass\b", re.MULTILINE)
    # Ordering is the standard library's alone.
    guilty = [path for path in found if early.search(text := path.read_text()) and "order=True" not in text]
    assert guilty == [Path(records.__file__)], "say 'from resolute.records import dataclass'"
