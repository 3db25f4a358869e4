"""What the kernel does for a task: signals when a parent dies, namespaces, a root of its own. Standard library only, Linux only."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import signal
import stat
import sys
from collections.abc import Callable
from typing import Any

from resolute.host_paths import HostPathRules, strictly_contains
from resolute_agent.privileges import SHARED_UMASK, UMASK, Account, acting_as, become

ISOLATED, ROOT, USER, NONE = "isolated", "root", "user", "none"
"""How much of a view of its own a task gets. `ISOLATED`: root makes it, and the task runs as another user, in a PID namespace of
its own, without capabilities. `ROOT` and `USER`: a mount namespace, and the task runs as the agent's user, root or not.
`NONE`: the machine as it is."""

_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
_MNT_DETACH = 2
_WORKS = "works"
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36


@functools.cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    if _libc().prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def die_with_parent(with_signal: int, parent: int) -> None:
    """Ask the kernel for a signal when the parent dies; returns only while that parent lives. A parent outside of this process's
    PID namespace has the number 0 here."""
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
    """Leave the machine's mount namespace; an ordinary user (`USER`) through a user namespace of the same id."""
    uid, gid = os.getuid(), os.getgid()
    _call("unshare", _libc().unshare(_CLONE_NEWNS | (_CLONE_NEWUSER if mode == USER else 0)))
    if mode == USER:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)


def begin_pid_namespace(account: Account) -> None:
    """The next children of this process live in a PID namespace of their own, which ends with this process.

    Its first process does nothing but keep it: it reaps orphaned processes, and the kernel ends everything in the
    namespace with it. It runs as the task's user and has nothing open.
    """
    _call("unshare", _libc().unshare(_CLONE_NEWPID))
    lives, _ = os.pipe()
    if os.fork() == 0:
        try:
            signal.set_wakeup_fd(-1)
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_DFL)  # the kernel keeps these from a namespace's first process
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel collects its children
            os.dup2(lives, 0)
            os.closerange(1, os.sysconf("SC_OPEN_MAX"))
            os.chdir("/")
            become(account)
            os.read(0, 1)  # nothing ever comes: the end of it is the end of the parent
        finally:
            os._exit(0)
    os.close(lives)  # its other end stays open until this process ends; no program that is executed inherits it


def private_root(launch: dict[str, Any]) -> list[str]:
    """Build a root of this process's own and move into it; returns what could not be made visible there.

    Everything of the machine is bound as it is, but `/run/determined` (the container's run directory), `/tmp` (its own)
    and the `binds`; `keep` names paths that must stay although they are under `/tmp`. A task of another user gets
    `/proc` and `/dev/shm` of its own as well, and sees an empty directory in place of those that are `covered`, and of those
    on the way to what it was lent (`lent`) that only others may enter.
    """
    root, account = launch["root"], Account.of(launch)
    os.umask(UMASK)
    if account is not None:
        os.setgroups(account.groups)
    _mount("tmpfs", root, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755,size=64m")
    hidden: list[str] = []
    # The entry that holds `root` comes first: a recursive bind would copy what is already built below it.
    entries = sorted(os.listdir("/"), key=lambda name: (not root.startswith(f"/{name}/"), name))
    for name in entries:
        if name not in ("run", "tmp", *(("proc",) if account else ())):
            _show(f"/{name}", f"{root}/{name}", hidden)
    os.mkdir(f"{root}/run")
    for name in sorted(os.listdir("/run")) if os.path.isdir("/run") else []:
        if name != "determined":
            _show(f"/run/{name}", f"{root}/run/{name}", hidden)
    os.mkdir(f"{root}/run/determined")
    _mount(launch["run"], f"{root}/run/determined", None, _MS_BIND)
    os.mkdir(f"{root}/tmp")
    _mount(launch["tmp"], f"{root}/tmp", None, _MS_BIND)
    _keep(launch, account)
    own = {os.stat(root).st_dev}
    if account is not None:
        own |= _separate(launch, account)
    for source, target in launch["binds"]:
        _bind_asked(launch, source, target, account, own)
    if launch["shm_bytes"]:
        _mount("tmpfs", f"{root}/dev/shm", "tmpfs", _MS_NOSUID | _MS_NODEV, f"mode=1777,size={launch['shm_bytes']}")
    os.chdir(root)
    _call("pivot_root", _libc().pivot_root(b".", b"."))
    _call("umount2", _libc().umount2(b".", _MNT_DETACH))
    os.chdir("/")
    return hidden


def _keep(launch: dict[str, Any], account: Account | None) -> None:
    """Bind what is under `/tmp` and stays visible, each once. What a task names itself its user must be able to reach."""
    lent, bound = launch["lent"] if account is not None else (), list[str]()
    for path in sorted({*launch["keep"], *lent}):
        if not path.startswith("/tmp/") or any(strictly_contains(outer, path) for outer in bound):
            continue
        if account is None or path in lent or not _closed_to(path, account):
            _bind(path, launch["root"] + path)
            bound.append(path)


def _separate(launch: dict[str, Any], account: Account) -> set[int]:
    """What only a task with a user of its own gets: see `private_root`. Answers the devices of the empty directories."""
    root = launch["root"]
    os.mkdir(f"{root}/proc")
    _mount("proc", f"{root}/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    if os.path.isdir(f"{root}/dev/shm"):
        _mount("tmpfs", f"{root}/dev/shm", "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=1777")
    for source, target in launch["etc"]:
        if os.path.isfile(root + target):
            _mount(source, root + target, None, _MS_BIND)
    covers = {path for path in launch["covered"] if os.path.isdir(root + path)}
    for path in launch["lent"]:
        closed = _closed_to(path, account)
        if closed and closed != "/tmp" and not closed.startswith("/tmp/") and os.path.isdir(root + closed):
            covers.add(closed)
    own = set()
    # From the outermost in: what was lent may hold something covered, and what is covered something lent.
    for path in sorted({*covers, *launch["lent"]}, key=lambda each: (each.count("/"), each)):
        if path in covers and os.path.isdir(root + path):  # else a cover above it hides it
            _mount("tmpfs", root + path, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755,size=1m")
            own.add(os.stat(root + path).st_dev)
        if path in launch["lent"] and any(strictly_contains(cover, path) for cover in covers):
            _bind(path, root + path)
    return own


def _closed_to(path: str, account: Account) -> str:
    """The first directory above the path that the account may not enter; empty when the way is open."""
    above = path
    ways = []
    while (above := os.path.dirname(above)) != "/":
        ways.append(above)
    with acting_as(account):
        for way in reversed(ways):
            try:
                os.stat(f"{way}/.")
            except PermissionError:
                return way
    return ""


def _bind_asked(launch: dict[str, Any], source: str, target: str, account: Account | None, own: set[int]) -> None:
    """One of the `binds`. What the operator gives (`given`) is opened by the agent; anything else with the rights of the task's
    user, which could not reach it by its own path either."""
    root, whose = launch["root"], None if source in launch["given"] else account
    existing = "/" + target.strip("/").split("/")[0]
    if existing not in ("/run", "/tmp") and os.path.isdir(existing) and not os.path.isdir(target):
        raise OSError(errno.ENOENT, f"{target}: no such directory on this machine, and it cannot be made in {existing}")
    if whose is not None and source in launch["shared"]:
        with acting_as(whose):
            try:
                os.makedirs(source, exist_ok=True)
            except OSError as error:
                raise OSError(error.errno, shared_problem(source, error)) from None
    _bind_checked(
        source,
        root + target,
        HostPathRules(**launch["rules"]),
        whose,
        functools.partial(_make_target, account=account, own=own),
    )
    if source in launch["shared"] and os.stat(root + target).st_mode & stat.S_ISGID:
        os.umask(SHARED_UMASK)


def shared_problem(path: str, error: OSError) -> str:
    """The error message for a storage directory that cannot be made."""
    return (
        f"shared directory {path} cannot be made on this machine: {error.strerror}; name one that tasks can write to "
        "(checkpoint_storage.host_path)"
    )


def _bind(source: str, target: str) -> None:
    os.makedirs(target, exist_ok=True)
    _mount(source, target, None, _MS_BIND | _MS_REC)


def _bind_checked(
    source: str, target: str, rules: HostPathRules, whose: Account | None, make: Callable[[str], None]
) -> None:
    """Bind what `source` leads to at this moment, if the rules allow that: a link that is swapped afterwards changes nothing."""
    with acting_as(whose):
        descriptor = os.open(source, os.O_PATH | os.O_CLOEXEC)
    try:
        held = f"/proc/self/fd/{descriptor}"
        if problem := rules.why_not_resolved(os.readlink(held)):
            raise PermissionError(errno.EACCES, problem)
        make(target)
        _mount(held, target, None, _MS_BIND | _MS_REC)
    finally:
        os.close(descriptor)


def _make_target(target: str, *, account: Account | None, own: set[int]) -> None:
    """A place to bind to. Where a task has a user of its own, root makes directories only in file systems that were mounted for
    this task (`own` are their devices): a link in something that was bound before must not lead it out."""
    if account is None or os.path.isdir(target):
        os.makedirs(target, exist_ok=True)
        return
    parent = os.path.dirname(target)
    _make_target(parent, account=account, own=own)
    with acting_as(None if os.stat(parent).st_dev in own else account):
        os.mkdir(target)


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
    account = Account.of(launch)
    if account is None:
        return _probe_here(launch, None)
    said, say = os.pipe()
    try:
        begin_pid_namespace(account)
        if os.fork() == 0:
            os.write(say, (_probe_here(launch, account) or _WORKS).encode())
            os._exit(0)
    except OSError as error:
        return str(error)
    os.close(say)
    with os.fdopen(said, "rb") as pipe:
        answer = pipe.read().decode(errors="replace")
    return "" if answer == _WORKS else answer or "the process that tried it died"


def _probe_here(launch: dict[str, Any], account: Account | None) -> str:
    try:
        enter_namespaces(launch["mode"])
        private_root(launch)
        if account is not None:
            become(account)
            prctl(PR_SET_DUMPABLE, 1)
            os.listdir("/proc/self/fd")
            if not os.access(sys.executable, os.X_OK):
                return f"{sys.executable} cannot be run by user {account.uid}"
    except OSError as error:
        return str(error)
    return "" if os.path.isdir("/run/determined") else "/run/determined is not there after the mounts"
