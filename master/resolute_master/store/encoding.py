"""Values of the domain <-> canonical JSON bytes.

Canonical: equal values give equal bytes (keys sorted, floats at float-typed places written as floats, times in UTC),
because the engine chains digests over them and a replay must come to the same ones. Numbers that JSON cannot spell are
kept as the strings `NaN`, `Infinity` and `-Infinity`: where a field is typed as a number they come back as numbers,
inside free-form maps they come back as those strings, which is how the REST contract shows them.

Free-form maps hold JSON: string keys, lists, no tuples. Other keys become strings, other sequences lists. Half of a
surrogate pair, which no UTF-8 file or database can hold, becomes a question mark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
from msgspec import inspect as shapes

from resolute.errors import ResoluteError
from resolute_master.domain.change import KIND_OF, KINDS, Change, Entity
from resolute_master.domain.effects import EFFECT_TYPES, Effect
from resolute_master.domain.json_text import canonical, encode_plain, number_out, sorted_writer

T = TypeVar("T")

Rewrite = Callable[[Any], Any]
Check = Callable[[Any], bool]
Leaves = Mapping[type[shapes.Type], Rewrite]

NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""How JSON text spells the numbers it has no notation for."""


class UnreadableValue(ResoluteError):
    """Stored bytes are not what this version writes: a damaged store, or one of another version."""


# ---------------------------------------------------------------------------------------------- entities and effects


def encode_entity(entity: Entity) -> bytes:
    """The entity's canonical JSON object."""
    return encode(entity)


def with_bodies(change: Change) -> Iterator[tuple[Entity, bytes]]:
    """Every entity that the change writes, with its canonical JSON object."""
    return zip(change.upserts, change.bodies or map(encode_entity, change.upserts), strict=True)


def decode_entity(kind: str, body: bytes | str) -> Entity:
    """The entity of `kind` (a key of `domain.change.KINDS`). Raises `UnreadableValue`."""
    return decode(KINDS[kind], body)


def decode_entities(kind: str, bodies: Iterable[bytes | str]) -> list[Entity]:
    """The entities of one kind, in the order of their bodies. Raises `UnreadableValue`."""
    type_ = KINDS[kind]
    decoder, found = _decoder(type_), list[Entity]()
    for body in bodies:
        try:
            found.append(decoder.decode(body))
        except msgspec.DecodeError:
            found.append(decode(type_, body))
    return found


def kind_of(entity: Entity) -> str:
    """The name of the entity's kind in `domain.change.KINDS`."""
    return KIND_OF[type(entity)]


def encode_effect(effect: Effect) -> bytes:
    """`{"type": <class name>, <fields>}`."""
    return encode(effect)


def decode_effect(body: bytes | str) -> Effect:
    """Raises `UnreadableValue`, also for a type that this version does not know."""
    try:
        effect: Effect = _decoder(Effect).decode(body)
        return effect
    except msgspec.DecodeError as error:
        known = ", ".join(sorted(type_.__name__ for type_ in EFFECT_TYPES))
        raise UnreadableValue(f"a stored effect cannot be read: {error}; this version knows {known}") from error


# ------------------------------------------------------------------------------------------------- structs, dataclasses


def encode(value: Any) -> bytes:
    """The canonical JSON of a struct or dataclass (nested ones, enums, times, mappings and sequences included).

    Raises `TypeError` for a value that has no form in JSON: an error of the program, not of its input.
    """
    return encode_telling(value)[0]


def encode_telling(value: Any) -> tuple[bytes, bool]:
    """`encode`, and whether the value was written as it is: else what is decoded of it may be another one."""
    settled = _settled(type(value))(value)
    try:
        if settled:
            return _direct_writer.encode(value), True
        return sorted_writer.encode(_builtins(value, _written(type(value)))), False
    except UnicodeEncodeError:  # half of a surrogate pair somewhere
        return sorted_writer.encode(decode_plain(encode_plain(to_plain(value)))), False


def decode(type_: type[T], body: bytes | str) -> T:
    """The reverse of `encode`. Raises `UnreadableValue`."""
    try:
        decoded: T = _decoder(type_).decode(body)
        return decoded
    except msgspec.DecodeError:
        # Either damage, or a number that JSON cannot spell at a number's place; both are rare.
        return from_plain(type_, decode_plain(body))


def to_plain(value: Any) -> Any:
    """Dicts, lists, strings, numbers, booleans and None: what `encode` writes, before it is text. Raises as `encode`."""
    return _builtins(value, _outward(type(value)))


def from_plain(type_: type[T], plain: Any) -> T:
    """The reverse of `to_plain`. Raises `UnreadableValue`."""
    rewrite = _inward(type_)
    try:
        return msgspec.convert(plain if rewrite is None else rewrite(plain), type_)
    except (msgspec.ValidationError, AttributeError, TypeError) as error:
        raise UnreadableValue(f"a stored {type_.__name__} cannot be read: {error}") from error


def encode_free(values: Mapping[str, Any]) -> str:
    """A free-form map as JSON text that decodes to what `encode` of it decodes to; several times as fast, not canonical."""
    try:
        text = _free_writer.encode(values)
    except (TypeError, UnicodeEncodeError):
        return encode(values).decode()
    # Numbers that JSON cannot spell came out as nulls here.
    return text.decode() if b"null" not in text else encode(values).decode()


_free_writer = msgspec.json.Encoder(enc_hook=lambda value: _plain_mapping(value))


def decode_plain(body: bytes | str) -> Any:
    """Any JSON text as builtins. Raises `UnreadableValue`."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise UnreadableValue(f"a stored value is not JSON: {error}") from error


_direct_writer = msgspec.json.Encoder(order="sorted", enc_hook=lambda value: _plain_mapping(value))
"""Encodes a value in which nothing has to be rewritten, in a third of the time of a conversion through builtins."""


def _builtins(value: Any, rewrite: Rewrite | None) -> Any:
    plain = msgspec.to_builtins(value, str_keys=True, order="deterministic", enc_hook=_plain_mapping)
    return plain if rewrite is None else rewrite(plain)


def _free_out(plain: Any) -> Any:
    return msgspec.Raw(canonical(plain))


_decoder: Callable[[Any], msgspec.json.Decoder[Any]] = cache(msgspec.json.Decoder)


def _plain_mapping(value: Any) -> Any:
    """Converts values that msgspec cannot encode: read-only views of dicts become dicts, and raw JSON is decoded."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, msgspec.Raw):
        return decode_plain(bytes(value))
    raise TypeError(f"a value of type {type(value).__name__} has no form in JSON")


# ---------------------------------------------------------------------------------------- what its type alone decides


def _number_in(value: Any) -> Any:
    return NOT_FINITE.get(value, value) if isinstance(value, str) else value


def _time_out(value: Any) -> Any:
    """UTC, so that the same moment is written alike whatever zone it was given in."""
    if value.endswith("Z"):
        return value
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise TypeError(f"the time {value} has no zone; give times in UTC")
    return msgspec.to_builtins(moment.astimezone(UTC))


_outward: Callable[[Any], Rewrite | None] = cache(lambda type_: _rewriter(type_, _OUTWARD))
"""What `to_plain` still has to do for a type, worked out once; None for nothing."""

_written: Callable[[Any], Rewrite | None] = cache(lambda type_: _rewriter(type_, _WRITTEN))
"""The same for what becomes text at once."""

_inward: Callable[[Any], Rewrite | None] = cache(lambda type_: _rewriter(type_, _INWARD))

_OUTWARD: Leaves = {shapes.FloatType: number_out, shapes.DateTimeType: _time_out}
_WRITTEN: Leaves = {**_OUTWARD, shapes.AnyType: _free_out}
_INWARD: Leaves = {shapes.FloatType: _number_in, shapes.RawType: _free_out}


def _rewriter(type_: Any, leaves: Leaves) -> Rewrite | None:
    """Applies `leaves` to what sits at places of their type; None when a value of `type_` has no such place."""
    try:
        shape = shapes.type_info(type_)
    except TypeError:
        return None
    return _shape_rewriter(shape, leaves)


@dataclass(frozen=True, slots=True)
class _Fields:
    """Rewrites the named entries of a dict in place: the dict was made for this encoding alone."""

    rewrites: tuple[tuple[str, Rewrite], ...]

    def __call__(self, plain: Any) -> Any:
        if isinstance(plain, dict):
            for name, rewrite in self.rewrites:
                if plain.get(name) is not None:
                    plain[name] = rewrite(plain[name])
        return plain


def _shape_rewriter(shape: shapes.Type, leaves: Leaves) -> Rewrite | None:
    if type(shape) in leaves:
        return leaves[type(shape)]
    if isinstance(shape, shapes.DataclassType | shapes.StructType):
        found = ((field.encode_name, _shape_rewriter(field.type, leaves)) for field in shape.fields)
        rewrites = tuple((name, rewrite) for name, rewrite in found if rewrite is not None)
        return _Fields(rewrites) if rewrites else None
    if isinstance(shape, shapes.UnionType):
        # Our unions are "this or None"; None never reaches a rewrite.
        parts = [rewrite for part in shape.types if (rewrite := _shape_rewriter(part, leaves)) is not None]
        return parts[0] if parts else None
    if isinstance(shape, (shapes.VarTupleType, shapes.ListType)):
        return _each(_shape_rewriter(shape.item_type, leaves))
    if isinstance(shape, _OTHER_CONTAINERS):
        return leaves.get(shapes.AnyType)
    if isinstance(shape, shapes.DictType):
        if type(shape.value_type) is shapes.AnyType:
            return leaves.get(shapes.AnyType)  # at once, not value by value
        return _each_value(_shape_rewriter(shape.value_type, leaves))
    return None


_OTHER_CONTAINERS = (
    shapes.TupleType,
    shapes.SetType,
    shapes.FrozenSetType,
    shapes.NamedTupleType,
    shapes.TypedDictType,
    shapes.CustomType,
)
"""No index uses the positions in these."""


def _each(rewrite: Rewrite | None) -> Rewrite | None:
    if rewrite is None:
        return None
    return lambda plain: [item if item is None else rewrite(item) for item in plain]


def _each_value(rewrite: Rewrite | None) -> Rewrite | None:
    if rewrite is None:
        return None
    return lambda plain: {key: item if item is None else rewrite(item) for key, item in plain.items()}


# ------------------------------------------------------------------------------- whether a value can be written as it is

_settled: Callable[[Any], Check] = cache(lambda type_: _checker(type_))
"""For a type, whether a value of it is written canonically without any of the rewrites: nearly all are."""


def _checker(type_: Any) -> Check:
    try:
        shape = shapes.type_info(type_)
    except TypeError:
        return lambda _value: False
    return _shape_checker(shape) or (lambda _value: True)


def _shape_checker(shape: shapes.Type) -> Check | None:
    """Looks at the same places as `_shape_rewriter`; None when there are none."""
    if isinstance(shape, shapes.DataclassType | shapes.StructType):
        found = ((field.name, _shape_checker(field.type)) for field in shape.fields)
        return _all_of([(name, check) for name, check in found if check is not None])
    if isinstance(shape, shapes.UnionType):
        parts = [check for part in shape.types if (check := _shape_checker(part)) is not None]
        return parts[0] if parts else None
    if isinstance(shape, (shapes.VarTupleType, shapes.ListType)):
        item = _shape_checker(shape.item_type)
        return None if item is None else lambda values: all(each is None or item(each) for each in values)
    if isinstance(shape, shapes.DictType) and type(shape.key_type) is shapes.StrType:
        of_values = _shape_checker(shape.value_type)
        if of_values is None or of_values is _is_plain:
            return of_values
        return lambda values: all(each is None or of_values(each) for each in values.values())
    if isinstance(shape, (shapes.DictType, *_OTHER_CONTAINERS)):
        return _is_plain
    return _CHECKS.get(type(shape))


def _all_of(checks: list[tuple[str, Check]]) -> Check | None:
    if not checks:
        return None
    parts = [(attrgetter(name), check) for name, check in checks]

    def settled(value: Any) -> bool:
        for get, check in parts:
            part = get(value)
            if part is not None and not check(part):
                return False
        return True

    return settled


def _is_plain(value: Any) -> bool:
    """Nothing in it was left out as a number that JSON cannot spell."""
    try:
        return not value or b"null" not in _direct_writer.encode(value) or _can_be_spelled(value)
    except TypeError:
        return False  # other keys than words


def _can_be_spelled(value: Any) -> bool:
    """It is made of JSON's own values, so that every null in its text is a None."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, Mapping):
        return all(map(_can_be_spelled, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_can_be_spelled, value))
    return value is None or isinstance(value, (str, int))


_CHECKS: Mapping[type[shapes.Type], Check] = {
    shapes.FloatType: lambda value: type(value) is float and math.isfinite(value),
    shapes.DateTimeType: lambda value: value.tzinfo is UTC,
    shapes.AnyType: _is_plain,
}
