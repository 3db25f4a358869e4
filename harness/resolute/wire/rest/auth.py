"""Login, and the identity of the caller."""

# Written by scripts/rest_shapes.py: change its table or the contract, not this file.

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentUserGroup:
    """The operating-system user and group that tasks of a user run as."""

    agent_gid: int | None = None
    agent_group: str | None = None
    agent_uid: int | None = None
    agent_user: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user; `agent_user_group` None means the cluster default."""

    active: bool
    admin: bool
    username: str
    agent_user_group: AgentUserGroup | None = None
    display_name: str | None = None
    id: int | None = None
    last_auth_at: datetime | None = None
    modified_at: datetime | None = None
    remote: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginRequest:
    """`is_hashed`: `password` is the result of `resolute.wire.rest.passwords.hash_password`."""

    password: str
    username: str
    is_hashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginResponse:
    """The bearer token of a new session."""

    token: str
    user: User


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMeResponse:
    """The caller."""

    user: User


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentUserResponse:
    """The caller, by another path."""

    user: User
