"""People, and their logins."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from resolute_master.domain.ids import SessionId, UserId


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """`password_hash` is a salted scrypt hash of the client's transformed password; never the password."""

    id: UserId
    username: str
    password_hash: str
    admin: bool = False
    active: bool = True
    display_name: str = ""
    modified_at: datetime
    last_login_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A login. The signed token names it; ending the session makes the token worthless."""

    id: SessionId
    user_id: UserId
    created_at: datetime
    expires_at: datetime
