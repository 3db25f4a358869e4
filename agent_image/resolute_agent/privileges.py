"""Giving up root: user, groups and capabilities of a task. Standard library only, Linux only.

The process that becomes a task begins as root, makes the task's view of the machine, and then gives up everything for good:
see capabilities(7) and prctl(2). Between the two, `acting_as` looks at files with the rights of the task's user.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 24, 38, 47, 4
_MOST_CAPABILITIES = 64
"""The kernel keeps them in 64 bits; it returns `EINVAL` for those that it does not have."""

UMASK = 0o022
"""Umask of a task. Its files are world-readable, because every user may read a checkpoint through the master."""

SHARED_UMASK = 0o002
"""Where the storage has the set-group-ID bit: its group may change what a task stores there."""


@functools.cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The user and group that a task runs as. `groups` are the supplementary groups."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()

    @classmethod
    def of(cls, launch: Mapping[str, Any]) -> Account | None:
        """The account that a launch file names (`run_as`); None where the task keeps the user of the agent."""
        given = launch.get("run_as")
        return None if given is None else cls(uid=given["uid"], gid=given["gid"], groups=tuple(given["groups"]))


def _set_file_system_ids(uid: int, gid: int) -> None:
    """The two calls report no error: for an id that does not exist they return the id in force."""
    libc = _libc()
    for name, wanted in (("setfsgid", gid), ("setfsuid", uid)):
        call = getattr(libc, name)
        call.argtypes = (ctypes.c_uint,)
        call(wanted)
        if call(ctypes.c_uint(-1).value) != wanted:
            raise PermissionError(errno.EPERM, f"{name} {wanted}")


@contextmanager
def acting_as(account: Account | None) -> Iterator[None]:
    """Files are looked up, opened and made with the rights of the account, whose supplementary groups this process must have
    already. The kernel takes the capabilities over files away meanwhile. None changes nothing."""
    if account is None:
        yield
        return
    _set_file_system_ids(account.uid, account.gid)
    try:
        yield
    finally:
        _set_file_system_ids(0, 0)


def become(account: Account) -> None:
    """Give up root for good: no capability, now or by a program that is executed later, and no way back."""
    libc = _libc()
    for number in range(_MOST_CAPABILITIES):
        if libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) != 0:
            if ctypes.get_errno() == errno.EINVAL:
                break
            raise OSError(ctypes.get_errno(), f"capability {number} cannot be dropped")
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)  # an old kernel has none
    os.setgroups(account.groups)
    os.setresgid(account.gid, account.gid, account.gid)
    os.setresuid(account.uid, account.uid, account.uid)  # takes the other capabilities
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs cannot be set")
