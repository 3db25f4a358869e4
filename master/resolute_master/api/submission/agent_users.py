"""The account of the machines that tasks of a user or of a workspace run as: read, checked, shown."""

from __future__ import annotations

import re

from resolute.errors import InvalidInput
from resolute.wire.rest.auth import AgentUserGroup
from resolute_master.domain.user import AgentUser

LARGEST_ID = 2**32 - 2
"""Largest number of a user or a group in Linux; the next number means none."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]{0,254}\$?")
_HINT = "give agentUid, agentGid, agentUser and agentGroup together (det user link-with-agent-user, det workspace edit)"


def asked(group: AgentUserGroup | None) -> tuple[AgentUser | None, bool]:
    """The account in a request, and whether the request removes the present one: an object without fields does.

    Raises `InvalidInput` naming the field.
    """
    if group is None:
        return None, False
    given = (group.agent_uid, group.agent_gid, group.agent_user, group.agent_group)
    if not any(each is not None and each != "" for each in given):
        return None, True
    for name, number in (("agentUid", group.agent_uid), ("agentGid", group.agent_gid)):
        if number is None or not 0 <= number <= LARGEST_ID:
            raise InvalidInput(f"agentUserGroup.{name}: {number} must be a number from 0 to {LARGEST_ID}; {_HINT}")
    for name, text in (("agentUser", group.agent_user), ("agentGroup", group.agent_group)):
        if text is None or not _NAME.fullmatch(text):
            raise InvalidInput(
                f"agentUserGroup.{name}: {text!r} must be the name of an account or group of Linux; {_HINT}"
            )
    assert group.agent_uid is not None and group.agent_gid is not None and group.agent_user and group.agent_group
    return AgentUser(uid=group.agent_uid, gid=group.agent_gid, user=group.agent_user, group=group.agent_group), False


def shown(account: AgentUser | None) -> AgentUserGroup | None:
    if account is None:
        return None
    return AgentUserGroup(
        agent_uid=account.uid, agent_gid=account.gid, agent_user=account.user, agent_group=account.group
    )
