"""The account that a task of processes runs as, where the agent is root: user, groups, and the files that it may use."""

from __future__ import annotations

import glob
import grp
import logging
import os
import pwd
import re
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resolute.wire.agent_link import Device, TaskUser
from resolute.wire.states import SlotKind
from resolute_agent.privileges import Account
from resolute_agent.runtimes.base import LaunchRefused

log = logging.getLogger(__name__)

STORAGE_MODE = 0o1777
"""Mode of a storage directory that the operator gives to tasks. Every task adds its own files. Only the owner of a file, the
storage's owner, or root can remove it. If the owner is not root, the directory has the set-group-ID bit as well: its group may
change the files, for a master that does not run as root."""

_DEVICE_FILES = {
    SlotKind.CUDA: ("/dev/nvidia*",),
    SlotKind.ROCM: ("/dev/kfd", "/dev/dri/renderD*", "/dev/dri/card*"),
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,30}")
"""What every program takes for the name of an account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAccount:
    """`user` and `group` are names that no other account of the machine has."""

    account: Account
    user: str
    group: str

    def as_launched(self) -> dict[str, Any]:
        """For `run_as` of a launch file."""
        return {"uid": self.account.uid, "gid": self.account.gid, "groups": list(self.account.groups)}


def account_for(wanted: TaskUser | None, devices: Sequence[Device]) -> TaskAccount:
    """Looks into the accounts of this machine, which may take a while where they come from a directory service.

    Raises `LaunchRefused` for a user that tasks do not run as here.
    """
    if wanted is None:
        raise LaunchRefused(
            "the master named no user for this task, and an agent that is root runs none as root: upgrade the master, or raise "
            "security.task_users.count of it"
        )
    if wanted.uid == 0 or wanted.gid == 0:
        raise LaunchRefused(
            f"the agent user {wanted.user}:{wanted.group} ({wanted.uid}:{wanted.gid}) is root or of its group, and processes of "
            "tasks never run as root; link another one (det user link-with-agent-user, det workspace edit --agent-uid)"
        )
    named, grouped = _user(wanted.uid), _group(wanted.gid)
    if wanted.derived and (named or grouped):
        raise LaunchRefused(
            f"the user of this task has the number {wanted.uid}, which belongs to {named or grouped!r} of this machine; choose "
            "another range with security.task_users.first_uid of the master, or link an agent user "
            "(det user link-with-agent-user)"
        )
    groups = {wanted.gid, *_device_groups(devices)}
    if named and not wanted.derived:
        groups |= set(os.getgrouplist(named, wanted.gid))
    return TaskAccount(
        account=Account(uid=wanted.uid, gid=wanted.gid, groups=tuple(sorted(groups))),
        user=named or _free(wanted.user, _user_named, f"task-{wanted.uid}"),
        group=grouped or _free(wanted.group, _group_named, f"task-{wanted.gid}"),
    )


def write_accounts(directory: Path, account: TaskAccount, home: str) -> list[tuple[str, str]]:
    """The machine's `passwd` and `group` with what they lack of the account, below `directory`; answers what goes where."""
    uid, gid = account.account.uid, account.account.gid
    lines = {}
    if not _user(uid):
        lines["/etc/passwd"] = f"{account.user}:x:{uid}:{gid}::{home}:/bin/sh\n"
    if not _group(gid):
        lines["/etc/group"] = f"{account.group}:x:{gid}:\n"
    placed = []
    for target, line in lines.items():
        source = directory / os.path.basename(target)
        try:
            text = Path(target).read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            continue
        directory.mkdir(exist_ok=True, mode=0o700)
        text = f"{text.rstrip()}\n{line}"
        source.write_text(text, encoding="utf-8", errors="surrogateescape")
        source.chmod(0o644)
        placed.append((str(source), target))
    return placed


def give(directory: Path, account: Account) -> None:
    """A directory that root has made, and all in it, to the account."""
    for path in (directory, *directory.rglob("*")):
        os.chown(path, account.uid, account.gid, follow_symlinks=False)


def make_directories(path: str) -> None:
    """With those above it, open to be entered and read: what an agent makes else is its own alone."""
    if os.path.isdir(path):
        return
    if (above := os.path.dirname(path)) != path:
        make_directories(above)
    try:
        os.mkdir(path)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    else:
        os.chmod(path, 0o755)


def open_storage(paths: Iterable[str]) -> None:
    """Let every task add to storages that the operator named, which are made if they are not there.

    A path that leads through a link is left as it is, and so is one that this machine's root may not change. Raises `OSError`.
    """
    for path in paths:
        make_directories(path)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except NotADirectoryError:
            continue
        try:
            status = os.fstat(descriptor)
            mode = stat.S_IMODE(status.st_mode)
            wanted = mode | STORAGE_MODE | (stat.S_ISGID if status.st_uid != 0 else 0)
            direct = os.readlink(f"/proc/self/fd/{descriptor}") == os.path.normpath(path)
            if direct and mode != wanted:
                with suppress(PermissionError):
                    os.fchmod(descriptor, wanted)
                    log.warning(
                        "checkpoint storage %s had the mode %o, which does not allow tasks to write; changed to %o",
                        path,
                        mode,
                        wanted,
                    )
        finally:
            os.close(descriptor)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""


def _user_named(name: str) -> bool:
    try:
        return bool(pwd.getpwnam(name))
    except KeyError:
        return False


def _group_named(name: str) -> bool:
    try:
        return bool(grp.getgrnam(name))
    except KeyError:
        return False


def _free(name: str, taken: Any, otherwise: str) -> str:
    return name if _NAME.fullmatch(name) and not taken(name) else otherwise


def _device_groups(devices: Sequence[Device]) -> set[int]:
    """The groups that a machine's accelerators are for, if not every user may use them."""
    found = set()
    for pattern in {pattern for device in devices for pattern in _DEVICE_FILES.get(device.kind, ())}:
        for path in glob.glob(pattern):
            status = os.stat(path)
            if status.st_mode & 0o006 != 0o006 and status.st_mode & 0o060 == 0o060 and status.st_gid != 0:
                found.add(status.st_gid)
    return found
