"""People, and their logins."""

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


class Session(Struct, frozen=True, kw_only=True, gc=False):
    """A login. The signed token names it; ending the session makes the token worthless."""

    id: SessionId
    user_id: UserId
    created_at: datetime
    expires_at: datetime
