"""What `/health` answers."""

# Written by scripts/rest_shapes.py: change its table or the contract, not this file.

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from resolute.wire.codec import Key
from resolute.wire.rest.enums import HealthStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceManagerHealth:
    """Health of one resource manager."""

    cluster_name: Annotated[str, Key("cluster_name")] = ""
    status: HealthStatus | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """Answer of `/health`, with snake_case names."""

    database: HealthStatus
    status: HealthStatus
    resource_managers: Annotated[tuple[ResourceManagerHealth, ...], Key("resource_managers")] = ()
