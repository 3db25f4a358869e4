"""What the kernel does for a task: signals when a parent dies, namespaces, a root of its own. Standard library only, Linux only."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from typing import Any

from resolute.host_paths import HostPathRules

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
_MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36


@functools.cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    if _libc().prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def die_with_parent(with_signal: int, parent: int) -> None:
    """Ask the kernel for a signal when the parent dies; returns only while that parent lives."""
    prctl(PR_SET_PDEATHSIG, with_signal)
    if os.getppid() != parent:
        os._exit(1)


def _call(what: str, result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    arguments = [source.encode(), target.encode(), kind.encode() if kind else None]
    _call(f"mount {source} on {target}", _libc().mount(*arguments, ctypes.c_ulong(flags), data.encode() or None))


def enter_namespaces(mode: str) -> None:
    """Leave the machine's mount namespace; an ordinary user (`mode` "user") through a user namespace of the same id."""
    uid, gid = os.getuid(), os.getgid()
    _call("unshare", _libc().unshare(_CLONE_NEWNS | (_CLONE_NEWUSER if mode == "user" else 0)))
    if mode == "user":
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)


def private_root(launch: dict[str, Any]) -> list[str]:
    """Build a root of this process's own and move into it; returns what could not be made visible there.

    Everything of the machine is bound as it is, but `/run/determined` (the container's run directory), `/tmp` (its own)
    and the `binds`; `keep` names paths that must stay although they lie under `/tmp`.
    """
    root = launch["root"]
    _mount("tmpfs", root, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755,size=64m")
    hidden: list[str] = []
    # The entry that holds `root` comes first: a recursive bind would copy what is already built below it.
    entries = sorted(os.listdir("/"), key=lambda name: (not root.startswith(f"/{name}/"), name))
    for name in entries:
        if name not in ("run", "tmp"):
            _show(f"/{name}", f"{root}/{name}", hidden)
    os.mkdir(f"{root}/run")
    for name in sorted(os.listdir("/run")) if os.path.isdir("/run") else []:
        if name != "determined":
            _show(f"/run/{name}", f"{root}/run/{name}", hidden)
    os.mkdir(f"{root}/run/determined")
    _mount(launch["run"], f"{root}/run/determined", None, _MS_BIND)
    os.mkdir(f"{root}/tmp")
    _mount(launch["tmp"], f"{root}/tmp", None, _MS_BIND)
    for path in launch["keep"]:
        if path.startswith("/tmp/"):
            _bind(path, root + path)
    for source, target in launch["binds"]:
        existing = "/" + target.strip("/").split("/")[0]
        if existing not in ("/run", "/tmp") and os.path.isdir(existing) and not os.path.isdir(target):
            raise OSError(
                errno.ENOENT, f"{target}: no such directory on this machine, and it cannot be made in {existing}"
            )
        _bind_checked(source, root + target, HostPathRules(**launch["rules"]))
    if launch["shm_bytes"]:
        _mount("tmpfs", f"{root}/dev/shm", "tmpfs", _MS_NOSUID | _MS_NODEV, f"mode=1777,size={launch['shm_bytes']}")
    os.chdir(root)
    _call("pivot_root", _libc().pivot_root(b".", b"."))
    _call("umount2", _libc().umount2(b".", _MNT_DETACH))
    os.chdir("/")
    return hidden


def _bind(source: str, target: str) -> None:
    os.makedirs(target, exist_ok=True)
    _mount(source, target, None, _MS_BIND | _MS_REC)


def _bind_checked(source: str, target: str, rules: HostPathRules) -> None:
    """Bind what `source` leads to at this moment, if the rules allow that: a link that is swapped afterwards changes nothing."""
    descriptor = os.open(source, os.O_PATH | os.O_CLOEXEC)
    try:
        held = f"/proc/self/fd/{descriptor}"
        if problem := rules.why_not_resolved(os.readlink(held)):
            raise PermissionError(errno.EACCES, problem)
        os.makedirs(target, exist_ok=True)
        _mount(held, target, None, _MS_BIND | _MS_REC)
    finally:
        os.close(descriptor)


def _show(source: str, target: str, hidden: list[str]) -> None:
    """Make one entry of the machine's root visible; what the machine does not let us bind is noted."""
    try:
        if os.path.islink(source):
            os.symlink(os.readlink(source), target)
            return
        if os.path.isdir(source):
            os.mkdir(target)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
        _mount(source, target, None, _MS_BIND | _MS_REC)
    except OSError as error:
        hidden.append(f"{source} ({error})")


def probe(launch: dict[str, Any]) -> str:
    """Empty when private roots work here in `launch["mode"]`, else why not. Uses up this process's namespaces."""
    try:
        enter_namespaces(launch["mode"])
        private_root(launch)
    except OSError as error:
        return str(error)
    return "" if os.path.isdir("/run/determined") else "/run/determined is not there after the mounts"
