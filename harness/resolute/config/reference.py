"""The reference of all keys, written from the models: `python -m resolute.config.reference docs/configuration.md`.

The document has marked sections; what is between the marks is replaced, the rest is written by hand.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import textwrap
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from resolute.config.agent import AgentConfig
from resolute.config.durations import DurationMark, format_duration
from resolute.config.experiment import ExperimentConfig
from resolute.config.hyperparameters import HyperparameterGroup
from resolute.config.lengths import Length
from resolute.config.master import MasterConfig
from resolute.config.not_acted_on import AGENT_KEYS, EXPERIMENT_KEYS, MASTER_KEYS, WARNED_KEYS, NotActedOn
from resolute.config.providers import RegisteredModels

_MARKED = re.compile(r"(<!-- begin (?P<name>[a-z-]+) -->\n).*?(<!-- end (?P=name) -->)", re.DOTALL)
_SIGNS = (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<"))
_NAMES: dict[Any, str] = {str: "string", bool: "true or false", int: "integer", float: "number", Any: "any value"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One key. `members` are the tags of the union members that have it; empty means always."""

    path: str
    kind: str
    default: str
    description: str
    members: tuple[str, ...] = ()


def rows_of(model: type[BaseModel]) -> list[Row]:
    """All keys of a model and the models inside it, each model once."""
    return list(_rows(model, "", {}))


def _rows(model: type[BaseModel], prefix: str, seen: dict[type[BaseModel], str]) -> Iterator[Row]:
    described = descriptions(model)
    for name, field in model.model_fields.items():
        path = prefix + (field.alias or name)
        inner, place = _models_in(field.annotation)
        kind = _kind(field.annotation, field.metadata)
        known = next((seen[one] for one in inner if one in seen), None)
        if inner and known is not None:
            kind = f"as `{known}`"
        yield Row(path=path, kind=kind, default=_default(field), description=described.get(name, ""))
        if known is None:
            seen.update(dict.fromkeys(inner, path))
            yield from _inside(inner, path + place + ".", seen)


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """The text below each field in the source, of the model and those that it extends."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if not issubclass(each, BaseModel) or each is BaseModel:
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]
        assert isinstance(body, ast.ClassDef)
        for statement, after in pairwise(body.body):
            match statement, after:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[name] = inspect.cleandoc(text)
    return found


def _inside(models: Sequence[type[BaseModel]], prefix: str, seen: dict[type[BaseModel], str]) -> Iterator[Row]:
    """Keys of the members of a union, those that several members share only once."""
    if len(models) == 1:
        yield from _rows(models[0], prefix, seen)
        return
    members: dict[Row, list[str]] = {}
    for model in models:
        for row in _rows(model, prefix, seen):
            tag = _tag(model)
            if tag and row.path == f"{prefix}{tag[0]}":
                row = Row(path=row.path, kind="string", default="", description="Selects one of the forms.")
            members.setdefault(row, []).append(tag[1] if tag else model.__name__)
    for row, names in sorted(members.items(), key=lambda entry: -len(entry[1])):
        everywhere = len(names) == len(models)
        yield Row(
            path=row.path,
            kind=row.kind,
            default=row.default,
            description=row.description,
            members=row.members if everywhere else tuple(names),
        )


def _tag(model: type[BaseModel]) -> tuple[str, str] | None:
    """The key and value by which a union's member is known."""
    for key in ("type", "name"):
        field = model.model_fields.get(key)
        if field is not None and typing.get_origin(field.annotation) is Literal:
            values = typing.get_args(field.annotation)
            if len(values) == 1:
                return key, str(values[0])
    return None


def _models_in(annotation: Any) -> tuple[list[type[BaseModel]], str]:
    """The models that a value may hold, and how their keys are reached: directly, in a list, by name."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        registered = next((mark for mark in arguments[1:] if isinstance(mark, RegisteredModels)), None)
        return _models_in(arguments[0]) if registered is None else (list(registered.members()), "")
    if origin in (typing.Union, types.UnionType):
        found = [_models_in(one) for one in arguments]
        models = [model for inner, _ in found for model in inner]
        return models, next((place for inner, place in found if inner), "")
    if origin is tuple:
        return _models_in(arguments[0])[0], "[]"
    if origin is dict:
        return _models_in(arguments[1])[0], ".<name>"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel) and annotation is not HyperparameterGroup:
        return ([], "") if issubclass(annotation, Length) else ([annotation], "")
    return [], ""


def _kind(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if any(isinstance(mark, DurationMark) for mark in metadata):
        return "duration"
    if origin is typing.Annotated:
        return _kind(arguments[0], [*arguments[1:], *metadata])
    if origin in (typing.Union, types.UnionType):
        kinds = [_kind(one, ()) for one in arguments if one is not type(None)]
        return " or ".join(dict.fromkeys(kinds))
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin in (tuple, list):
        return f"list of {_plural(_kind(arguments[0]))}"
    if origin is dict:
        return "mapping"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "length" if issubclass(annotation, Length) else "mapping"
    return _NAMES.get(annotation, "value") + _limits(metadata)


def _plural(kind: str) -> str:
    return {"string": "strings", "integer": "integers", "mapping": "mappings", "any value": "values"}.get(kind, kind)


def _limits(metadata: Sequence[Any]) -> str:
    found: dict[str, Any] = {}
    for mark in metadata:
        for one in (mark, *getattr(mark, "metadata", ())):
            for name, _ in _SIGNS:
                if getattr(one, name, None) is not None:
                    found[name] = getattr(one, name)
    if "ge" in found and "le" in found:
        return f", {found['ge']} to {found['le']}"
    return "".join(f" {sign} {found[name]}" for name, sign in _SIGNS if name in found)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value: Any = field.get_default(call_default_factory=True)
    if isinstance(value, Length):
        return f"`{json.dumps(value.model_dump(mode='json'))}`"
    if isinstance(value, BaseModel):
        return ""
    if isinstance(value, float) and any(isinstance(mark, DurationMark) for mark in field.metadata):
        return f"`{format_duration(value)}`"
    if isinstance(value, tuple) and any(isinstance(one, BaseModel) for one in value):
        return f"`{json.dumps([one.model_dump(mode='json', exclude_unset=True) for one in value])}`"
    return f"`{json.dumps(value)}`"


def key_table(model: type[BaseModel]) -> str:
    """A Markdown table of all keys of a model."""
    lines = ["| key | type | default | |", "|---|---|---|---|"]
    for row in rows_of(model):
        only = f" ({', '.join(row.members)})" if row.members else ""
        lines.append(f"| `{row.path}`{only} | {row.kind} | {row.default} | {row.description} |")
    return "\n".join(lines) + "\n"


def refusal_table(table: Sequence[NotActedOn]) -> str:
    """A Markdown table of keys whose other values are not acted on."""
    lines = ["| key | accepted | for other values |", "|---|---|---|"]
    for row in table:
        accepted = ", ".join(f"`{json.dumps(value)}`" for value in row.accepted)
        lines.append(f"| `{row.path}` | {accepted} | {row.reason} |")
    return "\n".join(lines) + "\n"


def sections() -> dict[str, str]:
    """The generated sections by the name in their marks."""
    return {
        "experiment-keys": key_table(ExperimentConfig),
        "master-keys": key_table(MasterConfig),
        "agent-keys": key_table(AgentConfig),
        "experiment-refused": refusal_table(EXPERIMENT_KEYS),
        "experiment-warned": refusal_table(WARNED_KEYS),
        "master-refused": refusal_table(MASTER_KEYS),
        "agent-refused": refusal_table(AGENT_KEYS),
    }


def updated(document: str) -> str:
    """The document with every marked section as the models have it now."""
    written = sections()
    return _MARKED.sub(lambda match: f"{match[1]}{written[match['name']]}{match[3]}", document)


def main(arguments: Sequence[str]) -> int:
    """Update the named document in place."""
    path = Path(arguments[0])
    path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
