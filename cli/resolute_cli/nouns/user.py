"""`det user`: logins and users."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from resolute.errors import InvalidInput, ResoluteError, Unauthenticated
from resolute_cli.command import Command, Group
from resolute_cli.invocation import Invocation

if TYPE_CHECKING:
    from resolute.wire.rest.auth import AgentUserGroup


def log_in(cli: Invocation, args: argparse.Namespace) -> None:
    from resolute.client.authentication import DEFAULT_USER, login

    name = args.username or cli.given_user or cli.environ.get("DET_USER") or DEFAULT_USER
    password = cli.environ.get("DET_PASS")
    if password is None or cli.environ.get("DET_USER", name) != name:
        password = cli.ask_password(f"Password for user '{name}': ")
    session = cli.anonymous()
    try:
        answer = login(session, name, password)
    except Unauthenticated:
        raise InvalidInput(f"the master does not accept this password for user {name!r}; try another") from None
    cli.tokens().store(session.master, name, answer.token)
    if weakness := password_weakness(password):
        cli.render.warning(f"The password of {name!r} is weak: {weakness}. Change it with `det user change-password`.")
    cli.render.done(f"Logged in as user '{name}'", username=name, master=session.master)


def log_out(cli: Invocation, args: argparse.Namespace) -> None:
    from resolute.client.users import Users

    tokens, master = cli.tokens(), cli.master
    active = cli.given_user or tokens.active_user(master)
    names = tokens.users(master) if args.all else ([active] if active else [])
    for name in names:
        session = cli.anonymous()
        session.with_token(tokens.token(master, name))
        tokens.forget(master, name)
        try:
            Users(session).logout()
        except ResoluteError as error:  # the login is gone from here; the token may have ended before
            if not isinstance(error, Unauthenticated):
                cli.render.warning(f"The master could not be informed that {name!r} logged out: {error}")
    cli.render.done(f"Logged out: {', '.join(names)}" if names else "No user was logged in", usernames=list(names))


def who_am_i(cli: Invocation, args: argparse.Namespace) -> None:
    user = cli.api().users.me()
    cli.render.done(
        f"You are logged in as user '{user.username}'", username=user.username, id=user.id, admin=user.admin
    )


def list_users(cli: Invocation, args: argparse.Namespace) -> None:
    users = cli.api().users.list(active=None if args.all else True)
    columns: tuple[str, ...] = ("User Id", "Username", "Display Name", "Admin", "Active", "Remote")
    columns += ("Agent Uid", "Agent Gid", "Agent User", "Agent Group")
    rows = []
    for user in users:
        group = user.agent_user_group
        linked = (group.agent_uid, group.agent_gid, group.agent_user, group.agent_group) if group else (None,) * 4
        rows.append((user.id, user.username, user.display_name, user.admin, user.active, user.remote, *linked))
    cli.render.table(columns, rows, users)


def change_password(cli: Invocation, args: argparse.Namespace) -> None:
    api = cli.api()
    name = args.target_user or api.users.me().username
    password = cli.new_password(name)
    if weakness := password_weakness(password):
        cli.render.warning(f"That password is weak: {weakness}.")
    api.users.set_password(name, password)
    cli.render.done(f"Changed the password of user '{name}'", username=name)


def create_user(cli: Invocation, args: argparse.Namespace) -> None:
    api = cli.api()
    password = args.password if args.password is not None else cli.new_password(args.username)
    if weakness := password_weakness(password):
        cli.render.warning(f"That password is weak: {weakness}.")
    api.users.create(args.username, password, admin=args.admin)
    cli.render.done(f"Created user '{args.username}'", username=args.username, admin=args.admin)


def set_active(active: bool) -> Command:
    verb = "activate" if active else "deactivate"

    def run(cli: Invocation, args: argparse.Namespace) -> None:
        from resolute.wire.rest.users import PatchUser

        cli.api().users.change(args.username, PatchUser(active=active))
        cli.render.done(f"{verb.capitalize()}d user '{args.username}'", username=args.username, active=active)

    return Command(
        name=verb,
        help=f"{verb} a user",
        run=run,
        arguments=lambda p: p.add_argument("username", help="name of the user"),
    )


def rename(cli: Invocation, args: argparse.Namespace) -> None:
    from resolute.wire.rest.users import PatchUser

    cli.api().users.change(args.target_user, PatchUser(username=args.new_username))
    text = f"Renamed user '{args.target_user}' to '{args.new_username}'"
    cli.render.done(text, username=args.new_username, previous=args.target_user)


def link_with_agent_user(cli: Invocation, args: argparse.Namespace) -> None:
    from resolute.wire.rest.auth import AgentUserGroup

    group = agent_user_group(args)
    if group is None and not args.remove:
        raise InvalidInput(f"give all of {', '.join(AGENT_USER_FLAGS)}, or --remove")
    if group is not None and args.remove:
        raise InvalidInput("--remove removes the account, and excludes a new one")
    cli.api().users.link(args.username, group or AgentUserGroup())
    if group is None:
        cli.render.done(f"Tasks of user '{args.username}' no longer run as a linked account", username=args.username)
        return
    account = f"{group.agent_user}:{group.agent_group} ({group.agent_uid}:{group.agent_gid})"
    cli.render.done(f"New tasks of user '{args.username}' run as {account}", username=args.username, account=account)


AGENT_USER_FLAGS = ("--agent-uid", "--agent-user", "--agent-gid", "--agent-group")


def agent_user_arguments(parser: argparse.ArgumentParser) -> None:
    """The four flags that name an account of the machines."""
    parser.add_argument("--agent-uid", type=int, metavar="UID", help="number of the user that tasks run as")
    parser.add_argument("--agent-user", metavar="USER", help="its name")
    parser.add_argument("--agent-gid", type=int, metavar="GID", help="number of its group")
    parser.add_argument("--agent-group", metavar="GROUP", help="name of the group")


def agent_user_group(args: argparse.Namespace) -> AgentUserGroup | None:
    """What the four flags name; None without any. Raises `InvalidInput` for some of them."""
    from resolute.wire.rest.auth import AgentUserGroup

    given = (args.agent_uid, args.agent_user, args.agent_gid, args.agent_group)
    if all(each is None for each in given):
        return None
    missing = [flag for flag, value in zip(AGENT_USER_FLAGS, given, strict=True) if value is None]
    if missing:
        raise InvalidInput(
            f"{', '.join(missing)}: missing; an account is named by all of {', '.join(AGENT_USER_FLAGS)}"
        )
    return AgentUserGroup(
        agent_uid=args.agent_uid, agent_user=args.agent_user, agent_gid=args.agent_gid, agent_group=args.agent_group
    )


def password_weakness(password: str) -> str | None:
    """What a password lacks, as half a sentence; None for a good one."""
    if len(password) < 8:
        return "it has fewer than 8 characters"
    lacking = [
        name
        for name, pattern in (("an upper-case letter", "[A-Z]"), ("a lower-case letter", "[a-z]"), ("a digit", "[0-9]"))
        if not re.search(pattern, password)
    ]
    return f"it has no {lacking[0].split(' ', 1)[1]}" if lacking else None


def _create_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("username", help="name of the new user")
    parser.add_argument("--admin", action="store_true", help="make the user an administrator")
    parser.add_argument("--password", help="password of the new user (default: prompt)")


def _rename_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target_user", help="present name")
    parser.add_argument("new_username", help="new name")


def _link_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("username", help="name of the user")
    agent_user_arguments(parser)
    parser.add_argument("--remove", action="store_true", help="remove the linked account")


NOUN = Group(
    name="user",
    help="manage users and logins",
    default="list",
    commands=(
        Command(
            name="login",
            help="log in",
            run=log_in,
            arguments=lambda p: p.add_argument("username", nargs="?", help="name of the user"),
        ),
        Command(
            name="logout",
            help="log out",
            run=log_out,
            arguments=lambda p: p.add_argument(
                "-a", "--all", action="store_true", help="log out every user of this machine"
            ),
        ),
        Command(name="whoami", help="show who is logged in", run=who_am_i),
        Command(
            name="list",
            aliases=("ls",),
            help="list users",
            run=list_users,
            arguments=lambda p: p.add_argument("-a", "--all", action="store_true", help="inactive users too"),
            formats=("json", "csv"),
        ),
        Command(
            name="change-password",
            help="change a password",
            run=change_password,
            arguments=lambda p: p.add_argument(
                "target_user", nargs="?", help="user whose password changes (default: you)"
            ),
        ),
        Command(name="create", help="create a user", run=create_user, arguments=_create_arguments),
        set_active(True),
        set_active(False),
        Command(
            name="link-with-agent-user",
            help="choose the account of the machines that tasks of a user run as",
            run=link_with_agent_user,
            arguments=_link_arguments,
        ),
        Command(name="rename", help="rename a user", run=rename, arguments=_rename_arguments),
    ),
)
