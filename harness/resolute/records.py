"""Dataclasses whose methods are made when they are first used.

    from resolute.records import dataclass

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Point:
        "A place."
        x: float
        y: float = 0.0

They are dataclasses of the standard library (`fields`, `replace`, `is_dataclass` and `__match_args__` know them), to type checkers
just those. The standard library writes each of a class's methods as text and compiles it while the class is defined, half a
dozen of them: half a millisecond a class, and a quarter of what a master with its six hundred classes, or a command line, imports.
Most of them are never called in a start. Here `__init__`, `__eq__` and `__hash__` are compiled at their first call, each by
itself; the others need no text of their own.

Less than there: `frozen`, `slots`, `kw_only` and `eq` are all that can be asked for, there is no `InitVar`, `inspect.signature`
knows the parameters only after a first call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        cls: type | None = None,
        /,
        *,
        frozen: bool = False,
        slots: bool = False,
        kw_only: bool = False,
        eq: bool = True,
    ) -> Any:
        """As `dataclasses.dataclass`. With `eq` and `frozen` it can be hashed, with `eq` alone it cannot."""

        def decorated(cls: type) -> type:
            return _record(cls, frozen=frozen, slots=slots, kw_only=kw_only, eq=eq)

        return decorated if cls is None else decorated(cls)


def _record(cls: type, *, frozen: bool, slots: bool, kw_only: bool, eq: bool) -> type:
    if not cls.__doc__:
        cls.__doc__ = (
            cls.__name__
        )  # else the standard library asks for the signature, which takes longer than all the rest
    own = frozenset(cls.__dict__)
    explicit_hash = "__hash__" in own and not (cls.__dict__["__hash__"] is None and "__eq__" in own)
    # Of a base the standard library wants to be sure that both are frozen, or neither.
    inherits = frozen and any(dataclasses.is_dataclass(base) for base in cls.__mro__[1:])
    cls = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only, slots=slots, frozen=inherits)(cls)
    methods: dict[str, Any] = {"__init__": _at_first_call(cls, "__init__", _init_frozen if frozen else _init)}
    methods["__repr__"] = _repr(cls)
    if eq:
        methods["__eq__"] = _at_first_call(cls, "__eq__", _eq)
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)
    if eq and not explicit_hash:
        cls.__hash__ = _at_first_call(cls, "__hash__", _hash) if frozen else None  # type: ignore[method-assign, assignment]
    if frozen:
        _freeze(cls, slots=slots)
        cls.__dataclass_params__.frozen = True  # type: ignore[attr-defined]
    return cls


def _at_first_call(cls: Any, name: str, text_of: Callable[[type, dict[str, Any]], str]) -> Callable[..., Any]:
    """A method that puts the real one into its place. Two threads that come first make it twice, which is harmless."""

    def first_call(self: object, *args: Any, **values: Any) -> Any:
        names: dict[str, Any] = {"__name__": cls.__module__}
        text = text_of(cls, names)
        exec(compile(text, f"<{name} of {cls.__qualname__}>", "exec"), names)
        method = names[name]
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, method)
        return method(self, *args, **values)

    first_call.__name__ = name
    first_call.__qualname__ = f"{cls.__qualname__}.{name}"
    return first_call


# ------------------------------------------------------------------------- the text of a method; `names` are its globals


def _init(cls: type, names: dict[str, Any], *, store: str = "self.{0} = {1}") -> str:
    positional, by_name, body = ["self"], list[str](), list[str]()
    for field in dataclasses.fields(cls):
        name, value = field.name, field.name
        default, made, absent = f"_default_{name}", f"_made_{name}", "_absent"
        parameter = name
        if field.default_factory is not dataclasses.MISSING:
            names |= {made: field.default_factory, absent: dataclasses.MISSING}
            value = f"{made}() if {name} is {absent} else {name}" if field.init else f"{made}()"
            parameter = f"{name}={absent}"
        elif field.default is not dataclasses.MISSING:
            names[default] = field.default
            value = name if field.init else default
            parameter = f"{name}={default}"
        elif not field.init:
            continue  # its `__post_init__` sets it
        if field.init:
            (by_name if field.kw_only else positional).append(parameter)
        body.append(store.format(name, value))
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join([*positional, *(["*", *by_name] if by_name else [])])
    return _function("__init__", parameters, body or ["pass"])


def _init_frozen(cls: type, names: dict[str, Any]) -> str:
    names["_set"] = object.__setattr__
    return _init(cls, names, store="_set(self, {0!r}, {1})")


def _eq(cls: type, names: dict[str, Any]) -> str:
    compared = [field.name for field in dataclasses.fields(cls) if field.compare]
    same = f"{_values('self', compared)} == {_values('other', compared)}"
    body = ["if other.__class__ is self.__class__:", f"    return {same}", "return NotImplemented"]
    return _function("__eq__", "self, other", body)


def _hash(cls: type, names: dict[str, Any]) -> str:
    hashed = [f.name for f in dataclasses.fields(cls) if (f.compare if f.hash is None else f.hash)]
    return _function("__hash__", "self", [f"return hash({_values('self', hashed)})"])


def _values(of: str, fields: Sequence[str]) -> str:
    return f"({''.join(f'{of}.{name}, ' for name in fields)})"


def _function(name: str, parameters: str, body: Sequence[str]) -> str:
    return f"def {name}({parameters}):\n" + "".join(f"    {line}\n" for line in body)


# --------------------------------------------------------------------------------------- methods that need no text


def _repr(cls: type) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:
        shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(cls) if field.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    return __repr__


def _freeze(cls: Any, *, slots: bool) -> None:
    names = frozenset(cls.__dataclass_fields__)

    def __setattr__(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    cls.__setattr__, cls.__delattr__ = __setattr__, __delattr__
    if slots:
        cls.__getstate__, cls.__setstate__ = _state, _set_state


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: Sequence[Any]) -> None:
    """Copies and pickles set what is frozen otherwise."""
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
