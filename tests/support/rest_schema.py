"""The REST contract as data: message shapes, enums and endpoints, read from `rest-api.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One call of the contract; `tier` A, B or C. `operation` is empty for plain routes outside `/api/v1`.

    `called` is true if a part of the released client makes the call.
    """

    tier: str
    group: str
    called: bool
    operation: str
    method: str
    path: str
    query: tuple[str, ...]
    body_type: str | None
    response_type: str | None
    stream: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """`types` maps message name -> field name -> {"type": ..., "required": ...}; `enums` maps name -> values."""

    types: Mapping[str, Mapping[str, Mapping[str, Any]]]
    enums: Mapping[str, tuple[str, ...]]
    endpoints: tuple[Endpoint, ...]
    uncalled: tuple[tuple[str, str], ...]
    """Method and path of calls that bindings and scripts make, but no released command."""


@cache
def contract() -> Contract:
    data = json.loads((Path(__file__).parent / "rest-api.json").read_text())
    return Contract(
        types=data["types"],
        enums={name: tuple(values) for name, values in data["enums"].items()},
        endpoints=tuple(
            Endpoint(
                tier=entry["tier"],
                group=entry["group"],
                called=bool(entry.get("called_by_client")),
                operation=entry.get("op") or "",
                method=entry["method"],
                path=entry["path"],
                query=tuple((entry.get("request") or {}).get("query") or {}),
                body_type=(entry.get("request") or {}).get("body_type"),
                response_type=(entry.get("response") or {}).get("type"),
                stream=bool((entry.get("response") or {}).get("stream")),
            )
            for entry in data["endpoints"]
        ),
        uncalled=tuple((entry["method"], entry["path"]) for entry in data["defined_but_uncalled"]),
    )
