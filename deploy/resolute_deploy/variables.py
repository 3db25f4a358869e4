"""The variables of a Terraform module, read from its `variables.tf`: each is a flag of `det deploy`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resolute.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One variable. `type` is Terraform's: `string`, `number`, `bool`, `list(string)`, `map(string)`."""

    name: str
    type: str
    description: str
    default: Any = None
    required: bool = False

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


def read_variables(files: Iterable[Path]) -> tuple[Variable, ...]:
    """In the order of the files. Raises `InvalidInput` without python-hcl2."""
    try:
        import hcl2
    except ImportError:
        raise InvalidInput("deploying needs the extra `deploy`: pip install 'resolute-ml[deploy]'") from None
    found = []
    for file in files:
        with file.open() as text:
            for block in hcl2.load(text).get("variable", []):
                ((name, body),) = block.items()
                found.append(_variable(_text(name), body))
    return tuple(found)


def _variable(name: str, body: Mapping[str, Any]) -> Variable:
    return Variable(
        name=name,
        type=re.sub(r"[\s${}\"]", "", str(body["type"])),
        description=_text(body["description"]),
        default=_plain(body.get("default")),
        required="default" not in body,
    )


def _text(value: str) -> str:
    """python-hcl2 keeps the quotes of a text."""
    return value[1:-1].replace('\\"', '"') if value[:1] == value[-1:] == '"' else value


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return None if value == "null" else _text(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {_text(key): _plain(each) for key, each in value.items() if not key.startswith("__")}
    return value


# --------------------------------------------------------------------------------------------------------------------- flags


def add_flags(parser: argparse.ArgumentParser, variables: Sequence[Variable], *, hidden: frozenset[str]) -> None:
    """Adds one flag for each variable. The value of an absent flag is None, so that an update changes the given variables only."""
    for variable in variables:
        if variable.name in hidden:
            continue
        shown: dict[str, Any] = {"help": _help(variable), "dest": variable.name, "default": None}
        if variable.type == "bool":
            parser.add_argument(variable.flag, action=argparse.BooleanOptionalAction, **shown)
        elif variable.type == "list(string)":
            parser.add_argument(variable.flag, nargs="+", action="extend", metavar="VALUE", **shown)
        elif variable.type == "map(string)":
            parser.add_argument(variable.flag, nargs="+", action="extend", type=_pair, metavar="KEY=VALUE", **shown)
        elif variable.type == "number":
            parser.add_argument(variable.flag, type=_number, metavar="NUMBER", **shown)
        else:
            parser.add_argument(variable.flag, metavar="VALUE", **shown)


def given_values(args: argparse.Namespace, variables: Sequence[Variable]) -> dict[str, Any]:
    """The given values, by the names of the variables."""
    values = {}
    for variable in variables:
        value = getattr(args, variable.name, None)
        if value is not None:
            values[variable.name] = dict(value) if variable.type == "map(string)" else value
    return values


def missing(values: Mapping[str, Any], variables: Sequence[Variable]) -> list[Variable]:
    return [variable for variable in variables if variable.required and variable.name not in values]


def _help(variable: Variable) -> str:
    told = variable.description.rstrip(".")
    if variable.required:
        told += " (required for a new cluster)"
    elif variable.default not in (None, [], {}):
        default = variable.default
        shown = (
            " ".join(default)
            if isinstance(default, list)
            else str(default).lower()
            if isinstance(default, bool)
            else default
        )
        told += f" (default: {shown})"
    return told.replace("%", "%%")


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"must be KEY=VALUE, and is {text!r}")
    return key, value


def _number(text: str) -> int | float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, and is {text!r}") from None
    return int(value) if value.is_integer() else value
