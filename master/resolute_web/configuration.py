"""A configuration as lines, with the values that its owner has set distinguished from defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from resolute.config import load_yaml
from resolute.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Line:
    """One line of YAML; `own`: the owner's text says it."""

    text: str
    own: bool


def lines_of(config: Mapping[str, Any], original: str) -> Sequence[Line]:
    """`config` is complete, `original` the text that was sent."""
    try:
        sent: Any = load_yaml(original, what="the original configuration")
    except InvalidInput:
        sent = {}
    return tuple(_mapping(config, sent, 0))


def _mapping(values: Mapping[str, Any], sent: Any, depth: int) -> Iterator[Line]:
    indent = "  " * depth
    for key in sorted(values, key=str):
        value = values[key]
        own = isinstance(sent, Mapping) and key in sent
        below = sent[key] if isinstance(sent, Mapping) and own else None
        name = yaml.safe_dump(key, allow_unicode=True).splitlines()[0]
        if isinstance(value, Mapping) and value:
            yield Line(f"{indent}{name}:", own)
            yield from _mapping(value, below, depth + 1)
        elif isinstance(value, list | tuple) and value:
            yield Line(f"{indent}{name}:", own)
            text = yaml.safe_dump(list(value), allow_unicode=True, sort_keys=True, width=1000)
            yield from (Line(f"{indent}  {each}", own) for each in text.splitlines())
        else:
            text = yaml.safe_dump({"v": value}, allow_unicode=True, width=1000).removeprefix("v:").rstrip("\n")
            first, *rest = text.split("\n")
            yield Line(f"{indent}{name}:{first}", own)
            yield from (Line(f"{indent}{each}", own) for each in rest)
