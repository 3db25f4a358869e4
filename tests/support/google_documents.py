"""Validates the calls of `det deploy gcp` with Google's published discovery documents.

The fake of Compute Engine has its own validation (`resolute_provisioner.clouds.gcp.fake_rules`). This module covers the other
interfaces as well, and checks the path, the parameters and the names in the body.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

DOCUMENTS = (
    "compute.v1",
    "sqladmin.v1",
    "secretmanager.v1",
    "iam.v1",
    "file.v1",
    "cloudresourcemanager.v1",
    "logging.v2",
)
Json = dict[str, Any]


class Violation(Exception):
    """No document contains the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoogleCall:
    """A call in a document. `method` is its id there, such as `sql.users.insert`."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Json | None


@cache
def _document(name: str) -> Json:
    folder = resources.files("googleapiclient") / "discovery_cache" / "documents"
    told: Json = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return told


@cache
def _methods() -> tuple[tuple[str, re.Pattern[str], Json], ...]:
    found = []
    for name in DOCUMENTS:
        document = _document(name)
        waiting = [document]
        while waiting:
            resource = waiting.pop()
            waiting += resource.get("resources", {}).values()
            for method in resource.get("methods", {}).values():
                found.append((name, _pattern(document, method), method))
    return tuple(found)


def _pattern(document: Json, method: Json) -> re.Pattern[str]:
    """A path with variables: `{+name}` matches a part with slashes, in the format of the parameter."""
    flat = "/" + document["servicePath"] + method["path"]
    text = ""
    for part in re.split(r"(\{\+?\w+\})", flat):
        if part.startswith("{+"):
            form = method["parameters"][part[2:-1]]["pattern"]
            text += form.removeprefix("^").removesuffix("$")
        else:
            text += "[^/]+" if part.startswith("{") else re.escape(part)
    return re.compile(text)


def understood(verb: str, target: str, body: bytes) -> GoogleCall:
    """Raises `Violation`."""
    parts = urlsplit(target)
    path, query = unquote(parts.path), dict(parse_qsl(parts.query, keep_blank_values=True))
    for name, pattern, method in _methods():
        if method["httpMethod"] == verb and pattern.fullmatch(path):
            document = _document(name)
            unknown = query.keys() - method["parameters"].keys() - document["parameters"].keys()
            if unknown:
                raise Violation(f"{method['id']}: no parameter {', '.join(sorted(unknown))}")
            decoded: Json | None = json.loads(body) if body else None
            if decoded is not None:
                _check(document, {"$ref": method["request"]["$ref"]}, decoded, method["id"])
            return GoogleCall(method=method["id"], path=path, query=query, body=decoded)
    raise Violation(f"no method {verb} {path}")


def _check(document: Json, schema: Json, value: Any, where: str) -> None:
    """Checks the names of properties, and their types (list, text, object)."""
    if "$ref" in schema:
        schema = document["schemas"][schema["$ref"]]
    kind = {dict: "object", list: "array", str: "string", bool: "boolean"}.get(type(value), "number")
    if schema["type"] not in (kind, "any") and not (kind == "number" and schema["type"] == "integer"):
        raise Violation(f"{where}: is {kind}, and not {schema['type']}")
    if isinstance(value, dict):
        for key, each in value.items():
            rule = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
            if rule is None:
                raise Violation(f"{where}: no property {key}")
            _check(document, rule, each, f"{where}.{key}")
    elif isinstance(value, list):
        for each in value:
            _check(document, schema["items"], each, where)
