"""What all configuration models share: frozen, no unknown keys, null is the same as absent, strict scalars."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    SerializerFunctionWrapHandler,
    Strict,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from resolute.config.errors import MISSING_TAG, RULE, UNKNOWN_KEY, nearest, show_value, suggestion, tag_of

MASK = "********"


class ConfigModel(BaseModel):
    """Base of all configuration models.

    `hints` are messages for names that are not keys (any more) but often written. `omitted_when_null` leaves
    keys out of the serialised form while they are null. `dropped` keys are accepted with any value and ignored.
    """

    # Built when first used: a program that starts reads one of the many configurations, and often none.
    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=(), defer_build=True
    )
    hints: ClassVar[Mapping[str, str]] = {}
    omitted_when_null: ClassVar[frozenset[str]] = frozenset()
    keeps_null: ClassVar[frozenset[str]] = frozenset()
    dropped: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Apply the null rule, and report each unknown key with the nearest existing name."""
        if isinstance(data, Mapping):
            data = {
                key: value
                for key, value in data.items()
                if (value is not None or key in cls.keeps_null) and key not in cls.dropped
            }
        try:
            return handler(data)
        except ValidationError as error:
            raise ValidationError.from_exception_data(
                cls.__name__, [cls._explained(details) for details in error.errors(include_url=False)]
            ) from None

    @classmethod
    def _explained(cls, details: Any) -> InitErrorDetails:
        kind, location, context = details["type"], details["loc"], details.get("ctx")
        if kind == "extra_forbidden" and len(location) == 1:
            key = str(location[0])
            hint = cls.hints.get(key) or suggestion(key, cls.key_names())
            custom = PydanticCustomError(UNKNOWN_KEY, "is not a known key; {hint}", {"hint": hint})
            return InitErrorDetails(type=custom, loc=location, input=details["input"])
        if kind in (UNKNOWN_KEY, MISSING_TAG, RULE):
            custom = PydanticCustomError(kind, "{text}", {**(context or {}), "text": details["msg"]})
            return InitErrorDetails(type=custom, loc=location, input=details["input"])
        return InitErrorDetails(type=kind, loc=location, input=details["input"], ctx=context or {})

    @model_serializer(mode="wrap")
    def _write(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        return {
            key: value for key, value in written.items() if not (value is None and key in type(self).omitted_when_null)
        }

    @classmethod
    def key_names(cls) -> tuple[str, ...]:
        """The keys that may be written here."""
        return tuple(sorted(field.alias or name for name, field in cls.model_fields.items()))


def broken_rule(text: str) -> PydanticCustomError:
    """A configuration error at the place of the value that is being read: "what is wrong; what to do"."""
    return PydanticCustomError(RULE, "{text}", {"text": text})


def broken_at(*found: tuple[tuple[str | int, ...], str, object]) -> ValidationError:
    """Configuration errors below the place that is being read: (path, text, value) of each."""
    return ValidationError.from_exception_data(
        "configuration",
        [InitErrorDetails(type=broken_rule(text), loc=path, input=value) for path, text, value in found],
    )


class TaggedUnion:
    """Picks the member of a union by the value of the key `key`, so that errors are those of one member.

    `members` are the known tags, `refused` the tags that are known but not possible, each with its reason.
    A union is written `Annotated[A | B, Discriminator(UNION.member), BeforeValidator(UNION.check)]`, each member
    tagged with `Tag(tag_of(...))`.
    """

    def __init__(self, key: str, members: tuple[str, ...], refused: Mapping[str, str] | None = None) -> None:
        self.key = key
        self.members = members
        self._refused = refused or {}

    def member(self, value: Any) -> str:
        """The tag's mark in the union; empty where `check` has refused the value."""
        name = value.get(self.key) if isinstance(value, Mapping) else getattr(value, self.key, None)
        return tag_of(str(name))

    def check(self, value: Any) -> Any:
        """Refuse a value without a tag or with one that is not known, at the path of the tag."""
        if isinstance(value, BaseModel):
            return value
        if not isinstance(value, Mapping):
            raise broken_rule(f"must be a mapping with the key '{self.key}'")
        name = value.get(self.key)
        if name is None:
            raise self._wrong(f"is a required property; use one of: {', '.join(self.members)}")
        if name in self.members:
            return value
        if not isinstance(name, str):
            raise self._wrong(f"must be a string (value {show_value(name)}); use one of: {', '.join(self.members)}")
        if name in self._refused:
            raise self._wrong(f"{self._refused[name]} (value {show_value(name)})")
        match = nearest(name, self.members)
        then = f"did you mean '{match}'?" if match else f"use one of: {', '.join(self.members)}"
        raise self._wrong(f"is not known (value {show_value(name)}); {then}")

    def _wrong(self, text: str) -> PydanticCustomError:
        return PydanticCustomError(MISSING_TAG, "{text}", {"key": self.key, "text": text})


LARGEST_INTEGER = 2**63 - 1
"""Range of integers in databases and in the contract's numbers."""


def _integral(value: object) -> object:
    """Reads 3.0 as an integer, because JSON has one kind of number."""
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    if isinstance(whole, int) and abs(whole) > LARGEST_INTEGER:
        raise broken_rule(f"is too large; write a number up to {LARGEST_INTEGER}")
    return whole


class SecretMark(Enum):
    """Marks a field whose value, or part of it, is never shown (`resolute.config.masking`)."""

    STARRED = "starred"
    """The whole value is replaced by `MASK`."""
    LEFT_OUT = "left out"
    """As `STARRED`, and the key is absent where clients read the configuration of an experiment."""
    VARIABLES = "variables"
    """Environment variables: the values of those whose names match a pattern."""
    DATA = "data"
    """Free-form: what is under the key `secrets`."""
    FREE = "free"
    """Free-form, of another program: the values of keys and variables with the name of a secret."""


Integer = Annotated[int, Strict(), BeforeValidator(_integral)]
Count = Annotated[Integer, Field(ge=0)]
PositiveInteger = Annotated[Integer, Field(ge=1)]
Port = Annotated[Integer, Field(ge=1, le=65535)]
Number = Annotated[float, Strict()]
Text = Annotated[str, Strict()]
NonEmptyText = Annotated[Text, Field(min_length=1)]
Flag = Annotated[bool, Strict()]
Secret = Annotated[Text, SecretMark.STARRED]
StorageSecret = Annotated[Text, SecretMark.LEFT_OUT]
FreeMap = dict[str, Any]
