"""Settings and activity of a user of a web interface."""

# Written by scripts/rest_shapes.py: change its table or the contract, not this file.

from __future__ import annotations

from dataclasses import dataclass

from resolute.wire.rest.enums import ActivityType, EntityType
from resolute.wire.rest.workspaces import Project


@dataclass(frozen=True, slots=True, kw_only=True)
class UserWebSetting:
    """A text under a key; keys of different `storage_path` are different."""

    key: str
    storage_path: str | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetUserSettingResponse:
    """All of the caller's."""

    settings: tuple[UserWebSetting, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PostUserSettingRequest:
    """What there is under other keys stays."""

    settings: tuple[UserWebSetting, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PostUserActivityRequest:
    """What was looked at."""

    activity_type: ActivityType
    entity_id: int
    entity_type: EntityType


@dataclass(frozen=True, slots=True, kw_only=True)
class GetProjectsByUserActivityResponse:
    """The newest first."""

    projects: tuple[Project, ...] = ()
