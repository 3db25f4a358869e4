"""Checks requests and answers against Compute Engine's published discovery document."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl, urlsplit

Json = dict[str, Any]

NUMBERS = {
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint64": (0, 2**64 - 1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request that the document knows."""

    method: str
    """Its id, e.g. `compute.instances.insert`."""
    path: dict[str, str]
    query: dict[str, str]
    body: Json | None


class Violation(Exception):
    """The document does not allow a request or an answer."""


@cache
def document() -> Json:
    folder = resources.files("googleapiclient") / "discovery_cache" / "documents"
    found: Json = json.loads((folder / "compute.v1.json").read_text(encoding="utf-8"))
    return found


@cache
def _methods() -> tuple[tuple[re.Pattern[str], Json], ...]:
    found = []
    for resource in document()["resources"].values():
        for method in resource.get("methods", {}).values():
            pattern = "".join(
                f"(?P<{part[1:-1]}>[^/]+)" if part.startswith("{") else re.escape(part)
                for part in re.split(r"(\{\w+\})", "/" + document()["servicePath"] + method["path"])
            )
            found.append((re.compile(pattern), method))
    return tuple(found)


def understood(verb: str, target: str, body: bytes) -> Call:
    """The request as the document sees it. Raises `Violation`."""
    parts = urlsplit(target)
    found = [
        (match, method)
        for pattern, method in _methods()
        if method["httpMethod"] == verb and (match := pattern.fullmatch(parts.path)) is not None
    ]
    if not found:
        raise Violation(f"no method {verb} {parts.path}")
    match, method = found[0]
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name, value in match.groupdict().items():
        _check_parameter(name, value, method["parameters"][name])
    for name, value in query.items():
        # The system parameters are spelt with and without '$' by Google's own clients.
        rule = method["parameters"].get(name) or document()["parameters"].get(name.removeprefix("$"))
        if rule is None:
            raise Violation(f"{method['id']}: no parameter {name}")
        if not name.startswith("$"):
            _check_parameter(name, value, rule)
    decoded = json.loads(body) if body else None
    if (decoded is None) != ("request" not in method):
        raise Violation(f"{method['id']}: a body is {'missing' if decoded is None else 'not expected'}")
    if decoded is not None:
        check(decoded, method["request"], where=method["request"]["$ref"], asked=True)
    return Call(method=method["id"], path=match.groupdict(), query=query, body=decoded)


def check_answer(method: str, answer: Json) -> None:
    """Checks an answer. Raises `Violation`."""
    resource, name = method.split(".")[1:]
    schema = document()["resources"][resource]["methods"][name]["response"]
    check(answer, schema, where=schema["$ref"], asked=False)


def _check_parameter(name: str, value: str, rule: Json) -> None:
    if "pattern" in rule and re.fullmatch(rule["pattern"], value) is None:
        raise Violation(f"parameter {name}: {value!r} is not of the form {rule['pattern']}")
    if "enum" in rule and value not in rule["enum"]:
        raise Violation(f"parameter {name}: {value!r} is none of {rule['enum']}")
    if rule["type"] == "integer" or rule.get("format") in NUMBERS:
        _check_number(value, rule, f"parameter {name}")
    if rule["type"] == "boolean" and value not in ("true", "false"):
        raise Violation(f"parameter {name}: {value!r} is no boolean")


def _check_number(value: Any, rule: Json, where: str) -> None:
    low, high = NUMBERS.get(rule.get("format", ""), (float("-inf"), float("inf")))
    if not re.fullmatch(r"-?\d+", str(value)) or not low <= int(value) <= high:
        raise Violation(f"{where}: {value!r} is no {rule.get('format', 'integer')}")


def check(value: Any, schema: Json, *, where: str, asked: bool) -> None:
    """`asked`: in a request, which must not hold what only answers do. Raises `Violation`."""
    if "$ref" in schema:
        check(value, document()["schemas"][schema["$ref"]], where=where, asked=asked)
        return
    if asked and schema.get("readOnly"):
        raise Violation(f"{where}: is for answers only")
    kind = schema["type"]
    if kind == "object":
        _check_object(value, schema, where, asked)
    elif kind == "array":
        if not isinstance(value, list):
            raise Violation(f"{where}: {value!r} is no list")
        for index, item in enumerate(value):
            check(item, schema["items"], where=f"{where}[{index}]", asked=asked)
    elif kind == "string":
        _check_text(value, schema, where)
    elif kind == "boolean":
        if not isinstance(value, bool):
            raise Violation(f"{where}: {value!r} is no boolean")
    elif kind in ("integer", "number"):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Violation(f"{where}: {value!r} is no {kind}")
        if kind == "integer":
            _check_number(value, schema, where)


def _check_object(value: Any, schema: Json, where: str, asked: bool) -> None:
    if not isinstance(value, dict):
        raise Violation(f"{where}: {value!r} is no object")
    known = schema.get("properties", {})
    for key, item in value.items():
        rule = known.get(key) or schema.get("additionalProperties")
        if rule is None:
            raise Violation(f"{where}: no property {key}")
        check(item, rule, where=f"{where}.{key}", asked=asked)


def _check_text(value: Any, schema: Json, where: str) -> None:
    if not isinstance(value, str):
        raise Violation(f"{where}: {value!r} is no text")
    if "enum" in schema and value not in schema["enum"]:
        raise Violation(f"{where}: {value!r} is none of {schema['enum']}")
    if "pattern" in schema and re.fullmatch(schema["pattern"], value) is None:
        raise Violation(f"{where}: {value!r} is not of the form {schema['pattern']}")
    if schema.get("format") in NUMBERS:
        _check_number(value, schema, where)
