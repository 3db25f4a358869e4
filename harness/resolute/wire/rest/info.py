"""The identity of the master at an address, which every command requests first."""

# Written by scripts/rest_shapes.py: change its table or the contract, not this file.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from resolute.wire.codec import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class SSOProvider:
    """A login service outside this master."""

    name: str
    sso_url: str
    type: str
    always_redirect: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """Answer of `/info`, the first request of every command; its names are snake_case on the wire."""

    cluster_id: Annotated[str, Key("cluster_id")]
    master_id: Annotated[str, Key("master_id")]
    version: str
    """Version of the contract: the newest release of its client with which this master is tested."""
    cluster_name: Annotated[str, Key("cluster_name")] = ""
    resolute_version: Annotated[str, Key("resolute_version")] = ""
    """Version of this master."""
    sso_providers: Annotated[tuple[SSOProvider, ...], Key("sso_providers")] = ()
    telemetry: Mapping[str, Any] = field(default_factory=dict)
