"""What is wrong with a configuration, and in which lines: the errors of the API, each found in the text that was sent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import yaml

_KEY = re.compile(r"^<config>\.(?P<path>[^:\s]+): (?P<text>.*)$", re.DOTALL)
_PLACE = re.compile(r"line (\d+), column \d+")
_PLAIN = re.compile(r"^(?P<path>[a-z_]+(?:\.[\w-]+)*): ")
_STEP = re.compile(r"[^.\[\]]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """`line` counts from 1; None where the text has no place for it, as a key that is missing at the top."""

    text: str
    line: int | None = None
    key: str = ""


def problems_of(error: str, text: str) -> Sequence[Problem]:
    """The problems in a refusal of the configuration `text`, which may name several keys."""
    root = _composed(text)
    return tuple(_problem(each, root) for each in _split(error))


def _split(error: str) -> Iterator[str]:
    """A refusal of several keys is a heading with a line for each."""
    _, *rest = error.split("\n  <config>.")
    if not rest:
        yield error
        return
    yield from (f"<config>.{each}".rstrip() for each in rest)


def _problem(error: str, root: yaml.Node | None) -> Problem:
    if place := _PLACE.search(error):
        return Problem(text=error, line=int(place[1]))
    if found := _KEY.match(error):
        return Problem(text=found["text"], line=_line(root, found["path"]), key=found["path"])
    if plain := _PLAIN.match(error):
        return Problem(text=error[plain.end() :], line=_line(root, plain["path"]), key=plain["path"])
    return Problem(text=error)


def _composed(text: str) -> yaml.Node | None:
    try:
        found = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        return None
    return found if isinstance(found, yaml.Node) else None


def _line(root: yaml.Node | None, path: str) -> int | None:
    """Line of the key at `path`, or of its nearest parent in the text; None if the text has neither."""
    node, line = root, None
    for step in _STEP.findall(path):
        found = _below(node, step)
        if found is None:
            break
        line, node = found
    return line


def _below(node: yaml.Node | None, step: str) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == step:
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and step.isdigit() and int(step) < len(node.value):
        value = node.value[int(step)]
        return value.start_mark.line + 1, value
    return None
