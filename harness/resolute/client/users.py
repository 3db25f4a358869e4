"""Users and passwords. Modules that only some calls need are imported by them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from resolute.client.paging import all_pages, segment
from resolute.client.session import Session
from resolute.wire.rest.auth import AgentUserGroup, GetMeResponse, User
from resolute.wire.rest.passwords import hash_password

if TYPE_CHECKING:
    from resolute.wire.rest.paging import Pagination
    from resolute.wire.rest.users import PatchUser


@dataclass(frozen=True, slots=True)
class Users:
    """Calls about users."""

    session: Session

    def me(self) -> User:
        return self.session.get("api/v1/me", GetMeResponse).user

    def logout(self) -> None:
        """Ends the session behind the token in use."""
        from resolute.wire.rest.empty import Empty

        self.session.post("api/v1/auth/logout", Empty)

    def list(self, *, active: bool | None = None) -> tuple[User, ...]:
        from resolute.wire.rest.users import GetUsersQuery, GetUsersResponse

        def fetch(offset: int) -> tuple[tuple[User, ...], Pagination | None]:
            query = GetUsersQuery(active=active, offset=offset)
            answer = self.session.get("api/v1/users", GetUsersResponse, query)
            return answer.users, answer.pagination

        return tuple(all_pages(fetch))

    def by_name(self, username: str) -> User:
        from resolute.wire.rest.users import GetUserByUsernameResponse

        path = f"api/v1/users/{segment(username)}/by-username"
        return self.session.get(path, GetUserByUsernameResponse).user

    def create(self, username: str, password: str, *, admin: bool = False) -> User | None:
        from resolute.wire.rest.users import PostUserRequest, PostUserResponse

        user = User(username=username, admin=admin, active=True, agent_user_group=None)
        request = PostUserRequest(user=user, password=hash_password(password), is_hashed=True)
        return self.session.post("api/v1/users", PostUserResponse, request).user

    def change(self, username: str, patch: PatchUser) -> User:
        """Applies a patch; unset fields stay as they are."""
        from resolute.wire.rest.users import PatchUserResponse

        path = f"api/v1/users/{segment(self.by_name(username).id)}"
        return self.session.patch(path, PatchUserResponse, patch).user

    def set_password(self, username: str, password: str) -> User:
        from resolute.wire.rest.users import PatchUser

        return self.change(username, PatchUser(password=hash_password(password), is_hashed=True))

    def link(self, username: str, group: AgentUserGroup) -> User:
        """Tasks of the user run as this user and group of the operating system."""
        from resolute.wire.rest.users import PatchUser

        return self.change(username, PatchUser(agent_user_group=group))
