"""Users: list, create, change."""

# Written by scripts/rest_shapes.py: change its table or the contract, not this file.

from __future__ import annotations

from dataclasses import dataclass

from resolute.wire.rest.auth import AgentUserGroup, User
from resolute.wire.rest.enums import OrderBy, UserSortBy
from resolute.wire.rest.paging import Pagination


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
