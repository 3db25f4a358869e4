"""Templates: named parts of configurations, which are merged under what a user submits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from resolute_master.domain.ids import UserId


class Template(Struct, frozen=True, kw_only=True, gc=False):
    """`id` is its name; `config` is part of an experiment's configuration."""

    id: str
    config: Mapping[str, Any]
    workspace_id: int = 1
    owner: UserId = UserId(0)
    """Its creator; 0 in rows of releases that did not record it: only administrators change those."""
