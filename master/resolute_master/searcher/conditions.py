"""Hyperparameters that exist only with certain values of others: the key `when` of a specification.

`when` names choices by their path from the top (`optimizer.name`), each with the values with which the hyperparameter exists. A
hyperparameter that depends on an absent choice is absent too. Absent hyperparameters are missing from the point.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Path = tuple[str, ...]
Condition = Mapping[str, Sequence[Any]]
"""The condition of one hyperparameter: choices by dotted path, and the values of each."""


def leaves(space: Mapping[str, Any], above: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The hyperparameters that are not groups, by sorted names, depth first."""
    for name in sorted(space):
        spec, path = space[name], (*above, name)
        if isinstance(spec, Mapping) and spec.get("type") is None:
            yield from leaves(spec, path)
        else:
            yield path, spec


def conditions(space: Mapping[str, Any]) -> dict[Path, Condition]:
    """The conditions of the hyperparameters that have one, by path."""
    return {path: spec["when"] for path, spec in leaves(space) if isinstance(spec, Mapping) and spec.get("when")}


def controlling(space: Mapping[str, Any]) -> list[Path]:
    """The choices that others depend on, by sorted names."""
    named = {name for when in conditions(space).values() for name in when}
    return [path for path, _ in leaves(space) if ".".join(path) in named]


class Presence:
    """Determines which hyperparameters exist with given values of the choices."""

    def __init__(self, space: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        """`values`: the values of choices, by dotted path."""
        self._conditions = {".".join(path): when for path, when in conditions(space).items()}
        self._values = values

    def of(self, name: str) -> bool:
        """Whether the hyperparameter at the dotted path exists. The configuration was checked: no choice depends on itself."""
        when = self._conditions.get(name, {})
        return all(self.of(other) and is_one_of(self._values.get(other), allowed) for other, allowed in when.items())


def pruned(space: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    """The point without absent hyperparameters. Groups stay, even if they are empty."""
    found = conditions(space)
    if not found:
        return dict(point)
    presence = Presence(space, {".".join(path): _at(point, path) for path in controlling(space)})
    absent = {path for path in found if not presence.of(".".join(path))}
    return _without(point, absent)


def is_one_of(value: Any, allowed: Sequence[Any]) -> bool:
    """Whether the value is one of `allowed`, compared as JSON: a boolean is not a number."""
    return json.dumps(value, sort_keys=True) in {json.dumps(each, sort_keys=True) for each in allowed}


def _at(point: Mapping[str, Any], path: Path) -> Any:
    found: Any = point
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _without(point: Mapping[str, Any], absent: set[Path], above: Path = ()) -> dict[str, Any]:
    inner = {path[: len(above) + 1] for path in absent}
    return {
        name: _without(value, absent, (*above, name)) if (*above, name) in inner else value
        for name, value in point.items()
        if (*above, name) not in absent
    }
