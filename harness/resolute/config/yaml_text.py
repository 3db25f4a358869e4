"""YAML text to JSON values: one mapping, no duplicate keys, no surprises of YAML 1.1.

Scalars follow the YAML 1.2 core schema, so `1e-3` is a number, `no` and `2024-01-01` are strings, `0123` is 123.
Keys become strings, as in JSON. Values that JSON cannot hold are refused with their line and column.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import yaml

from resolute.config.errors import render_path
from resolute.errors import InvalidInput

MAX_VALUES = 200_000
"""Values after aliases are expanded: a short text must not become an unbounded value."""

MAX_DEPTH = 100
"""Nesting of lists and mappings."""

MAX_INDICATORS = 2_000
"""A text with more of `INDICATORS` is not parsed by the C parser, which takes a stack frame per level of nesting and would overflow
the stack."""
INDICATORS = "[{-?:"
"""Each level of nesting needs one of these."""

JsonObject = dict[str, Any]


class _Constructor(yaml.constructor.SafeConstructor):
    """No duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key must be a plain value, not a list or a mapping", key_node.start_mark
                )
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key '{key_node.value}' occurs twice; keep one of them", key_node.start_mark
                )
            seen.add(key_node.value)
        return super().construct_mapping(node, deep=deep)


def _read_integer(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    return int(text, 0) if text[:2] in ("0x", "0o") else int(text, 10)


def _read_float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    text = str(loader.construct_scalar(node))
    if text.lstrip("+-").lower() in (".inf", ".nan") or not math.isfinite(float(text)):
        raise yaml.constructor.ConstructorError(
            None, None, "infinities and NaN are not allowed; write a finite number", node.start_mark
        )
    return float(text)


class _Loader(_Constructor, yaml.SafeLoader):
    """A safe loader with the scalars of YAML 1.2 and no duplicate keys. Users see its errors."""


class _FastLoader(_Constructor, yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]
    """`_Loader` with libyaml's parser, where it is installed: several times as fast."""


_LOADERS: tuple[Any, ...] = (_Loader, _FastLoader)
for _loader in _LOADERS:
    _loader.yaml_implicit_resolvers = {}
    _loader.add_constructor("tag:yaml.org,2002:int", _read_integer)
    _loader.add_constructor("tag:yaml.org,2002:float", _read_float)


class _Dumper(yaml.SafeDumper):
    """Quotes what either version of YAML would not read as a text."""


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("merge", r"<<", "<"),
):
    for _loader in (*_LOADERS, _Dumper):
        _loader.add_implicit_resolver(
            f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), ["" if c == "\0" else c for c in _first]
        )


def load_yaml(text: str | bytes, *, what: str = "the configuration") -> JsonObject:
    """Read one YAML mapping. An empty text is an empty mapping. Raises InvalidInput with line and column."""
    value = load_yaml_value(text, what=what)
    if value is None:
        return {}
    if not isinstance(value, dict):
        kind = "a list" if isinstance(value, list) else "a single value"
        raise InvalidInput(f"{what} must be a mapping of keys to values, but is {kind}")
    return value


def dump_yaml(value: JsonObject) -> str:
    """A mapping of JSON values as YAML text that `load_yaml` reads as the same."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def load_yaml_value(text: str | bytes, *, what: str = "the value") -> Any:
    """Read one YAML value of any kind as JSON values."""
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InvalidInput(f"{what} is not UTF-8 text: byte {error.start} cannot be read") from None
    try:
        value = _load(text)
    except yaml.YAMLError as error:
        raise InvalidInput(f"{what} is not readable as YAML: {_place(error)}") from None
    except ValueError:  # its text has the value, which may be a secret
        advice = "a tag such as !!int precedes a value of another type; remove it"
        raise InvalidInput(f"{what} is not readable as YAML: {advice}") from None
    except RecursionError:
        raise InvalidInput(f"{what} is nested too deeply: at most {MAX_DEPTH} levels are allowed") from None
    return as_json(value, what=what)


def _load(text: str) -> Any:
    if sum(map(text.count, INDICATORS)) <= MAX_INDICATORS:
        try:
            return yaml.load(text, Loader=_FastLoader)
        except (yaml.YAMLError, ValueError):
            pass  # the other loader has the words for it
    return yaml.load(text, Loader=_Loader)


def _place(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or str(error).split("\n", 1)[0]
    return problem if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: {problem}"


def as_json(value: object, *, what: str = "the configuration") -> Any:
    """A fresh copy of `value` made of JSON values only. Raises InvalidInput for what JSON cannot hold."""
    return _Copying(what).copy(value, ())


class _Copying:
    """A class, because a function that calls itself from within another refers to itself, and only garbage collection frees it."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._values_left = MAX_VALUES

    def copy(self, one: object, path: tuple[str | int, ...]) -> Any:
        what = self._what
        self._values_left -= 1
        if self._values_left < 0:
            raise InvalidInput(f"{what} is too large: more than {MAX_VALUES} values (are aliases nested?)")
        if len(path) > MAX_DEPTH:
            raise InvalidInput(f"{what} is nested too deeply: at most {MAX_DEPTH} levels are allowed")
        if isinstance(one, Mapping):
            return {_text(_key(key), path, what): self.copy(inner, (*path, _key(key))) for key, inner in one.items()}
        if isinstance(one, (list, tuple)):
            return [self.copy(inner, (*path, index)) for index, inner in enumerate(one)]
        if isinstance(one, str):
            return _text(one, path, what)
        if one is None or isinstance(one, (bool, int)):
            return one
        if isinstance(one, float):
            if math.isfinite(one):
                return one
            raise InvalidInput(f"{what}: {render_path(path)}: must be a finite number (value {one})")
        raise InvalidInput(f"{what}: {render_path(path)}: a {type(one).__name__} is not a value of JSON or YAML")


def _text(text: str, path: tuple[str | int, ...], what: str) -> str:
    """Text that can be stored and sent: JSON escapes a character as two halves, which YAML does not join."""
    if text.isascii() and "\0" not in text:
        return text
    try:
        whole = text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise InvalidInput(f"{what}: {render_path(path)}: has half of a character; write it whole") from None
    if "\0" in whole:
        raise InvalidInput(f"{what}: {render_path(path)}: must not contain the character NUL; remove it")
    return whole


def _key(key: object) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return "null" if key is None else str(key)
