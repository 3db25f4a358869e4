"""Configurations as they may be shown: every secret replaced by `MASK`, or left out.

The marks of the models (`SecretMark`) define the secrets, so that a new key is covered when it is declared. In every text, the
password of a URL (`scheme://user:password@host`) is replaced too.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pydantic import BaseModel, RootModel

from resolute.config.base import MASK, ConfigModel, SecretMark
from resolute.config.errors import InvalidConfig, Location, Problem, is_secret_key
from resolute.config.providers import RegisteredModels
from resolute.config.secret_names import BUILT_IN_NAMES, SecretNames

_URL_PASSWORD = re.compile(r"(://[^\s:/@]{0,200}:|https?://(?=[^\s:/@]{1,1000}@))[^\s/@]{1,1000}(?=@)")
_MASKED_URL = re.compile(rf"://[^\s/@]{{0,201}}{re.escape(MASK)}@")


@dataclass(frozen=True, slots=True)
class Place:
    """The secrets in a value: those that `mark` names, and those inside its keys and entries."""

    mark: SecretMark | None = None
    keys: Mapping[str, Place] = field(default_factory=dict)
    each: Place | None = None
    """The place of every entry of a list, and of every key that `keys` does not name."""

    def at(self, key: str) -> Place | None:
        """The place of the value of a key."""
        return self.keys.get(key, self.each)


# -------------------------------------------------------------------------------------------------- places of secrets


@cache
def secrets_of(model: type[BaseModel]) -> Place:
    """The places of secrets in the configurations that a model describes."""
    if issubclass(model, RootModel):
        return Place()  # hyperparameters, whose groups contain groups
    keys = {}
    for name, one in model.model_fields.items():
        found = [*_places(one.annotation), *(Place(mark) for mark in one.metadata if isinstance(mark, SecretMark))]
        if found:
            keys[one.alias or name] = _joined(found)
    if issubclass(model, ConfigModel):
        # A key that is accepted and forgotten may have any value, and stays in the text that was submitted.
        keys.update(dict.fromkeys(model.dropped, Place(SecretMark.FREE)))
    return Place(keys=keys)


def _places(annotation: Any) -> Iterator[Place]:
    for mark in getattr(annotation, "__metadata__", ()):
        if isinstance(mark, SecretMark):
            yield Place(mark)
        if isinstance(mark, RegisteredModels):
            yield from (place for model in mark.members() for place in _places(model))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        inner = secrets_of(annotation)
        if inner.keys:
            yield inner
        return
    origin = typing.get_origin(annotation)
    for argument in typing.get_args(annotation):
        for inner in _places(argument):
            yield Place(each=inner) if origin in (tuple, list, dict) else inner


def _joined(found: Iterable[Place]) -> Place:
    """One place for all members of a union."""
    mark: SecretMark | None = None
    each: Place | None = None
    keys: dict[str, Place] = {}
    for one in found:
        mark = mark or one.mark
        each = one.each if each is None else each if one.each is None else _joined((each, one.each))
        for name, inner in one.keys.items():
            keys[name] = _joined((keys[name], inner)) if name in keys else inner
    return Place(mark, keys, each)


# ------------------------------------------------------------------------------------------------------------ showing


def masked(model: BaseModel, names: SecretNames = BUILT_IN_NAMES) -> dict[str, Any]:
    """A complete configuration of master or agent as JSON values, with every secret replaced by `MASK`."""
    shown: dict[str, Any] = _Showing(names).value(model.model_dump(mode="json", by_alias=True), secrets_of(type(model)))
    return shown


def masked_values(
    config: Mapping[str, Any], place: Place, names: SecretNames = BUILT_IN_NAMES, *, leave_out: bool = True
) -> dict[str, Any]:
    """A configuration of JSON values, complete or as submitted, as it may be shown. With `leave_out`, keys that are marked so
    are absent."""
    shown: dict[str, Any] = _Showing(names, leave_out=leave_out).value(config, place)
    return shown


def without_url_password(text: str) -> str:
    """The text with the password of every URL in it replaced; of a `http` URL the user as well where it is alone."""
    return _URL_PASSWORD.sub(rf"\g<1>{MASK}", text) if "@" in text and "://" in text else text


class _Showing:
    def __init__(self, names: SecretNames, *, leave_out: bool = False) -> None:
        self._names = names
        self._leave_out = leave_out
        self._marked: Mapping[SecretMark, Callable[[Any], Any]] = {
            SecretMark.STARRED: _starred,
            SecretMark.LEFT_OUT: _starred,
            SecretMark.VARIABLES: self.variables,
            SecretMark.DATA: self._data,
            SecretMark.FREE: self._free,
        }

    def value(self, value: Any, place: Place | None) -> Any:
        if place is not None and place.mark is not None:
            return self._marked[place.mark](value)
        if isinstance(value, Mapping):
            return {
                key: self.value(inner, place.at(key) if place else None)
                for key, inner in value.items()
                if not (self._leave_out and inner and _is_left_out(place, key))
            }
        if isinstance(value, (list, tuple)):
            each = place.each if place else None
            return [self.value(inner, each) for inner in value]
        return without_url_password(value) if isinstance(value, str) else value

    def variables(self, value: Any) -> Any:
        """A list of `NAME=VALUE`, a mapping of names to values, or either of them by kind of device."""
        if isinstance(value, str):
            name, sign, assigned = value.partition("=")
            return f"{name}={self._variable(name, assigned)}" if sign else _starred(value)
        if isinstance(value, Mapping):
            return {
                key: self.variables(inner) if isinstance(inner, (Mapping, list)) else self._variable(key, inner)
                for key, inner in value.items()
            }
        return [self.variables(inner) for inner in value] if isinstance(value, list) else value

    def _variable(self, name: str, value: Any) -> Any:
        return _starred(value) if name in self._names else self.value(value, None)

    def _data(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return self.value(value, None)
        return {key: _secrets(inner) if key == "secrets" else self.value(inner, None) for key, inner in value.items()}

    def _free(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._free(inner) for inner in value]
        if not isinstance(value, Mapping):
            return self.value(value, None)
        name = value.get("name")
        is_variable = isinstance(name, str) and name in self._names
        return {
            key: _starred(inner) if self._is_secret(key) or (is_variable and key == "value") else self._free(inner)
            for key, inner in value.items()
        }

    def _is_secret(self, key: str) -> bool:
        return is_secret_key(key) or key in self._names


def _is_left_out(place: Place | None, key: str) -> bool:
    found = place.at(key) if place else None
    return found is not None and found.mark is SecretMark.LEFT_OUT


def _starred(value: Any) -> Any:
    """Whether the value contains no secret because it is empty."""
    return value if value is None or value == "" or isinstance(value, bool) else MASK


def _secrets(value: Any) -> Any:
    return dict.fromkeys(value, MASK) if isinstance(value, Mapping) else _starred(value)


# ------------------------------------------------------------------------------------------------- what was sent back


def masks_in(value: Any, path: Location = ()) -> Iterator[tuple[Location, str]]:
    """Where a configuration has what was shown instead of a secret."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from masks_in(inner, (*path, str(key)))
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            yield from masks_in(inner, (*path, index))
    elif isinstance(value, str) and MASK in value and _is_mask(value, path):
        yield path, value


def _is_mask(text: str, path: Location) -> bool:
    return text == MASK or _MASKED_URL.search(text) is not None or "environment_variables" in path


def refuse_masks(
    config: Mapping[str, Any], subject: str, *, advice: str = "write the value, or remove the key"
) -> None:
    """Raises InvalidConfig that names each mask."""
    problems = [
        Problem(path=path, message=f"is {MASK}, which is shown instead of a secret{_variable_named(text)}; {advice}")
        for path, text in masks_in(config)
    ]
    if problems:
        raise InvalidConfig(subject, problems)


def _variable_named(text: str) -> str:
    name, sign, _ = text.partition("=")
    return f" (variable {name})" if sign else ""
