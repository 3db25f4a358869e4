"""The master itself: identity, configuration, its own log, health."""

# Written by scripts/rest_shapes.py: change its table or the contract, not this file.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from resolute.wire.rest.enums import LogLevel, Product
from resolute.wire.rest.info import SSOProvider


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMessage:
    """A message to everyone on the cluster."""

    message: str
    start_time: datetime
    created_time: datetime | None = None
    end_time: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMasterResponse:
    """Identity and features; served without authentication."""

    cluster_id: str
    cluster_name: str
    has_custom_logo: bool
    master_id: str
    strict_job_queue_control: bool
    version: str
    """Version of the contract: the newest release of its client with which this master is tested."""
    branding: str | None = None
    cluster_message: ClusterMessage | None = None
    external_login_uri: str | None = None
    external_logout_uri: str | None = None
    feature_switches: tuple[str, ...] = ()
    product: Product | None = None
    rbac_enabled: bool = False
    resolute_version: str = ""
    """Version of this master."""
    sso_providers: tuple[SSOProvider, ...] = ()
    telemetry_enabled: bool = False
    user_management_enabled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMasterConfigResponse:
    """The effective configuration, secrets masked."""

    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class protobufFieldMask:
    """Dotted names of the keys that a patch means."""

    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Log settings that can change while the master runs."""

    color: bool = False
    level: LogLevel | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The part of the configuration that can change while the master runs."""

    log: LogConfig | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchMasterConfigRequest:
    """Change log settings until the next start."""

    config: Config | None = None
    field_mask: protobufFieldMask | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One line of the master's own log. `fields` are the ids that it is about: request_id, user, experiment, trial, ..."""

    id: int
    level: LogLevel
    message: str
    timestamp: datetime
    fields: Mapping[str, str] = field(default_factory=dict)
    logger: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterLogsResponse:
    """One item of the log stream."""

    log_entry: LogEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterLogsQuery:
    """Query of the master's log; a negative `offset` counts from the end."""

    follow: bool = False
    limit: int = 0
    offset: int = 0
    timestamp_after: datetime | None = None
