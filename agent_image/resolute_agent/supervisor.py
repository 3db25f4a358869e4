"""The process that owns one task: standard library only. It begins as a fork of the agent's `forkserver`.

It starts the task in a session of its own (in a private mount namespace where the machine allows one; where the agent is root, as
another user and in a PID namespace of its own), copies its output to append-only files, ends it when its lease runs out, when it is
ordered to or when the machine ends, leaves no process of it behind, and records how it ended. It does not depend on the agent:
everything is said through files in the container's directory, each replaced as a whole.

    spec.json        whose container it is (the runtime's own; synced to the disk before the end is written)
    launch.json      what to run (written by the runtime before): `argv`, or at once `module` if it is in memory already
    lease            "<until> <grace>": until when the task may live, in seconds of the boot-time clock, and how long
                     before that it is asked to end; prolonged by the agent
    kill.json        {"grace_s": ...}: end it; written by the agent, which then sends SIGUSR1
    supervisor.json  {"pid", "start_time"} of this process: written before `kill.json` is looked at for the first time,
                     so that an agent which writes `kill.json` and finds no `supervisor.json` knows: nothing will run.
                     Not synced to the disk, like `task.json`: no process outlives the machine's memory
    task.json        {"pid", "start_time"} of the task
    stdout, stderr   output
    stdout.times,    when it came: records of `STAMP`, (seconds since 1970, offset of the first byte that came then)
    stderr.times
    offsets.json     up to where the master has stored each stream; written by the agent
    exit.json        {"code", "reason", "message"}: the end; no process of the task is left when it appears

The output goes through pipes, not straight to the files: programs reopen `/dev/stdout` with truncation.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import json
import os
import select
import signal
import struct
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from resolute_agent import kernel
from resolute_agent.privileges import UMASK, Account, become

SPEC, LAUNCH, LEASE, KILL, SUPERVISOR, TASK, EXIT = (
    "spec.json",
    "launch.json",
    "lease",
    "kill.json",
    "supervisor.json",
    "task.json",
    "exit.json",
)
SMALL_BYTES = 128
"""Leases, orders and offsets are shorter and padded with spaces, so that each fits where the last one lay."""

RESERVE = ".reserve"
OWN_LOG = "supervisor.log"
OFFSETS = "offsets.json"

EXITED, KILLED, LEASE_OVER, ABORTED, LOST = "exited", "killed", "lease", "aborted", "lost"
"""Reasons of an end. `lost` is written by the runtime, when the supervisor itself was killed."""

OK, STOPPED_BEFORE, FAILED = "ok", "aborted", "failed"
"""First words of the answers to the starting agent; the last is followed by the reason."""

Program = Callable[[list[str]], int]
"""The `main` of a module that is imported already: takes arguments, returns the exit code."""

MARK = "DET_CONTAINER_ID"
"""The variable with the container of a process, which other processes can read."""

STAMP = struct.Struct("<dQ")
STAMP_EVERY_S = 0.01
"""Minimum time between two stamps of output; a task that writes without end must not fill the disk with times."""

MAX_UNSTORED_BYTES = 1024**3
"""Output of each stream on disk that the master has not stored. Past this the supervisor stops reading the pipe: the task blocks
when it writes more, no output is lost, and one task cannot fill the disk."""

LOOK_EVERY_S = 0.5
"""Interval between checks of a full disk or a full stream."""

MACHINE_PID_VARIABLE = "RESOLUTE_MACHINE_PID"

_CHUNK = 64 * 1024
_STUCK_S = 10.0  # how long to repeat the kill of processes that do not end (asleep in the kernel)


class Failed(Exception):
    """The task could not be started; the text is the reason."""


def boot_time() -> float:
    """Seconds since boot, sleep of the machine included: a lease must not stop with the machine."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; `None` when it has ended. With the pid it names a process."""
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
    except OSError:
        os.unlink(partial)  # an unused partial file must not keep a full disk full
        raise
    finally:
        os.close(descriptor)
    os.replace(partial, path)


def disk_is_full(error: OSError) -> bool:
    """Whether a write failed for lack of space or quota: it may succeed later."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def write_small(path: str, data: bytes, *, durable: bool = True) -> None:
    """As `write_whole`, for a file of at most `SMALL_BYTES`. On a full disk the bytes are written over the old ones, or over
    those of `reserve`: leases, orders and offsets must not wait for the space that a task has taken."""
    padded = data.ljust(SMALL_BYTES)
    try:
        write_whole(path, padded, durable=durable)
    except OSError as error:
        if not disk_is_full(error):
            raise
        place = next((each for each in (path, f"{path}{RESERVE}") if os.path.exists(each)), None)
        if place is None:
            raise
        descriptor = os.open(place, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, padded, 0)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if place != path:
            os.replace(place, path)


def reserve(path: str) -> None:
    """Take the space that `write_small` may need for a file that is not there yet."""
    write_whole(f"{path}{RESERVE}", b" " * SMALL_BYTES, durable=False)


def write_waiting(path: str, data: bytes, *, durable: bool = True, until: Callable[[], bool] = lambda: False) -> None:
    """As `write_whole`; on a full disk wait for space, or until `until` is true."""
    while True:
        try:
            write_whole(path, data, durable=durable)
            return
        except OSError as error:
            if not disk_is_full(error):
                raise
        if until():
            return
        time.sleep(LOOK_EVERY_S)


def sync(path: str) -> None:
    """Put a file that exists, its name included, on the disk."""
    for synced in (path, os.path.dirname(path)):
        descriptor = os.open(synced, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_json(path: str) -> Any:
    """The content of a JSON file; `None` when there is none."""
    try:
        with open(path, "rb") as file:
            return json.loads(file.read())
    except FileNotFoundError:
        return None


# ------------------------------------------------------------------------------------------------------------- task


def start_task(launch: dict[str, Any], stdout: int, stderr: int, programs: Mapping[str, Program]) -> int:
    """Fork the task; returns its pid once it runs. Raises `Failed` when its root cannot be made."""
    account = Account.of(launch)
    if account is not None:
        try:
            kernel.begin_pid_namespace(account)
            for stream in (stdout, stderr):
                os.fchown(stream, account.uid, account.gid)  # so that the task may open /dev/stdout
        except OSError as error:
            raise Failed(str(error)) from error
    supervisor = os.getpid() if account is None else 0  # as it is seen from inside
    said, say = os.pipe()  # closed when the task runs: silence is success
    pid = os.fork()
    if pid == 0:
        try:
            os.close(said)
            _become_task(launch, stdout, stderr, supervisor)
            program = programs.get(launch["module"])
            if program is not None:
                os._exit(_run_here(program, launch))
            _execute(launch)
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
    os.umask(UMASK)
    hidden: list[str] = []
    if launch["mode"] != kernel.NONE:
        kernel.enter_namespaces(launch["mode"])
        hidden = kernel.private_root(launch)
    account = Account.of(launch)
    if account is not None:
        become(account)
    # Not before: a change of the user clears this setting of the kernel.
    kernel.die_with_parent(signal.SIGKILL, supervisor)
    os.chdir(launch["workdir"])
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGPIPE, signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    # Each container gets these two of its own, for processes that write to its streams by name.
    for name, descriptor in (("stdout.log", 1), ("stderr.log", 2)):
        os.symlink(f"/proc/{os.getpid()}/fd/{descriptor}", f"{launch['run_inside']}/train/logs/{name}")
    for path in hidden:
        os.write(2, f"WARNING: not visible in this container: {path}\n".encode())


def _execute(launch: dict[str, Any]) -> None:
    argv, environment = launch["argv"], launch["environment"]
    try:
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        # As in a container, a missing command is a failure of the task, and its output shows it.
        os.write(2, f"ERROR: cannot run {argv[0]!r}: {error.strerror}\n".encode())
        os._exit(127 if error.errno in (errno.ENOENT, errno.ENOTDIR) else 126)


def _run_here(program: Program, launch: dict[str, Any]) -> int:
    """As `python -m` runs a program, but in this process; returns the exit code."""
    argv, environment = launch["argv"], launch["environment"]
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # a user namespace removed it, and with it access to `write_mark`
    write_mark(environment[MARK])
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = argv[2:]
    sys.path[:0] = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", *sys.path)]
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, write_through=True)  # type: ignore[union-attr]
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # `say` among them: the task runs
    try:
        return program(argv[3:])
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
    except BaseException:
        import traceback

        traceback.print_exc()
    return 1


def write_mark(container_id: str) -> None:
    """Write the id over the place that the first environment of this process holds for it.

    `/proc/<pid>/environ` shows what a process was executed with, and this one is a fork: see `processes.marked`.
    """
    stat = _stat(os.getpid())
    assert stat is not None
    first, end = int(stat[47]), int(stat[48])  # env_start and env_end of proc(5)
    place = ctypes.string_at(first, end - first).find(f"\0{MARK}=".encode())
    if place < 0:
        raise Failed(f"{MARK} is not in the environment of the forkserver")
    start = first + place + len(MARK) + 2
    room = len(ctypes.string_at(start))
    mark = container_id.encode()
    if len(mark) > room:
        raise Failed(f"the container's id has {len(mark)} characters, over the limit of {room}")
    ctypes.memmove(start, mark.ljust(room, b"\0"), room)


class Stream:
    """One output stream on its way from the task's pipe to its file."""

    def __init__(self, path: str, stored: Callable[[], int], *, limit: int = MAX_UNSTORED_BYTES) -> None:
        """`stored` is the offset up to which the master has it."""
        self.stored = stored
        self.known_stored = 0
        self.looked = 0.0
        self.limit = limit
        self.source, self.sink = os.pipe()
        os.set_blocking(self.source, False)
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self.file = os.open(path, append, 0o600)
        self.times = os.open(f"{path}.times", append, 0o600)
        self.length = os.fstat(self.file).st_size
        self.stamped = 0.0
        self.pending = b""
        self.open = True

    def held(self) -> bool:
        """Whether the task has to wait: more of its output is unstored than may be."""
        if self.length - self.known_stored < self.limit:
            return False
        if boot_time() - self.looked >= LOOK_EVERY_S:
            self.known_stored, self.looked = self.stored(), boot_time()
        return self.length - self.known_stored >= self.limit

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
            if not disk_is_full(error):
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

    def __init__(self, directory: str, programs: Mapping[str, Program]) -> None:
        self.directory = directory
        self.programs = programs
        self.reason = EXITED
        self.message = ""
        self.hard_at: float | None = None  # when the task is ended for good, once it was asked to end
        self.machine_died = False
        self.status: int | None = None  # of the task's first process, once it has ended
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
        """Start the task, write the result to `report` (`OK`, `STOPPED_BEFORE` or `FAILED` and why), and supervise it."""
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        self._stay_with_machine()
        launch = read_json(self.path(LAUNCH))
        me = {"pid": os.getpid(), "start_time": start_time(os.getpid())}
        write_whole(self.path(SUPERVISOR), json.dumps(me).encode(), durable=False)
        if read_json(self.path(KILL)) is not None:
            self.finish(None, ABORTED, "killed before it was started")
            _report(report, STOPPED_BEFORE)
            return
        self.streams = [Stream(self.path(name), functools.partial(self.stored, name)) for name in ("stdout", "stderr")]
        try:
            out, err = self.streams
            pid = start_task(launch, out.sink, err.sink, self.programs)
        except Failed as error:
            _report(report, f"{FAILED} {error}")
            return
        for stream in self.streams:
            os.close(stream.sink)
        task = {"pid": pid, "start_time": start_time(pid)}
        write_waiting(self.path(TASK), json.dumps(task).encode(), durable=False, until=lambda: self.machine_died)
        _report(report, OK)
        os.close(report)
        status = self.follow(pid)
        self.end_all(pid)
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
        kernel.die_with_parent(signal.SIGTERM, machine)

    def follow(self, pid: int) -> int:
        """Copy output and watch lease and orders until the task's first process has ended; returns its wait status."""
        while True:
            self.check_orders(pid)
            self.copy_output(self.timeout_s())
            status = self.reap(pid)
            if status is not None:
                return status
            if self.machine_died or (self.hard_at is not None and boot_time() >= self.hard_at):
                self.end_all(pid)

    def timeout_s(self) -> float:
        if self.hard_at is not None:
            return max(0.02, self.hard_at - boot_time())
        until, grace_s = self.lease()
        return max(0.02, until - grace_s - boot_time())

    def copy_output(self, timeout_s: float) -> None:
        """Wait for output, a signal or the timeout, and move what is there."""
        poll = select.poll()
        poll.register(self.woken, select.POLLIN)
        moving = [stream for stream in self.streams if stream.open and not stream.held()]
        for stream in moving:
            if not stream.pending:
                poll.register(stream.source, select.POLLIN)
        if any(stream.open and (stream.pending or stream not in moving) for stream in self.streams):
            timeout_s = min(timeout_s, LOOK_EVERY_S)  # the disk, or what the master has not stored yet, is full
        poll.poll(min(timeout_s, 3600.0) * 1000)
        try:
            os.read(self.woken, 4096)
        except BlockingIOError:
            pass
        for stream in moving:
            stream.copy()

    def stored(self, name: str) -> int:
        """Up to where the master has a stream; 0 before the agent has written anything down."""
        offsets = read_json(self.path(OFFSETS))
        return int(offsets.get(name, 0)) if isinstance(offsets, dict) else 0

    def reap(self, pid: int) -> int | None:
        """Collect ended processes, adopted ones too; the task's own status when it is among them."""
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == pid:
                    self.status = ended[1]
        except ChildProcessError:
            pass
        return self.status

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

    def end_all(self, pid: int) -> None:
        """SIGKILL to every process of the task, again until none is left: also those that left its session."""
        kill_until = boot_time() + _STUCK_S
        while True:
            living = descendants(os.getpid())
            if not living:
                return
            for each in living:
                try:
                    os.kill(each, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            if boot_time() > kill_until:
                self.message += f" (processes {living} do not end)"
                return
            time.sleep(0.002)
            self.reap(pid)  # the first process of a PID namespace does not end before all others in it were collected

    def last_output(self) -> None:
        """Everything the pipes still hold; a full disk is waited for."""
        for stream in self.streams:
            while stream.open and (stream.copy() or (stream.pending and not self.machine_died)):
                if stream.pending:
                    time.sleep(0.1)
            os.fsync(stream.file)

    def finish(self, code: int | None, reason: str, message: str) -> None:
        """Synced together with the data by which the agent identifies the container; a start waits for no disk."""
        sync(self.path(SPEC))
        end = {"code": code, "reason": reason, "message": message.strip()}
        write_waiting(self.path(EXIT), json.dumps(end).encode(), until=lambda: self.machine_died)


def _report(report: int, word: str) -> None:
    try:
        os.write(report, word.encode())
    except BrokenPipeError:
        pass  # the agent that asked has died; the next one looks at the files


def supervise(directory: str, report: int, programs: Mapping[str, Program]) -> None:
    """Body of the detached process; never returns."""
    try:
        own_log = os.open(os.path.join(directory, OWN_LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(own_log, 1)
        os.dup2(own_log, 2)
        os.close(own_log)
        Supervisor(directory, programs).run(report)
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)
