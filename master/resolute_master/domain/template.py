"""A piece of configuration with a name, to be merged under what a user submits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """`id` is its name; `config` is part of an experiment's configuration."""

    id: str
    config: Mapping[str, Any]
    workspace_id: int = 1
