"""Containers as plain processes of this machine, each owned by a supervisor that outlives the agent. Linux only.

Every container has a directory below the runtime's own; agent and supervisor communicate by files in it
(see `resolute_agent.supervisor`), so an agent that starts again finds everything by looking.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from resolute.errors import FailedPrecondition
from resolute.wire.agent_link import (
    LONG_VARIABLES_FILE,
    STARTUP_HOOK_FILE,
    ContainerSpec,
    Exit,
    HandedFile,
    NoticeFile,
    named_python,
)
from resolute.wire.states import FailureKind
from resolute_agent import kernel, processes, supervisor
from resolute_agent.environment import MASTER_CERT, RUN_DIR, Place, long_variables, task_environment
from resolute_agent.reach import Reach, refused_path, rules_for
from resolute_agent.runtimes import left_out, task_python
from resolute_agent.runtimes.base import STREAMS, LaunchAborted, LaunchFailed, LaunchRefused, TaskContext
from resolute_agent.runtimes.container_files import ContainerFiles
from resolute_agent.runtimes.disk_space import FREED_AT_ONCE_BYTES, free_stored
from resolute_agent.runtimes.scripted import exit_with_code
from resolute_agent.runtimes.starting import Forkserver
from resolute_agent.runtimes.task_account import (
    TaskAccount,
    account_for,
    give,
    make_directories,
    open_storage,
    write_accounts,
)
from resolute_agent.state import Found

SPEC = supervisor.SPEC
HANDED = "handed.json"

LOOPBACK = "127.0.0.1"

PARALLEL_STARTS_PER_CPU = 2
"""Starting is bound by the processor; more at once only makes each slower."""

FIRST_POLL_S, SLOWEST_POLL_S = 0.05, 0.4
"""How often a quiet output file is looked at."""

NOBODY_UID = 65534
"""The user of the probe's task: a number without an account."""

NOTHING_ASKED: Mapping[str, Any] = {"keep": [], "binds": [], "rules": {"remedy": ""}, "shm_bytes": 0}
"""Request of the probe's task."""

_SAFE_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateRoots:
    """What the probe found: `mode` is one of `resolute_agent.kernel`, and `reason` is why it is no better one."""

    mode: str
    reason: str = ""

    @property
    def private(self) -> bool:
        return self.mode != kernel.NONE

    @property
    def isolated(self) -> bool:
        """Whether tasks run as users of their own."""
        return self.mode == kernel.ISOLATED


async def probe_private_roots(directory: Path, starter: Forkserver, *, isolated: bool = True) -> PrivateRoots:
    """Try a private root as a task would get one, in a scratch directory that is removed again."""
    as_root = ([kernel.ISOLATED] if isolated else []) + [kernel.ROOT]
    modes = [*(as_root if os.geteuid() == 0 else []), kernel.USER]
    scratch = directory / "probe"
    reasons: list[str] = []
    try:
        for name in ("root", "run"):
            (scratch / name).mkdir(parents=True, exist_ok=True)
        _make_temporary(scratch / "tmp")
        paths = {name: str(scratch / name) for name in ("root", "run", "tmp")}
        for mode in modes:
            asked = {**paths, **NOTHING_ASKED, "mode": mode}
            if mode == kernel.ISOLATED:
                run_as = {"uid": NOBODY_UID, "gid": NOBODY_UID, "groups": [NOBODY_UID]}
                asked |= {"run_as": run_as, "etc": [], "covered": [], "lent": _programs(), "keep": _programs()}
            said = await starter.ask({"probe": asked})
            if said == supervisor.OK:
                return PrivateRoots(mode=mode, reason="; ".join(reasons))
            reasons.append(said or "the process that tried it died")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return PrivateRoots(mode=kernel.NONE, reason="; ".join(reasons))


class ProcessRuntime(ContainerFiles):
    """The runtime port over processes. `directory` must be this agent's alone; create with `ProcessRuntime.open`."""

    def __init__(
        self, directory: Path, roots: PrivateRoots, *, reach: Reach | None = None, starter: Forkserver | None = None
    ) -> None:
        super().__init__(directory)
        self._starter = starter or Forkserver()
        self.private_roots = roots
        self._reach = reach or Reach()
        self._starts = asyncio.Semaphore(PARALLEL_STARTS_PER_CPU * (os.cpu_count() or 1))
        self._freed: dict[tuple[str, str], int] = {}

    @classmethod
    async def open(
        cls, directory: Path, *, private_root: bool = True, isolated: bool = True, reach: Reach | None = None
    ) -> ProcessRuntime:
        """Make the directory and find out whether tasks get a private root (never when `private_root` is false), and whether in it
        they run as users of their own (never when `isolated` is false: for programs of ours that reach out of a task)."""
        directory = _made(directory)
        roots = PrivateRoots(mode=kernel.NONE, reason="switched off by the agent's configuration")
        starter = Forkserver()
        if private_root:
            roots = await probe_private_roots(directory, starter, isolated=isolated)
        return cls(directory, roots, reach=reach, starter=starter)

    async def close(self) -> None:
        """End what starts containers; they continue. A later start brings it back."""
        await asyncio.to_thread(self._starter.close)

    # ---------------------------------------------------------------------------------------------------------- start

    async def start(self, spec: ContainerSpec, context: TaskContext) -> None:
        if not _SAFE_ID.fullmatch(spec.container_id):
            raise LaunchRefused(f"container id {spec.container_id!r} cannot be the name of a directory")
        if not spec.command:
            raise LaunchRefused("the container has no command")
        home = self._home(spec.container_id)
        if home.exists():
            raise LaunchFailed(f"{home} exists already")
        async with self._starts:
            said = await self._ask_to_start(home, spec, context)
            if not said and not await self._end_half_started(home):
                shutil.rmtree(home, ignore_errors=True)
                said = await self._ask_to_start(home, spec, context)  # the forkserver died of something else; once more
        if said == supervisor.OK:
            return
        own_log = (
            (home / supervisor.OWN_LOG).read_text(errors="replace") if (home / supervisor.OWN_LOG).exists() else ""
        )
        shutil.rmtree(home, ignore_errors=True)
        if said == supervisor.STOPPED_BEFORE:
            raise LaunchAborted("killed before it was started")
        if said:
            raise LaunchRefused(f"the container's root cannot be made: {said.removeprefix(supervisor.FAILED).strip()}")
        raise LaunchFailed(f"the supervisor died before the task ran: {own_log.strip() or 'it wrote nothing'}")

    async def _ask_to_start(self, home: Path, spec: ContainerSpec, context: TaskContext) -> str:
        account = None
        if self.private_roots.isolated:
            account = await asyncio.to_thread(account_for, spec.run_as, context.devices)
        try:
            self._prepare(home, spec, context, account)
            return await self._starter.ask({"start": str(home)})
        except OSError as error:
            shutil.rmtree(home, ignore_errors=True)
            raise LaunchFailed(f"cannot start a container in {home}: {error}") from error

    async def _end_half_started(self, home: Path) -> bool:
        """The result of the start is unknown: end what was started. False if nothing was started, and then nothing will be.

        A process that could still start it would hold the pipe of the answer, whose end was read.
        """
        process = self._supervisor(home)
        if process is None:
            return False
        supervisor.write_small(str(home / supervisor.KILL), b'{"grace_s": 0}')
        processes.send_signal(*process, signal.SIGUSR1)
        await processes.ended(*process)
        await asyncio.to_thread(self._end_of, home)
        return True

    def _prepare(self, home: Path, spec: ContainerSpec, context: TaskContext, account: TaskAccount | None) -> None:
        """The container's directory, complete before anything runs; the launch file last.

        Nothing of it waits for the disk: what a power cut loses, no process has outlived. See `supervisor.finish`.
        """
        if problem := refused_path(self._reach.rules, spec):
            raise LaunchRefused(problem)
        _make_folders(home, spec, context)
        if account is not None:
            give(home / "run", account.account)
        for host, _ in spec.shared_directories:
            try:
                if account is None:
                    make_directories(host)
                elif host in spec.options.configured_paths:
                    open_storage([host])
            except OSError as error:
                shutil.rmtree(home, ignore_errors=True)
                raise LaunchRefused(kernel.shared_problem(host, error)) from error
        if problem := left_out.why_not(spec.options.mounts, private_root=self.private_roots.private):
            shutil.rmtree(home, ignore_errors=True)
            raise LaunchRefused(problem)
        if warnings := left_out.warnings(spec, own_user=account is not None):
            (home / "stderr").write_text("".join(f"WARNING: {warning}\n" for warning in warnings))
        found = Found(
            container_id=spec.container_id,
            allocation_id=spec.allocation_id,
            task_id=spec.task_id,
            slots=tuple(sorted(spec.slots)),
        )
        supervisor.write_whole(str(home / SPEC), msgspec.json.encode(found), durable=False)
        for name in (supervisor.KILL, supervisor.OFFSETS):
            supervisor.reserve(str(home / name))
        self._write_lease(spec.container_id, context.lease_s)
        launch = self._launch(home, spec, context, account)
        supervisor.write_whole(str(home / supervisor.LAUNCH), json.dumps(launch).encode(), durable=False)

    def _launch(
        self, home: Path, spec: ContainerSpec, context: TaskContext, account: TaskAccount | None
    ) -> dict[str, Any]:
        """The supervisor's input: see `launch.json` there."""
        private = self.private_roots.private
        hosts = [host for host, _ in spec.shared_directories]
        run_dir = RUN_DIR if private else str(home / "run")
        place = Place(
            run_dir=run_dir,
            tmp_dir=str(home / "tmp"),
            private_root=private,
            python_bin=str(Path(sys.executable).parent),
            package_roots=(
                f"{run_dir}/{task_python.PACKAGES}" if named_python(spec.environment) else task_python.package_root(),
            ),
            user=account.user if account is not None else "",
        )
        environment = task_environment(spec, context.environment, context.devices, place)
        programs = (*_homes_of_programs(environment["PATH"]), *task_python.homes(environment))
        asked = [spec.working_directory, *hosts, *programs]
        argv, module = task_python.launched(spec.command, environment)
        launch = {
            "argv": argv,
            "module": module,
            "environment": environment,
            "workdir": environment["DET_WORKDIR"],
            "mode": self.private_roots.mode,
            "root": str(home / "root"),
            "run": str(home / "run"),
            "run_inside": place.run_dir,
            "tmp": str(home / "tmp"),
            "keep": self._kept(asked),
            "binds": [
                *spec.shared_directories,
                *((mount.host_path, mount.container_path) for mount in spec.options.mounts),
            ],
            "shared": hosts,
            "given": list(spec.options.configured_paths),
            "rules": asdict(rules_for(self._reach.rules, spec)),
            "shm_bytes": spec.shm_bytes if private else 0,
        }
        if account is None:
            return launch
        given = [host for host in hosts if host in spec.options.configured_paths]
        return {
            **launch,
            "run_as": account.as_launched(),
            "etc": write_accounts(home / "etc", account, place.run_dir),
            "covered": [path for path in self._reach.rules.state if os.path.isdir(path)],
            "lent": self._kept(given),
        }

    def _kept(self, asked: Sequence[str]) -> list[str]:
        """Existing directories that a task is to see although they are in something that is hidden from it: what an agent's task
        always needs, and what this one asks for, by every name."""
        wanted = {*_programs(), *self._reach.keep, *asked}
        real = {form for path in wanted if path for form in (os.path.abspath(path), os.path.realpath(path))}
        return sorted(path for path in real if os.path.isdir(path))

    # ----------------------------------------------------------------------------------------------------- afterwards

    async def adopt(self) -> tuple[Found, ...]:
        found = []
        for home in sorted(self._homes.iterdir()):
            if home.suffix == ".gone":
                shutil.rmtree(home, ignore_errors=True)
            elif (item := await self._adopt_one(home)) is not None:
                found.append(item)
        return tuple(found)

    async def _adopt_one(self, home: Path) -> Found | None:
        if self._supervisor(home) is None:
            # Perhaps the last agent died while it started this. The second writer sees the first: see `supervisor`.
            supervisor.write_small(str(home / supervisor.KILL), b'{"grace_s": 0}')
            if self._supervisor(home) is None:
                await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)
                return None
        try:
            item = msgspec.json.decode((home / SPEC).read_bytes(), type=Found)
        except (FileNotFoundError, msgspec.DecodeError):
            # Lost with the machine's power while the task ran: its end was not written either.
            await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)
            return None
        process = self._supervisor(home)
        if process is not None and processes.is_alive(*process):
            return item
        return replace(item, exit=await asyncio.to_thread(self._end_of, home))

    async def wait(self, container_id: str) -> Exit:
        home = self._home(container_id)
        process = self._supervisor(home)
        if process is None:
            return Exit(failure=FailureKind.RESTORE_ERROR, message="the container is unknown to the runtime")
        await processes.ended(*process)
        return await asyncio.to_thread(self._end_of, home)

    def _end_of(self, home: Path) -> Exit:
        """The end of a container whose supervisor has ended; when it was killed itself, its leftovers go too."""
        end = supervisor.read_json(str(home / supervisor.EXIT))
        if end is None:
            processes.end_marked("DET_CONTAINER_ID", home.name)
            message = "its supervisor was killed; the exit code of the task is unknown"
            end = {"code": None, "reason": supervisor.LOST, "message": message}
            supervisor.write_waiting(str(home / supervisor.EXIT), json.dumps(end).encode())
        return exit_of(end)

    async def kill(self, container_id: str, grace_s: float) -> None:
        home = self._home(container_id)
        if not home.is_dir() or (home / supervisor.EXIT).exists():
            return
        before = supervisor.read_json(str(home / supervisor.KILL))
        if before is None or grace_s < before["grace_s"]:
            supervisor.write_small(str(home / supervisor.KILL), json.dumps({"grace_s": grace_s}).encode())
        process = self._supervisor(home)
        if process is not None:
            processes.send_signal(*process, signal.SIGUSR1)

    def renew(self, container_id: str, lease_s: float) -> None:
        if (self._home(container_id) / supervisor.LAUNCH).exists():
            self._write_lease(container_id, lease_s)

    def notify(self, container_id: str, notice: NoticeFile) -> None:
        home = self._home(container_id)
        if not (home / "run").is_dir() or (home / supervisor.EXIT).exists():
            return
        number = self._put_notice(home, notice)
        process = self._supervisor(home)
        if number is None or process is None:
            return
        for pid in supervisor.descendants(process[0]):
            if processes.number_inside(pid) == number:
                processes.send_signal(pid, supervisor.start_time(pid), signal.SIGTERM)

    # --------------------------------------------------------------------------------------------------------- output

    async def output_grown(self, container_id: str, offsets: Mapping[str, int]) -> None:
        poll_s = FIRST_POLL_S
        while not self.output_ended(container_id):
            if any(self.output_size(container_id, stream) > offsets.get(stream, 0) for stream in STREAMS):
                return
            await asyncio.sleep(poll_s)
            poll_s = min(SLOWEST_POLL_S, poll_s * 2)

    def save_offsets(self, container_id: str, offsets: Mapping[str, int]) -> None:
        super().save_offsets(container_id, offsets)
        home = self._home(container_id)
        if home.is_dir():
            for stream, stored in offsets.items():
                freed = self._freed.get((container_id, stream), 0)
                if stored - freed >= FREED_AT_ONCE_BYTES:
                    self._freed[container_id, stream] = free_stored(home / stream, freed=freed, stored=stored)

    async def forget(self, container_id: str) -> None:
        home = self._home(container_id)
        if not home.is_dir():
            return
        process = self._supervisor(home)
        if process is not None and processes.is_alive(*process) and not (home / supervisor.EXIT).exists():
            raise FailedPrecondition(f"container {container_id} still runs; kill it first")
        gone = home.with_name(home.name + ".gone")  # a half-removed directory must not look like a container
        os.replace(home, gone)
        self._forget(container_id)
        for stream in STREAMS:
            self._freed.pop((container_id, stream), None)
        await asyncio.to_thread(shutil.rmtree, gone, ignore_errors=True)

    # --------------------------------------------------------------------------------------------------------- inside

    def _supervisor(self, home: Path) -> tuple[int, int | None] | None:
        """Pid and start time of a container's supervisor, once there was one."""
        try:
            written = supervisor.read_json(str(home / supervisor.SUPERVISOR))
        except ValueError:
            return None  # not synced when the machine's power failed; no process has outlived that
        return None if written is None else (int(written["pid"]), written["start_time"])


def _make_folders(home: Path, spec: ContainerSpec, context: TaskContext) -> None:
    """A run directory, a temporary folder, and a place to mount a root on."""
    make_run_directory(home / "run", spec, context)
    if named_python(spec.environment):
        task_python.link_package(home / "run")
    home.chmod(0o700)  # `parents` ignores the mode
    (home / "root").mkdir(mode=0o700)
    _make_temporary(home / "tmp")


def _make_temporary(directory: Path) -> None:
    """What a task sees as `/tmp`: open to every user, whatever the agent's umask."""
    directory.mkdir(exist_ok=True)
    directory.chmod(0o1777)


def make_run_directory(run: Path, spec: ContainerSpec, context: TaskContext) -> None:
    """The folders that a task finds in its run directory, and what was sent along for its launcher."""
    for folder in ("info", "workdir", "pythonuserbase", "train/model", "train/logs"):
        (run / folder).mkdir(parents=True, mode=0o700)
    for parent in (run, run / "train"):
        parent.chmod(0o700)
    if context.master_cert:
        path = run / MASTER_CERT
        path.parent.mkdir(parents=True, mode=0o700)
        path.write_text(context.master_cert)
    handed = HandedFile(
        code=spec.code,
        # What the master would answer, which has the address from our reports.
        container_addrs=(context.address or LOOPBACK,) if spec.alone else (),
        container_slot_counts=(len(spec.slots),) if spec.alone else (),
    )
    supervisor.write_whole(str(run / HANDED), msgspec.json.encode(handed), durable=False)
    if long := long_variables(spec):
        supervisor.write_whole(str(run / LONG_VARIABLES_FILE), msgspec.json.encode(long), durable=False)
    if spec.startup_hook:
        hook = run / STARTUP_HOOK_FILE
        supervisor.write_whole(str(hook), spec.startup_hook.encode(), durable=False)
        hook.chmod(0o744)


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    return directory.resolve()


def exit_of(end: Mapping[str, Any]) -> Exit:
    """The end in the words of the wire, from a supervisor's `exit.json`."""
    code, reason, message = end["code"], end["reason"], end["message"]
    failures = {
        supervisor.ABORTED: FailureKind.ABORTED,
        supervisor.LEASE_OVER: FailureKind.AGENT_FAILED,
        supervisor.LOST: FailureKind.TASK_ERROR,
    }
    if reason in failures:
        return Exit(failure=failures[reason], message=message)
    if code == 0:
        return Exit(code=0, message=message)
    if code < 0:
        number = 128 - code
        died = f"died by {signal.Signals(-code).name}" if -code in set(signal.Signals) else f"died by signal {-code}"
        return Exit(code=number, failure=FailureKind.CONTAINER_FAILED, message=message or died)
    plain = exit_with_code(code)
    return Exit(code=code, failure=plain.failure, message=message or plain.message)


def _programs() -> list[str]:
    """The directories of this agent's Python, and of what it imports."""
    executable = os.path.dirname(os.path.realpath(sys.executable))
    own = {
        sys.prefix,
        sys.base_prefix,
        os.path.dirname(sys.executable),
        executable,
        task_python.package_root(),
        *sys.path,
    }
    return sorted(path for path in own if path.startswith("/") and os.path.isdir(path))


def _homes_of_programs(search_path: str) -> list[str]:
    """The environments that a task's `PATH` names: `<home>/bin` needs its `<home>`."""
    return [os.path.dirname(entry) for entry in search_path.split(":") if os.path.basename(entry) == "bin"]
