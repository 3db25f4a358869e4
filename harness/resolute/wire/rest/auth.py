"""Login and users."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from resolute.wire.rest.enums import OrderBy, UserSortBy
from resolute.wire.rest.paging import Pagination


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


@dataclass(frozen=True, slots=True, kw_only=True)
class GetUsersResponse:
    """A page of users."""

    pagination: Pagination | None = None
    users: tuple[User, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GetUserResponse:
    """One user by id."""

    user: User


@dataclass(frozen=True, slots=True, kw_only=True)
class GetUserByUsernameResponse:
    """One user by name."""

    user: User


@dataclass(frozen=True, slots=True, kw_only=True)
class PostUserRequest:
    """A user to create. `is_hashed` as at login."""

    is_hashed: bool = False
    password: str | None = None
    user: User | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PostUserResponse:
    """The created user."""

    user: User | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchUser:
    """Changes of a user; None leaves a field as it is."""

    active: bool | None = None
    admin: bool | None = None
    agent_user_group: AgentUserGroup | None = None
    display_name: str | None = None
    is_hashed: bool | None = None
    password: str | None = None
    remote: bool | None = None
    username: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchUserResponse:
    """The changed user."""

    user: User


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUserPasswordResponse:
    """The user whose password was set."""

    user: User | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetUsersQuery:
    """Query of the user list."""

    active: bool | None = None
    admin: bool | None = None
    limit: int = 0
    name: str | None = None
    offset: int = 0
    order_by: OrderBy = OrderBy.UNSPECIFIED
    sort_by: UserSortBy = UserSortBy.UNSPECIFIED
