"""Users and their logins."""

from __future__ import annotations

from resolute.errors import AlreadyExists, FailedPrecondition, NotFound
from resolute_master.domain.commands import ChangeUser, CreateUser, StartSession
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import SessionId, UserId
from resolute_master.domain.user import Session, User
from resolute_master.lifecycle.step import Step


def create(step: Step, command: CreateUser) -> UserId:
    if step.find(User, "user_by_name", command.username):
        raise AlreadyExists(f"user '{command.username}' exists already")
    _check_display_name(step, command.display_name, None)
    id_ = UserId(step.next_number("user"))
    step.put(
        User(
            id=id_,
            username=command.username,
            password_hash=command.password_hash,
            admin=command.admin,
            active=command.active,
            display_name=command.display_name,
            agent_user=command.agent_user,
            modified_at=step.now,
        )
    )
    return id_


def change(step: Step, command: ChangeUser) -> None:
    """Changes a user. A new password ends every session of the user, so that a stolen login becomes invalid."""
    user = step.get(User, command.user)
    if user is None:
        raise NotFound("user", command.user)
    wanted = user.username if command.username is None else command.username
    if wanted != user.username and step.find(User, "user_by_name", wanted):
        raise AlreadyExists(f"user '{wanted}' exists already")
    if command.display_name is not None and command.display_name != user.display_name:
        _check_display_name(step, command.display_name, user.id)
    changed = replace(
        user,
        username=wanted,
        password_hash=user.password_hash if command.password_hash is None else command.password_hash,
        admin=user.admin if command.admin is None else command.admin,
        active=user.active if command.active is None else command.active,
        display_name=user.display_name if command.display_name is None else command.display_name,
        agent_user=None if command.without_agent_user else command.agent_user or user.agent_user,
        modified_at=step.now,
    )
    _keep_an_administrator(step, user, changed)
    step.put(changed)
    if not changed.active or command.password_hash is not None:
        for session in step.find(Session, "sessions_of_user", user.id):
            step.delete(session)


def _check_display_name(step: Step, name: str, of: UserId | None) -> None:
    """Raises `AlreadyExists` for a display name in use, because display names distinguish users."""
    wanted = name.strip().casefold()
    if not wanted:
        return
    for other in step.all(User):
        if other.id != of and wanted in (other.username.casefold(), other.display_name.strip().casefold()):
            raise AlreadyExists(
                f"displayName: '{name}' is the name or the display name of user '{other.username}'; choose another"
            )


def _keep_an_administrator(step: Step, user: User, changed: User) -> None:
    """Raises an error if no active administrator would be left, because only administrators can appoint others."""
    if not (user.admin and user.active) or (changed.admin and changed.active):
        return
    if not any(other.admin and other.active for other in step.all(User) if other.id != user.id):
        key = "active" if not changed.active else "admin"
        raise FailedPrecondition(
            f"{key}: must stay true, as '{user.username}' is the last active administrator; "
            "make another user an administrator first"
        )


def start_session(step: Step, command: StartSession) -> None:
    user = step.get(User, command.user)
    if user is None:
        raise NotFound("user", command.user)
    step.put(replace(user, last_login_at=step.now))
    step.put(Session(id=command.session, user_id=user.id, created_at=step.now, expires_at=command.expires_at))


def end_session(step: Step, id_: SessionId) -> None:
    session = step.get(Session, id_)
    if session is not None:
        step.delete(session)
