"""Users."""

from __future__ import annotations

from resolute.wire.rest.auth import User as WireUser
from resolute_master.api.submission import agent_users
from resolute_master.domain.user import User


def user(value: User) -> WireUser:
    return WireUser(
        id=value.id,
        username=value.username,
        admin=value.admin,
        active=value.active,
        display_name=value.display_name,
        modified_at=value.modified_at,
        last_auth_at=value.last_login_at,
        agent_user_group=agent_users.shown(value.agent_user),
    )
