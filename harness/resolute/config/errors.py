"""Configuration errors for users: every problem at once, each with its path, its value and what to do.

A line reads `<config>.path.to[2].key: what is wrong (value ...); what to do`. Lines are sorted by path.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from resolute.errors import InvalidInput

if TYPE_CHECKING:  # reading YAML alone needs no models
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

Location = tuple[str | int, ...]

UNKNOWN_KEY = "unknown_key"
MISSING_TAG = "missing_tag"
RULE = "rule"

MAX_VALUE_LENGTH = 80  # a longer value hides the sentence around it
MAX_NAMES = 16  # a longer list of names is not readable
_SECRET_KEY = re.compile(
    r"password|secret|token|access_key|private_key|signing_key|^segment_.*_key$|credential|connection_string|startup_|^auth$"
    r"|^environment_variables$|^pod_spec$|_pod_spec$|^key$|^data_layer$|^external_sessions$|^fluent$"
    r"|^agent_config_file_contents$|^base_config$"
)
HOLD_SECRETS = frozenset(
    {
        "additional_resource_managers",
        "checkpoint_storage",
        "data",
        "db",
        "environment",
        "registry_auth",
        "tensorboard_storage",
    }
)
"""A text or list in place of such a block may contain the secrets of the block."""

_SENTENCES: Mapping[str, str] = {
    "missing": "is a required property",
    "int_type": "must be an integer",
    "int_parsing": "must be an integer",
    "int_from_float": "must be an integer",
    "int_parsing_size": "must be an integer of reasonable size",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be a string; put it in quotes",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping of keys to values",
    "mapping_type": "must be a mapping of keys to values",
    "model_type": "must be a mapping of keys to values",
    "model_attributes_type": "must be a mapping of keys to values",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must not be empty",
    "too_short": "must have {min_length} or more entries",
    "too_long": "must have {max_length} or fewer entries",
    "none_required": "must be left out",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong, at `path` (keys and list positions from the root)."""

    path: Location
    message: str

    def line(self, root: str = "<config>") -> str:
        return f"{render_path(self.path, root)}: {self.message}"


class InvalidConfig(InvalidInput):
    """A configuration with problems: the text has one line for each, `problems` the same as values."""

    def __init__(self, subject: str, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(set(problems), key=lambda problem: problem.line()))
        count = "1 error" if len(self.problems) == 1 else f"{len(self.problems)} errors"
        super().__init__("\n".join([f"{subject} has {count}:", *(f"  {problem.line()}" for problem in self.problems)]))


def render_path(path: Sequence[str | int], root: str = "<config>") -> str:
    """`("a", 2, "b")` reads `<config>.a[2].b`."""
    return root + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)


def tag_of(name: str) -> str:
    """The name of a union's member as it appears in an error's location; `problems_of` leaves it out again."""
    return f"<{name}>"


def nearest(name: str, valid: Collection[str]) -> str | None:
    """The valid name that `name` was most likely meant to be, if one is near."""
    matches = difflib.get_close_matches(name.lower(), sorted(valid), n=1, cutoff=0.6)
    return matches[0] if matches else None


def suggestion(name: str, valid: Collection[str]) -> str:
    """What to do about an unknown `name`: the nearest valid one, or all of them."""
    match = nearest(name, valid)
    if match is not None:
        return f"did you mean '{match}'?"
    if len(valid) > MAX_NAMES:
        return "no known name is near it; docs/configuration.md lists them all"
    return f"use one of: {', '.join(sorted(valid))}" if valid else "remove it"


def is_secret_key(key: str) -> bool:
    """Whether the value of a key of this name must never be shown."""
    return _SECRET_KEY.search(key.lower()) is not None


def show_value(value: object) -> str:
    """A value as it may be quoted in an error: JSON, shortened."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):
        text = _written_out(value)
    return text if len(text) <= MAX_VALUE_LENGTH else text[: MAX_VALUE_LENGTH - 3] + "..."


def _written_out(value: object) -> str:
    """For values that JSON cannot represent. Python writes no integer of more than some thousand digits."""
    try:
        return repr(value)
    except ValueError:
        return f"an integer of {value.bit_length()} bits" if isinstance(value, int) else "a value with a huge integer"


def problems_of(
    error: ValidationError, sources: Mapping[Location, str] | None = None, *, missing: bool = True
) -> tuple[Problem, ...]:
    """The leaves of a pydantic error. `sources` lists the paths that were not set by the file.

    Without `missing`, keys that are absent are no problem.
    """
    leaves = [leaf for leaf in error.errors(include_url=False) if not _is_consequence(leaf)]
    return tuple(_problem(leaf, sources or {}) for leaf in leaves if missing or not _is_missing(leaf))


def _is_consequence(details: ErrorDetails) -> bool:
    """A list that is long enough, and was counted without its entries that are wrong: these are named anyway."""
    given, context = details["input"], details.get("ctx") or {}
    return details["type"] == "too_short" and isinstance(given, Sized) and len(given) >= context["min_length"]


def _is_missing(details: ErrorDetails) -> bool:
    """A key that is not there, rather than one with a wrong value."""
    given, context = details["input"], details.get("ctx") or {}
    tag_is_missing = details["type"] == MISSING_TAG and isinstance(given, Mapping) and context["key"] not in given
    return details["type"] == "missing" or tag_is_missing


def _problem(details: ErrorDetails, sources: Mapping[Location, str]) -> Problem:
    path: Location = tuple(part for part in details["loc"] if not _is_tag(part))
    context = {name: _plain(limit) for name, limit in (details.get("ctx") or {}).items()}
    if details["type"] == MISSING_TAG:
        path = (*path, str(context["key"]))
    message = details["msg"] if details["type"] in (MISSING_TAG, UNKNOWN_KEY) else _sentence(details, context, path)
    source = sources.get(path)
    return Problem(path=path, message=message if source is None else f"{message}, set by {source}")


def _plain(limit: Any) -> Any:
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit


def _is_tag(part: str | int) -> bool:
    return isinstance(part, str) and part.startswith("<") and part.endswith(">")


def _sentence(details: ErrorDetails, context: Mapping[str, Any], path: Location) -> str:
    kind, value = details["type"], details["input"]
    if kind == "literal_error":
        what, then = _literal(str(context.get("expected", "")), value)
    elif kind == RULE:
        what, _, then = details["msg"].partition("; ")
    elif kind in _SENTENCES:
        what, _, then = _SENTENCES[kind].format_map(context).partition("; ")
    else:
        what, then = details["msg"], ""
    shown = "" if kind == "missing" else quoted(value, path)
    return f"{what}{shown}" + (f"; {then}" if then else "")


def quoted(value: object, path: Location) -> str:
    """` (value ...)` for a sentence about `path`: nothing for a mapping, which may be long and hold secrets."""
    if isinstance(value, Mapping):
        return ""
    misplaced = bool(path) and path[-1] in HOLD_SECRETS and isinstance(value, (str, list, tuple))
    of_a_tag = path[-3:-2] == ("custom_tags",) and path[-1] == "key"  # a name, whereas keys elsewhere are secrets
    hidden = misplaced or (not of_a_tag and any(isinstance(part, str) and is_secret_key(part) for part in path))
    return " (value hidden)" if hidden and not isinstance(value, bool) else f" (value {show_value(value)})"


def _literal(expected: str, value: object) -> tuple[str, str]:
    names = re.findall(r"'([^']*)'", expected)
    what = f"must be one of {', '.join(names)}" if names else f"must be {expected}"
    match = nearest(value, names) if isinstance(value, str) else None
    return what, f"did you mean '{match}'?" if match is not None else ""
