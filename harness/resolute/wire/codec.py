"""Dataclass <-> JSON-able values, by the proto3 JSON rules of the REST contract.

    to_wire(message)            -> dicts, lists, strings, numbers, booleans and None: ready for any JSON writer
    from_wire(Message, data)    -> Message, or `InvalidInput` naming the key, the value and what to send
    from_query(Message, pairs)  -> the same for the text pairs of a query string
    to_query(message)           -> those pairs, for every field that is not at its default

Rules, all driven by the type hints of the dataclass:

- Names go out in lowerCamelCase; camelCase and snake_case are both read. `Annotated[T, Key("other_name")]` spells a
  name that follows neither rule. Keys of maps, and everything inside free-form values (`Any`), are data: left alone.
- Every field goes out. `None` is unset; a null that comes in gives the field's default.
- `Int64` goes out as a string; integers are read from numbers and from strings.
- Floats that are not finite go out, and are read in any case, as "NaN", "Infinity", "-Infinity".
- Enums by value, times as RFC 3339 in UTC with `Z`, bytes as base64.
- Unknown keys are ignored: an older or newer peer may say more than we understand.

How to treat a type is worked out once a type and kept.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Any, Literal, TypeVar, Union

from resolute.errors import InvalidInput

T = TypeVar("T")

Encode = Callable[[Any], Any]
Decode = Callable[[Any, str], Any]

Int64 = Annotated[int, "int64"]
"""An integer of 64 bits: a string in JSON, because a JavaScript number would lose digits."""

Json = dict[str, Any] | list[Any] | str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Key:
    """Annotation that spells a field's name on the wire: `Annotated[str, Key("cluster_id")]`."""

    name: str


def to_wire(message: object) -> Any:
    """The JSON-able form of a dataclass instance (or of anything a field may hold).

    Raises `TypeError` for a value that has no form in JSON and `ValueError` for a time without a zone: both are
    errors of the program, not of its input.
    """
    return _encode_any(message)


@dataclass(frozen=True, slots=True)
class Rows:
    """Messages of a list, or of a map with their keys, each encoded when it is requested."""

    of: Sequence[Any] | Mapping[str, Any]

    def __iter__(self) -> Iterator[tuple[str | None, Any]]:
        """Key (None in a list) and JSON-able form."""
        if isinstance(self.of, Mapping):
            return ((str(key), to_wire(row)) for key, row in self.of.items())
        return ((None, to_wire(row)) for row in self.of)


def to_wire_in_rows(message: object) -> Iterator[tuple[str, Any]]:
    """`to_wire` of a dataclass instance a field at a time: name and value, or `Rows` for many messages, so that the forms of ten
    thousand rows need not be there at once."""
    for field in _plan(type(message)).fields:
        value = getattr(message, field.name)
        rows = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
        many = len(rows) > 0 and all(dataclasses.is_dataclass(row) for row in rows)
        yield field.key, Rows(value) if many else field.encode(value)


def from_wire(cls: type[T], data: object, *, where: str = "") -> T:
    """Reads `data` (what a JSON parser returned) as a `cls`.

    `where` prefixes the key in error texts, e.g. `"modelDefinition[3]"`. Raises `InvalidInput`.
    """
    decoded: T = _plan(cls).decode(data, where)
    return decoded


def from_query(cls: type[T], pairs: Iterable[tuple[str, str]]) -> T:
    """Reads query parameters as a `cls`: repeated keys become sequences, dotted keys nested messages.

    Text is all there is in a query, so here `true` and `false` are booleans. Raises `InvalidInput`.
    """
    nested: dict[str, Any] = {}
    for key, value in pairs:
        *parents, last = key.split(".")
        level = nested
        for parent in parents:
            inner = level.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise InvalidInput(f"query parameter {key!r}: {parent!r} is already given as a plain value")
            level = inner
        values = level.setdefault(last, [])
        if not isinstance(values, list):
            raise InvalidInput(f"query parameter {key!r}: {last!r} is already given as a group of parameters")
        values.append(value)
    return from_wire(cls, _plan(cls).from_text(nested))


def to_query(message: object) -> list[tuple[str, str]]:
    """The query parameters of a message; fields at their default are left out, as absent means just that."""
    pairs: list[tuple[str, str]] = []
    for field in _plan(type(message)).fields:
        value = getattr(message, field.name)
        if not field.required and value == field.default:
            continue
        if dataclasses.is_dataclass(value):
            pairs.extend((f"{field.key}.{key}", text) for key, text in to_query(value))
            continue
        sent = field.encode(value)
        pairs.extend((field.key, _query_text(item)) for item in (sent if isinstance(sent, list) else [sent]))
    return pairs


def _query_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def wire_names(cls: type) -> Mapping[str, str]:
    """Field name -> name on the wire, in the order of the fields."""
    return {field.name: field.key for field in _plan(cls).fields}


# ------------------------------------------------------------------------------------------------------------ plans


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    name: str
    key: str
    hint: Any
    encode: Encode
    decode: Decode
    required: bool
    default: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    cls: type
    fields: tuple[_Field, ...]
    accepted: Mapping[str, _Field]

    def encode(self, message: Any) -> dict[str, Any]:
        return {field.key: field.encode(getattr(message, field.name)) for field in self.fields}

    def decode(self, data: object, where: str) -> Any:
        if not isinstance(data, Mapping):
            raise _wrong(where or "the body", data, "a JSON object")
        values: dict[str, Any] = {}
        for key, value in data.items():
            field = self.accepted.get(key)
            if field is None or value is None:
                continue
            if field.name in values:
                raise InvalidInput(f"{_join(where, key)}: given twice, as {field.key!r} and {field.name!r}; send one")
            values[field.name] = field.decode(value, _join(where, key))
        missing = [field.key for field in self.fields if field.required and field.name not in values]
        if missing:
            names = ", ".join(repr(_join(where, key)) for key in missing)
            raise InvalidInput(f"missing {names}: {self.cls.__name__} needs a value there")
        return self.cls(**values)

    def from_text(self, nested: Mapping[str, Any]) -> dict[str, Any]:
        """Gives the lists of texts of a query the shape that `decode` expects."""
        shaped: dict[str, Any] = {}
        for key, value in nested.items():
            field = self.accepted.get(key)
            if field is None:
                continue
            hint = _required_part(field.hint)
            if isinstance(hint, type) and dataclasses.is_dataclass(hint):
                if not isinstance(value, dict):
                    raise InvalidInput(f"query parameter {key!r}: name a part of it, like {key}.<part>=...")
                shaped[key] = _plan(hint).from_text(value)
            elif isinstance(value, dict):
                raise InvalidInput(f"query parameter {key!r}: has no parts, send {key}=...")
            elif typing.get_origin(hint) in (tuple, Sequence):
                shaped[key] = value
            elif hint is bool:
                shaped[key] = {"true": True, "1": True, "false": False, "0": False}.get(value[-1].lower(), value[-1])
            else:
                shaped[key] = value[-1]
        return shaped


_PLANS: dict[type, _Plan] = {}
_BEING_PLANNED: set[type] = set()
"""Types whose plan is in progress. Messages that contain messages of their own kind, such as directories, are looked up on use."""


def _plan(cls: type) -> _Plan:
    plan = _PLANS.get(cls)
    if plan is None:
        _BEING_PLANNED.add(cls)
        try:
            plan = _PLANS[cls] = _make_plan(cls)
        finally:
            _BEING_PLANNED.discard(cls)
    return plan


def _make_plan(cls: type) -> _Plan:
    if not dataclasses.is_dataclass(cls):
        raise TypeError(f"{cls!r} is not a dataclass")
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = []
    accepted: dict[str, _Field] = {}
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        encode, decode = _coder(hint)
        has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        planned = _Field(
            name=field.name,
            key=_spelling(field.name, hint),
            hint=hint,
            encode=encode,
            decode=decode,
            required=not has_default,
            default=field.default,
        )
        fields.append(planned)
        accepted[planned.key] = planned
        accepted[planned.name] = planned
    return _Plan(cls=typing.cast(type, cls), fields=tuple(fields), accepted=accepted)


def _spelling(name: str, hint: Any) -> str:
    if typing.get_origin(hint) is Annotated:
        for note in hint.__metadata__:
            if isinstance(note, Key):
                return note.name
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def _required_part(hint: Any) -> Any:
    """The hint without `Annotated` and without `| None`."""
    if typing.get_origin(hint) is Annotated:
        return _required_part(hint.__origin__)
    if typing.get_origin(hint) in (Union, types.UnionType):
        parts = [part for part in typing.get_args(hint) if part is not type(None)]
        if len(parts) == 1:
            return _required_part(parts[0])
    return hint


# ------------------------------------------------------------------------------------------------- one hint's coders


def _coder(hint: Any) -> tuple[Encode, Decode]:
    origin = typing.get_origin(hint)
    if origin is Annotated:
        if "int64" in hint.__metadata__:
            return str, _decode_int
        return _coder(hint.__origin__)
    if hint is Any or hint is object:
        return _encode_any, lambda value, _: value
    if origin in (Union, types.UnionType):
        return _optional(hint)
    if origin is Literal:
        return _same, _choice(typing.get_args(hint))
    if origin is tuple:
        return _tuple(typing.get_args(hint))
    if origin is Sequence:
        return _tuple((typing.get_args(hint)[0], ...))
    if origin in (Mapping, dict):
        return _mapping(*typing.get_args(hint))
    if isinstance(hint, type):
        return _class_coder(hint)
    raise TypeError(f"the codec has no rule for {hint!r}")


def _class_coder(hint: type) -> tuple[Encode, Decode]:
    if dataclasses.is_dataclass(hint):
        if hint in _BEING_PLANNED:
            return lambda message: _plan(hint).encode(message), lambda data, where: _plan(hint).decode(data, where)
        plan = _plan(hint)
        return plan.encode, plan.decode
    if issubclass(hint, Enum):
        return _encode_enum, _enum(hint)
    simple = _SIMPLE.get(hint)
    if simple is None:
        raise TypeError(f"the codec has no rule for {hint!r}")
    return simple


def _optional(hint: Any) -> tuple[Encode, Decode]:
    parts = [part for part in typing.get_args(hint) if part is not type(None)]
    if len(parts) != 1:
        raise TypeError(f"the codec reads a union only with None, not {hint!r}")
    encode, decode = _coder(parts[0])
    return (lambda value: None if value is None else encode(value)), decode


def _tuple(args: tuple[Any, ...]) -> tuple[Encode, Decode]:
    if len(args) == 2 and args[1] is ...:
        encode, decode = _coder(args[0])

        def decode_all(value: Any, where: str) -> Any:
            if not isinstance(value, list | tuple):
                raise _wrong(where, value, "a list")
            return tuple(decode(_present(item, f"{where}[{i}]"), f"{where}[{i}]") for i, item in enumerate(value))

        return (lambda value: [encode(item) for item in value]), decode_all

    coders = [_coder(arg) for arg in args]

    def decode_each(value: Any, where: str) -> Any:
        if not isinstance(value, list | tuple) or len(value) != len(coders):
            raise _wrong(where, value, f"a list of {len(coders)} items")
        return tuple(coder[1](item, f"{where}[{i}]") for i, (coder, item) in enumerate(zip(coders, value, strict=True)))

    return (lambda value: [coder[0](item) for coder, item in zip(coders, value, strict=True)]), decode_each


def _mapping(key_hint: Any, value_hint: Any) -> tuple[Encode, Decode]:
    """Coder of maps. Their keys are data and keep their spelling; JSON has only text keys."""
    encode, decode = _coder(value_hint)
    decode_key = _decode_int if key_hint is int else _decode_str
    free = value_hint is Any or value_hint is object

    def decode_items(value: Any, where: str) -> Any:
        if not isinstance(value, Mapping):
            raise _wrong(where, value, "a JSON object")
        if free:
            return dict(value)
        items = value.items()
        return {decode_key(k, where): decode(_present(v, _join(where, k)), _join(where, k)) for k, v in items}

    return (lambda value: {str(k): encode(v) for k, v in value.items()}), decode_items


def _enum(hint: type[Enum]) -> Decode:
    by_value = {member.value: member for member in hint}
    pick = _choice(tuple(by_value))
    return lambda value, where: by_value[pick(value, where)]


def _choice(values: tuple[Any, ...]) -> Decode:
    def decode(value: Any, where: str) -> Any:
        if not isinstance(value, str) or value not in values:
            raise _wrong(where, value, "one of " + ", ".join(str(allowed) for allowed in values))
        return value

    return decode


def _present(value: Any, where: str) -> Any:
    if value is None:
        raise _wrong(where, None, "a value: null has no place in a list or map")
    return value


# ------------------------------------------------------------------------------------------------------- plain values


def _same(value: Any) -> Any:
    return value


def _encode_enum(value: Enum) -> Any:
    return value.value


def _encode_float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _encode_time(value: datetime) -> str:
    if value.tzinfo is None:
        raise ValueError(f"a time without a zone cannot be sent: {value!r}")
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _encode_bytes(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _encode_any(value: Any) -> Any:
    if value is None or (isinstance(value, bool | int) and not isinstance(value, Enum)):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return _encode_float(value)
    if isinstance(value, Mapping):
        return {str(key): _encode_any(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encode_any(item) for item in value]
    if isinstance(value, datetime):
        return _encode_time(value)
    if isinstance(value, bytes):
        return _encode_bytes(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plan(type(value)).encode(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON: {value!r}")


def _decode_str(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise _wrong(where, value, "a string")
    return value


def _decode_bool(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(where, value, "true or false")
    return value


_INTEGER = re.compile(r"-?[0-9]{1,20}")


def _decode_int(value: Any, where: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif (isinstance(value, float) and value.is_integer()) or (isinstance(value, str) and _INTEGER.fullmatch(value)):
        number = int(value)
    else:
        raise _wrong(where, value, "an integer")
    if not -(2**63) <= number < 2**64:
        raise _wrong(where, value, "an integer of at most 64 bits")
    return number


_NOT_FINITE = {"nan": math.nan, "infinity": math.inf, "-infinity": -math.inf}


def _decode_float(value: Any, where: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise _wrong(where, value, "a number that fits a double") from None
    if isinstance(value, str):
        special = _NOT_FINITE.get(value.lower())
        if special is not None:
            return special
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isfinite(number):
            return number
    raise _wrong(where, value, "a number, or one of NaN, Infinity, -Infinity")


def _decode_time(value: Any, where: str) -> datetime:
    expected = "a time of RFC 3339 with its zone, like 2024-05-01T12:00:00Z"
    if not isinstance(value, str) or "T" not in value.upper():
        raise _wrong(where, value, expected)
    try:
        moment = datetime.fromisoformat(value.upper())
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise _wrong(where, value, expected)


def _decode_bytes(value: Any, where: str) -> bytes:
    if not isinstance(value, str):
        raise _wrong(where, value, "a string of base64")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise _wrong(where, value, "a string of base64") from None


_SIMPLE: Mapping[type, tuple[Encode, Decode]] = {
    str: (_same, _decode_str),
    bool: (_same, _decode_bool),
    int: (_same, _decode_int),
    float: (_encode_float, _decode_float),
    datetime: (_encode_time, _decode_time),
    bytes: (_encode_bytes, _decode_bytes),
}


# -------------------------------------------------------------------------------------------------------------- errors


def _join(where: str, key: object) -> str:
    return f"{where}.{key}" if where else str(key)


def _wrong(where: str, value: object, expected: str) -> InvalidInput:
    shown = repr(value)
    if len(shown) > 80:
        shown = shown[:77] + "..."
    return InvalidInput(f"{where}: {shown} is not right here; send {expected}")
