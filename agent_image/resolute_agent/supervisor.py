"""The process that owns one task: standard library only, one file, run as `python -S -E supervisor.py <directory>`.

It starts the task in a session of its own (in a private mount namespace where the machine allows one), copies its
output to append-only files, ends it when its lease runs out, when it is told to or when the machine dies, leaves no
process of it behind, and records how it ended. It does not depend on the agent's life: everything is said through
files in the container's directory, each replaced as a whole.

    launch.json      what to run (written by the runtime before)
    lease            "<until> <grace>": until when the task may live, in seconds of the boot-time clock, and how long
                     before that it is asked to end; prolonged by the agent
    kill.json        {"grace_s": ...}: end it; written by the agent, which then sends SIGUSR1
    supervisor.json  {"pid", "start_time"} of this process: written before `kill.json` is looked at for the first time,
                     so that an agent which writes `kill.json` and finds no `supervisor.json` knows: nothing will run
    task.json        {"pid", "start_time"} of the task
    stdout, stderr   output
    stdout.times,    when it came: records of `STAMP`, (seconds since 1970, offset of the first byte that came then)
    stderr.times
    exit.json        {"code", "reason", "message"}: the end; no process of the task is left when it appears

The output goes through pipes, not straight to the files: programs reopen `/dev/stdout` with truncation.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import signal
import struct
import sys
import time
from typing import Any

LAUNCH, LEASE, KILL, SUPERVISOR, TASK, EXIT = (
    "launch.json",
    "lease",
    "kill.json",
    "supervisor.json",
    "task.json",
    "exit.json",
)

EXITED, KILLED, LEASE_OVER, ABORTED, LOST = "exited", "killed", "lease", "aborted", "lost"
"""Reasons of an end. `lost` is written by the runtime, when the supervisor itself was killed."""

LAUNCH_FAILED = 3
"""Exit code of the starting process when the task could not be started; it says why on its standard output."""

STAMP = struct.Struct("<dQ")
STAMP_EVERY_S = 0.01
"""Output is stamped at most so often; a task that writes without end must not fill the disk with times."""

MACHINE_PID_VARIABLE = "RESOLUTE_MACHINE_PID"

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
_MNT_DETACH = 2
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_CHUNK = 64 * 1024
_STUCK_S = 10.0  # how long to insist on the end of processes that do not go (sleeping in the kernel)


class Failed(Exception):
    """The task could not be started; the text says why."""


def boot_time() -> float:
    """Seconds since boot, sleep of the machine included: a lease must not stand still with the machine."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; `None` when it is gone. With the pid it names a process."""
    stat = _stat(pid)
    return None if stat is None or stat[0] in ("Z", "X") else int(stat[19])


def parent_of(pid: int) -> int | None:
    stat = _stat(pid)
    return None if stat is None else int(stat[1])


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat from the third (state) on."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


def descendants(pid: int) -> list[int]:
    """Living processes below `pid`, zombies left out."""
    children: dict[int, list[int]] = {}
    living = set()
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := _stat(int(name))) is not None:
            children.setdefault(int(stat[1]), []).append(int(name))
            if stat[0] not in ("Z", "X"):
                living.add(int(name))
    found, open_ends = [], [pid]
    while open_ends:
        below = children.get(open_ends.pop(), [])
        found += [child for child in below if child in living]
        open_ends += below
    return found


def write_whole(path: str, data: bytes, *, durable: bool = True) -> None:
    """Replace a file: a reader finds the old content or the new one."""
    partial = f"{path}.partial"
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(partial, path)


def read_json(path: str) -> Any:
    """The content of a JSON file; `None` when there is none."""
    try:
        with open(path, "rb") as file:
            return json.loads(file.read())
    except FileNotFoundError:
        return None


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> None:
    if _libc().prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def die_with_parent(with_signal: int, parent: int) -> None:
    """Ask the kernel for a signal when the parent dies; returns only while that parent lives."""
    prctl(_PR_SET_PDEATHSIG, with_signal)
    if os.getppid() != parent:
        os._exit(1)


# ------------------------------------------------------------------------------------------------------ private root


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
        _bind(source, root + target)
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


# ------------------------------------------------------------------------------------------------------------- task


def start_task(launch: dict[str, Any], stdout: int, stderr: int) -> int:
    """Fork and execute the task; returns its pid once it executes. Raises `Failed` when its root cannot be made."""
    supervisor = os.getpid()
    said, say = os.pipe()  # closed by a successful exec: silence is success
    pid = os.fork()
    if pid == 0:
        try:
            os.close(said)
            _become_task(launch, stdout, stderr, supervisor)
        except BaseException as error:
            os.write(say, f"{type(error).__name__}: {error}"[:4000].encode())
        os._exit(127)
    os.close(say)
    with os.fdopen(said, "rb") as pipe:
        problem = pipe.read().decode(errors="replace")
    if problem:
        os.waitpid(pid, 0)
        raise Failed(problem)
    return pid


def _become_task(launch: dict[str, Any], stdout: int, stderr: int, supervisor: int) -> None:
    os.setsid()
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    hidden: list[str] = []
    if launch["mode"] != "none":
        enter_namespaces(launch["mode"])
        hidden = private_root(launch)
    die_with_parent(signal.SIGKILL, supervisor)
    os.chdir(launch["workdir"])
    for number in (signal.SIGPIPE, signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    # Each container gets these two of its own, for processes that write to its streams by name.
    for name, descriptor in (("stdout.log", 1), ("stderr.log", 2)):
        os.symlink(f"/proc/{os.getpid()}/fd/{descriptor}", f"{launch['run_inside']}/train/logs/{name}")
    for path in hidden:
        os.write(2, f"WARNING: not visible in this container: {path}\n".encode())
    argv, environment = launch["argv"], launch["environment"]
    try:
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        # As in a container, a command that is not there is the task's failure, told in its output.
        os.write(2, f"ERROR: cannot run {argv[0]!r}: {error.strerror}\n".encode())
        os._exit(127 if error.errno in (errno.ENOENT, errno.ENOTDIR) else 126)


class Stream:
    """One output stream on its way from the task's pipe to its file."""

    def __init__(self, path: str) -> None:
        self.source, self.sink = os.pipe()
        os.set_blocking(self.source, False)
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self.file = os.open(path, append, 0o600)
        self.times = os.open(f"{path}.times", append, 0o600)
        self.length = os.fstat(self.file).st_size
        self.stamped = 0.0
        self.pending = b""
        self.open = True

    def copy(self) -> bool:
        """Move what is there; False when nothing was, or when the disk does not take it (the task then waits)."""
        if not self.pending:
            try:
                self.pending = os.read(self.source, _CHUNK)
            except BlockingIOError:
                return False
            if not self.pending:
                self.open = False
                return False
            self.stamp()
        try:
            while self.pending:
                self.pending = self.pending[os.write(self.file, self.pending) :]
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            return False
        return True

    def stamp(self) -> None:
        """Note when these bytes came, before they can be read: a line keeps its time however late it is shipped."""
        now = time.clock_gettime(time.CLOCK_REALTIME)
        if abs(now - self.stamped) >= STAMP_EVERY_S:
            try:
                os.write(self.times, STAMP.pack(now, self.length))
                self.stamped = now
            except OSError:
                pass  # a full disk costs times, not lines
        self.length += len(self.pending)


class Supervisor:
    """The life of one task, from its start to `exit.json`."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.reason = EXITED
        self.message = ""
        self.hard_at: float | None = None  # when the task is ended for good, once it was asked to end
        self.machine_died = False
        self.woken, wake = os.pipe()
        os.set_blocking(self.woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGTERM, self._machine_died)

    def _machine_died(self, *_: object) -> None:
        self.machine_died = True

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def run(self, report: int) -> None:
        """Start the task, say on `report` how that went, and stay with it."""
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._stay_with_machine()
        launch = read_json(self.path(LAUNCH))
        me = {"pid": os.getpid(), "start_time": start_time(os.getpid())}
        write_whole(self.path(SUPERVISOR), json.dumps(me).encode())
        if read_json(self.path(KILL)) is not None:
            self.finish(None, ABORTED, "killed before it was started")
            os.write(report, b"aborted\n")
            return
        self.streams = [Stream(self.path("stdout")), Stream(self.path("stderr"))]
        try:
            pid = start_task(launch, *(stream.sink for stream in self.streams))
        except Failed as error:
            os.write(report, f"failed {error}\n".encode())
            return
        for stream in self.streams:
            os.close(stream.sink)
        write_whole(self.path(TASK), json.dumps({"pid": pid, "start_time": start_time(pid)}).encode())
        os.write(report, b"ok\n")
        os.close(report)
        status = self.follow(pid)
        self.end_all()
        self.last_output()
        if self.machine_died:
            os._exit(0)  # a machine that is gone leaves no word
        self.finish(os.waitstatus_to_exitcode(status), self.reason, self.message)

    def _stay_with_machine(self) -> None:
        """On the local cloud the machine is a process; its death is that of everything on it."""
        machine = int(os.environ.get(MACHINE_PID_VARIABLE) or 0)
        if not machine:
            return
        for _ in range(1000):  # until the process between us is gone and the machine has adopted us
            if os.getppid() == machine:
                break
            time.sleep(0.001)
        die_with_parent(signal.SIGTERM, machine)

    def follow(self, pid: int) -> int:
        """Copy output and watch lease and orders until the task's first process has ended; returns its wait status."""
        while True:
            self.check_orders(pid)
            self.copy_output(self.timeout_s())
            status = self.reap(pid)
            if status is not None:
                return status
            if self.machine_died or (self.hard_at is not None and boot_time() >= self.hard_at):
                self.end_all()

    def timeout_s(self) -> float:
        if self.hard_at is not None:
            return max(0.02, self.hard_at - boot_time())
        until, grace_s = self.lease()
        return max(0.02, until - grace_s - boot_time())

    def copy_output(self, timeout_s: float) -> None:
        """Wait for output, a signal or the timeout, and move what is there."""
        poll = select.poll()
        poll.register(self.woken, select.POLLIN)
        for stream in self.streams:
            if stream.open and not stream.pending:
                poll.register(stream.source, select.POLLIN)
        if any(stream.pending for stream in self.streams):
            timeout_s = min(timeout_s, 0.5)  # the disk is full: try again soon
        poll.poll(min(timeout_s, 3600.0) * 1000)
        try:
            os.read(self.woken, 4096)
        except BlockingIOError:
            pass
        for stream in self.streams:
            if stream.open:
                stream.copy()

    def reap(self, pid: int) -> int | None:
        """Collect ended processes, adopted ones too; the task's own status when it is among them."""
        found = None
        while True:
            try:
                ended, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return found
            if ended == 0:
                return found
            if ended == pid:
                found = status

    def lease(self) -> tuple[float, float]:
        with open(self.path(LEASE)) as file:
            until, grace_s = file.read().split()
        return float(until), float(grace_s)

    def check_orders(self, pid: int) -> None:
        now = boot_time()
        until, grace_s = self.lease()
        order = read_json(self.path(KILL))
        if order is not None:
            self.ask_to_end(pid, now + float(order["grace_s"]), KILLED, "killed")
        elif now >= until - grace_s:
            self.ask_to_end(pid, until, LEASE_OVER, "its lease ran out: no master answered in time")

    def ask_to_end(self, pid: int, hard_at: float, reason: str, message: str) -> None:
        """SIGTERM once; after the grace everything is ended. A later order can only shorten the grace."""
        if self.hard_at is None:
            self.reason, self.message = reason, message
            if hard_at > boot_time():
                try:
                    os.killpg(pid, signal.SIGTERM)
                except ProcessLookupError:
                    pass
        if self.hard_at is None or hard_at < self.hard_at:
            self.hard_at = hard_at

    def end_all(self) -> None:
        """SIGKILL to every process of the task, again until none is left: also those that left its session."""
        insist_until = boot_time() + _STUCK_S
        while True:
            living = descendants(os.getpid())
            if not living:
                return
            for pid in living:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            if boot_time() > insist_until:
                self.message += f" (processes {living} do not end)"
                return
            time.sleep(0.002)

    def last_output(self) -> None:
        """Everything the pipes still hold."""
        until = boot_time() + 1.0
        for stream in self.streams:
            while stream.open and (stream.copy() or (stream.pending and boot_time() < until)):
                if stream.pending:
                    time.sleep(0.1)
            os.fsync(stream.file)

    def finish(self, code: int | None, reason: str, message: str) -> None:
        end = {"code": code, "reason": reason, "message": message.strip()}
        write_whole(self.path(EXIT), json.dumps(end).encode())


# ------------------------------------------------------------------------------------------------------------- entry


def detach(directory: str) -> int:
    """Start the supervisor as nobody's child; returns once the task runs, or could not be started."""
    said, say = os.pipe()
    middle = os.fork()
    if middle == 0:
        os.setsid()
        if os.fork() == 0:
            os.close(said)
            _supervise(directory, say)
        os._exit(0)
    os.close(say)
    os.waitpid(middle, 0)
    with os.fdopen(said, "rb") as pipe:
        word = pipe.read().decode(errors="replace").strip()
    if word in ("ok", "aborted"):
        return 0
    print(word.removeprefix("failed ") or "the supervisor died; see supervisor.log")
    return LAUNCH_FAILED


def _supervise(directory: str, report: int) -> None:
    """Body of the detached process; never returns."""
    try:
        diary = os.open(os.path.join(directory, "supervisor.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(diary, 1)
        os.dup2(diary, 2)
        os.close(diary)
        Supervisor(directory).run(report)
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def main(arguments: list[str]) -> int:
    if len(arguments) == 3 and arguments[1] == "--probe":
        problem = probe(json.loads(arguments[2]))
        print(problem)
        return 1 if problem else 0
    if len(arguments) != 2:
        print("usage: supervisor.py DIRECTORY", file=sys.stderr)
        return 2
    return detach(os.path.abspath(arguments[1]))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
