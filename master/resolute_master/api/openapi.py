"""The description of the REST API: OpenAPI 3.1, generated from the routes and from the types of the wire.

    python -m resolute_master.api.openapi master/resolute_web/assets/openapi.json

What a call takes and answers is read from its handler: the messages that it names in `call.query(...)` and `call.body(...)`, and
the one that it returns or makes. A master has no use for this module: it serves the file.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

from resolute.wire.codec import Int64, wire_names
from resolute_master.api.app import ROUTES
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Route

PART = re.compile(r"\{(\w+)\}")
STREAMS = ("stream",)
"""Functions that send one message per line."""

RENDERING = "resolute_master.api.render"
"""Modules whose functions make messages."""

Schema = dict[str, Any]


def description(version: str) -> Schema:
    """The whole document."""
    schemas = _Schemas()
    paths: dict[str, Schema] = {}
    for route in sorted(ROUTES, key=lambda route: (route.path, route.method)):
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Resolute",
            "version": version,
            "description": "Errors have the body of `Error`. Streams are lines of JSON, each with `result` or `error`.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": dict(sorted({**schemas.found, "Error": _ERROR}.items())),
        },
    }


_ERROR: Schema = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "reason", "error"],
            "properties": {"code": {"type": "integer"}, "reason": {"type": "string"}, "error": {"type": "string"}},
        },
        "message": {"type": "string"},
    },
}


def _operation(route: Route, schemas: _Schemas) -> Schema:
    told = _Described.of(route)
    answer: Schema = {"description": "OK"}
    if told.answer is not None:
        schema = schemas.of(told.answer)
        kind = "application/x-ndjson" if told.streams else "application/json"
        shape = {"type": "object", "properties": {"result": schema}} if told.streams else schema
        answer["content"] = {kind: {"schema": shape}}
    found: Schema = {
        "operationId": _operation_id(route),
        "summary": _summary(route),
        "tags": [_tag(route.path)],
        "parameters": [
            *(
                {"name": n, "in": "path", "required": True, "schema": {"type": "string"}}
                for n in PART.findall(route.path)
            ),
            *(_parameters(told.query, schemas) if told.query is not None else ()),
        ],
        "responses": {
            "200": answer,
            "default": {
                "description": "A refusal, with what to do",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }
    if told.body is not None:
        found["requestBody"] = {"content": {"application/json": {"schema": schemas.of(told.body)}}}
    if route.action is Action.PUBLIC:
        found["security"] = []
    return found


def _operation_id(route: Route) -> str:
    words = re.findall(r"\w+", route.path)
    return "_".join([route.method.lower(), *words])


def _summary(route: Route) -> str:
    """The first paragraph of the handler's docstring."""
    text = inspect.getdoc(route.handle) or ""
    return " ".join(text.split("\n\n")[0].split())


def _tag(path: str) -> str:
    words = [part for part in path.split("/") if part and part not in ("api", "v1") and not part.startswith("{")]
    return words[0] if words else "master"


def _parameters(cls: type, schemas: _Schemas, before: str = "") -> list[Schema]:
    hints, found = typing.get_type_hints(cls, include_extras=True), list[Schema]()
    for name, key in wire_names(cls).items():
        inner = _required(hints[name])
        if isinstance(inner, type) and dataclasses.is_dataclass(inner):
            found += _parameters(inner, schemas, f"{before}{key}.")
        else:
            found.append({"name": before + key, "in": "query", "schema": schemas.of(inner)})
    return found


# ------------------------------------------------------------------------------------------------------------ schemas


class _Schemas:
    """Schemas of messages and enums, each once, by name."""

    def __init__(self) -> None:
        self.found: dict[str, Schema] = {}

    def of(self, hint: Any) -> Schema:
        """Raises `TypeError` for a type that the codec has no rule for."""
        if hint is Int64:
            return {"type": ["string", "integer"], "format": "int64"}
        if typing.get_origin(hint) is Annotated:
            return self.of(typing.get_args(hint)[0])
        if hint in _SIMPLE:
            return dict(_SIMPLE[hint])
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin in (typing.Union, types.UnionType):
            return self._any_of(arguments)
        if origin in (tuple, list, Sequence):
            return {"type": "array", "items": self.of(arguments[0])}
        if origin in (Mapping, dict):
            return {"type": "object", "additionalProperties": self.of(arguments[1])}
        if origin is typing.Literal:
            return {"enum": list(arguments)}
        if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or issubclass(hint, Enum)):
            return self._named(hint)
        raise TypeError(f"a description of {hint!r} is not known")

    def _any_of(self, arguments: Sequence[Any]) -> Schema:
        parts = [self.of(part) for part in arguments if part is not type(None)]
        if type(None) in arguments:
            parts.append({"type": "null"})
        return parts[0] if len(parts) == 1 else {"anyOf": parts}

    def _named(self, cls: type) -> Schema:
        reference = {"$ref": f"#/components/schemas/{cls.__name__}"}
        if cls.__name__ in self.found:
            return reference
        self.found[cls.__name__] = {}
        if issubclass(cls, Enum):
            self.found[cls.__name__] = {"type": "string", "enum": [each.value for each in cls]}
            return reference
        hints, keys = typing.get_type_hints(cls, include_extras=True), wire_names(cls)
        fields = dataclasses.fields(typing.cast(Any, cls))
        needed = [keys[f.name] for f in fields if _is_missing(f.default) and _is_missing(f.default_factory)]
        shape: Schema = {"type": "object", "properties": {keys[f.name]: self.of(hints[f.name]) for f in fields}}
        if needed:
            shape["required"] = needed
        if text := inspect.getdoc(cls):
            shape["description"] = " ".join(text.split())
        self.found[cls.__name__] = shape
        return reference


def _is_missing(value: object) -> bool:
    return value is dataclasses.MISSING


_SIMPLE: Mapping[Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]},
    bytes: {"type": "string", "contentEncoding": "base64"},
    datetime: {"type": "string", "format": "date-time"},
    Any: {},
    object: {},
}


def _required(hint: Any) -> Any:
    """Without `None`."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        parts = [part for part in typing.get_args(hint) if part is not type(None)]
        return parts[0] if len(parts) == 1 else hint
    return hint


# ----------------------------------------------------------------------------------------------------------- handlers


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Described:
    """The messages of a call; None where there is none, or where it is no message."""

    query: type | None
    body: type | None
    answer: type | None
    streams: bool

    @classmethod
    def of(cls, route: Route) -> _Described:
        seen = _Seen()
        seen.look(route.handle)
        seen.look(route.find)
        returned = _message(typing.get_type_hints(route.handle).get("return"))
        made = [each for each in seen.made if each.__name__.endswith("Response")]
        answer = returned or (made[0] if made else None)
        return cls(
            query=next(iter(seen.asked["query"]), None),
            body=next(iter(seen.asked["body"]), None),
            answer=answer,
            streams=seen.streams,
        )


def _message(hint: Any) -> type | None:
    parts = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    found = [part for part in parts if isinstance(part, type) and dataclasses.is_dataclass(part)]
    return found[0] if found else None


class _Seen:
    """The messages that a function and the functions of its module that it calls use."""

    def __init__(self) -> None:
        self.asked: dict[str, list[type]] = {"query": [], "body": []}
        self.made: list[type] = []
        self.streams = False
        self._looked: set[Any] = set()

    def look(self, function: Callable[..., Any]) -> None:
        if function in self._looked or not inspect.isfunction(function):
            return
        self._looked.add(function)
        names = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
            if isinstance(node, ast.Call):
                self._called(node, names, function.__module__)
            elif isinstance(node, ast.Name):
                self._follow(names.get(node.id), function.__module__)

    def _called(self, node: ast.Call, names: Mapping[str, Any], module: str) -> None:
        called = node.func
        if isinstance(called, ast.Attribute) and called.attr in self.asked and node.args:
            asked = node.args[0]
            found = names.get(asked.id) if isinstance(asked, ast.Name) else None
            if isinstance(found, type):
                self.asked[called.attr].append(found)
        if isinstance(called, ast.Name):
            found = names.get(called.id)
            self.streams = self.streams or called.id in STREAMS
            if isinstance(found, type) and dataclasses.is_dataclass(found):
                self.made.append(found)
            self._follow(found, module)

    def _follow(self, found: Any, module: str) -> None:
        if not inspect.isfunction(found):
            return
        if found.__module__ == module:
            self.look(found)
        elif found.__module__.startswith(RENDERING):
            shown = _message(typing.get_type_hints(found).get("return"))
            self.made += [shown] if shown is not None else []


def text(version: str) -> str:
    """The document as text, as in the file."""
    return json.dumps(description(version), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(text("1"))
