"""Changes to a snapshot file by name: `jobs.j1.priority=10`, `agents.a1.enabled=false`, `tasks.t9={"slots": 4}`.

Only names are checked here; the reader validates the changed file.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from resolute.config.base import ConfigModel
from resolute.config.errors import show_value, suggestion
from resolute.errors import InvalidInput
from resolute_master.scheduler.snapshot_format import (
    AgentRow,
    JobRow,
    MachineRow,
    OfferRow,
    Policy,
    SnapshotRow,
    SupplyRow,
    TaskRow,
)

_NAMES: dict[tuple[str, ...], str] = {("agents",): "agent", ("jobs",): "job", ("tasks",): "task"} | {
    ("supply", part): part.rstrip("s") for part in ("offers", "machines")
}
"""Mappings whose keys are names chosen by the file, and the kind of the named object."""

_BLOCKS: dict[tuple[str, ...], type[ConfigModel]] = {(): SnapshotRow, ("policy",): Policy, ("supply",): SupplyRow}

_ROWS: dict[tuple[str, ...], type[ConfigModel]] = {
    ("agents",): AgentRow,
    ("jobs",): JobRow,
    ("tasks",): TaskRow,
    ("supply", "offers"): OfferRow,
    ("supply", "machines"): MachineRow,
}
"""The rows of these names."""

_WITH_PARTS = {"policy", "agents", "jobs", "tasks", "usage", "supply", "offers", "machines", "on"}


DEEPEST = 16
"""Levels of mappings and lists; the format itself has five."""


def parsed(text: str) -> object:
    """The value of a JSON text. Raises ValueError if it is not JSON, `InvalidInput` for a duplicate key in one mapping or more than
    `DEEPEST` nested levels."""
    try:
        data: object = json.loads(text, object_pairs_hook=_once_each)
    except RecursionError:
        raise _too_deep() from None
    level = [data]
    for _ in range(DEEPEST):
        level = [below for each in level for below in _parts(each) if isinstance(below, dict | list)]
        if not level:
            return data
    raise _too_deep()


def _parts(value: object) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _too_deep() -> InvalidInput:
    return InvalidInput(f"lists and mappings are nested more than {DEEPEST} deep; a snapshot has at most 5 levels")


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            values = f"values {show_value(found[key])} and {show_value(value)}"
            raise InvalidInput(f"the key '{key}' occurs twice in one mapping ({values}); rename or remove one of them")
        found[key] = value
    return found


def edited(data: object, changes: Sequence[str]) -> object:
    """A copy of the file with the changes applied in order. Raises `InvalidInput` with key, value and a remedy."""
    if not changes:
        return data
    if not isinstance(data, Mapping):
        raise InvalidInput(
            "the snapshot is not a JSON object; give a file that `det job snapshot` has written, or one like it"
        )
    changed: dict[str, Any] = copy.deepcopy(dict(data))
    for change in changes:
        key, equals, text = change.partition("=")
        if not (key and equals):
            raise InvalidInput(f"'{change}': write it as <key>=<value>, for instance policy.preemption=true")
        _Setting(changed, change, key).to(_value(text))
    return changed


def _value(text: str) -> Any:
    """The value of a text: JSON, or a text without quotes."""
    try:
        return parsed(text)
    except ValueError:
        return text


class _Setting:
    def __init__(self, data: dict[str, Any], change: str, key: str) -> None:
        self._data = data
        self._change = change
        self._words = key.split(".")

    def to(self, value: Any) -> None:
        level, words = self._data, self._words
        path: tuple[str, ...] = ()
        while True:
            key, rest = _longest_key(level, words)
            if not rest:
                level[key] = value
                return
            level, path, words = self._below(level, path, key), (*path, key), rest

    def _below(self, level: dict[str, Any], path: tuple[str, ...], key: str) -> dict[str, Any]:
        """The mapping under the key; created if the format has one there."""
        below = level.get(key)
        if path == ("agents",) and isinstance(below, int) and not isinstance(below, bool):
            below = {"slots": below}  # the short form of an agent
        if below is None:
            if key in _whole_keys(path):
                whole = ".".join((*path, key))
                raise InvalidInput(f"'{self._change}': {whole} has no parts; set it as a whole, with '{whole}=...'")
            if path in _NAMES and not (path == ("jobs",) and key in self._jobs_of_tasks()):
                known = sorted(level) + [name for name in self._jobs_of_tasks() if path == ("jobs",)]
                hint = f"{suggestion(key, known)}, or " if known else ""
                whole = ".".join((*path, key))
                raise InvalidInput(
                    f"'{self._change}': there is no {_NAMES[path]} '{key}' in the snapshot; {hint}make one with "
                    f"'{whole}={{...}}'"
                )
            below = {}
        if not isinstance(below, dict):
            raise InvalidInput(
                f"'{self._change}': {'.'.join((*path, key))} has no parts (value {json.dumps(below)}); set it as a whole"
            )
        level[key] = below
        return below

    def _jobs_of_tasks(self) -> list[str]:
        """The jobs of tasks without a job, which have the name of the task."""
        tasks = self._data.get("tasks")
        rows = tasks.items() if isinstance(tasks, Mapping) else ()
        return [name for name, row in rows if isinstance(row, Mapping) and row.get("job") is None]


def _whole_keys(path: tuple[str, ...]) -> set[str]:
    """Keys of the format at this place of the file that have a value and no keys below them."""
    row = _BLOCKS.get(path) or _ROWS.get(path[:-1])
    return set() if row is None else set(row.model_fields) - _WITH_PARTS


def _longest_key(level: Mapping[str, Any], words: Sequence[str]) -> tuple[str, list[str]]:
    """The matching key, and the rest: a name may contain dots. A new name is assumed to contain none."""
    for length in range(len(words), 1, -1):
        key = ".".join(words[:length])
        if key in level:
            return key, list(words[length:])
    return words[0], list(words[1:])
