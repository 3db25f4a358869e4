"""Users, and their logins."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from resolute_master.domain.ids import SessionId, UserId


class AgentUser(Struct, frozen=True, kw_only=True, gc=False):
    """An account of the machines that tasks run as, which an administrator has named."""

    uid: int
    gid: int
    user: str
    group: str


class Setting(Struct, frozen=True, kw_only=True, gc=False):
    """A text that a web interface stores for its user."""

    storage_path: str
    key: str
    value: str

    @property
    def id(self) -> tuple[str, str]:
        return self.storage_path, self.key


class Visit(Struct, frozen=True, kw_only=True, gc=False):
    """Time of a user's last view of a project."""

    project_id: int
    at: datetime


class Pin(Struct, frozen=True, kw_only=True, gc=False):
    """A workspace that the user has pinned, which is shown first."""

    workspace_id: int
    at: datetime


class User(Struct, frozen=True, kw_only=True, gc=False):
    """`password_hash` is a salted scrypt hash of the client's transformed password; never the password."""

    id: UserId
    username: str
    password_hash: str
    admin: bool = False
    active: bool = True
    display_name: str = ""
    modified_at: datetime
    last_login_at: datetime | None = None
    agent_user: AgentUser | None = None
    """None: tasks run as the account of the workspace, of the cluster, or one derived from the id."""
    settings: tuple[Setting, ...] = ()
    """Settings, by id."""
    visits: tuple[Visit, ...] = ()
    """One per project, the newest first."""
    pins: tuple[Pin, ...] = ()
    """One per workspace, the newest first."""


class Session(Struct, frozen=True, kw_only=True, gc=False):
    """A login. The signed token names it; when the session ends, the token becomes invalid."""

    id: SessionId
    user_id: UserId
    created_at: datetime
    expires_at: datetime
