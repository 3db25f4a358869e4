"""Containers of a Docker engine on this machine. The engine owns them and their output; this agent may come and go.

Each container has a directory of its own, `<directory>/containers/<id>`, in which everything about it is written down
before it is done; `docker_watch` names the files by which leases and kills are carried out also without an agent.

The output is the engine's: it is copied to the files `stdout` and `stderr` as it comes. After a restart of the agent or of
the engine it is read again from its beginning and what is there already is left out, so each byte is there once. Two
things the engine's own log does to output: a last line without an end gets one, and what is not UTF-8 is replaced.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

import resolute
from resolute.errors import FailedPrecondition, InvalidInput
from resolute.wire.agent_link import ContainerSpec, Exit, NoticeFile
from resolute.wire.states import FailureKind
from resolute_agent import supervisor
from resolute_agent.reach import refused_path
from resolute_agent.runtimes import docker_request
from resolute_agent.runtimes.base import LaunchAborted, LaunchFailed, LaunchRefused, TaskContext
from resolute_agent.runtimes.container_files import ContainerFiles
from resolute_agent.runtimes.docker_engine import Engine, EngineError, EngineGone, PullFailed
from resolute_agent.runtimes.docker_follow import Follower, recorded_end
from resolute_agent.runtimes.docker_request import EngineOptions, Surroundings
from resolute_agent.runtimes.docker_watch import (
    AGENT_LOCK,
    CONTAINERS,
    ENDED,
    EXIT,
    KILL,
    OWNER_LABEL,
    STARTED,
    WAKE,
    name_of,
)
from resolute_agent.runtimes.process import (
    make_run_directory,
)
from resolute_agent.runtimes.task_account import make_directories, open_storage
from resolute_agent.state import Found

log = logging.getLogger(__name__)

SPEC = "spec.json"
"""What was requested, as far as a later agent must know it."""

PULL_PAUSES_S = (2.0, 8.0)
"""Between attempts at a pull that may work the next time: a registry that is away for seconds costs no run."""

ENGINE_WAIT_S, ENGINE_PAUSE_S = 30.0, 0.5
"""Time that a start waits for an engine that does not answer: an update of it costs no run, and failures do not storm."""

SWEEP_S = (1.0, 10.0, 60.0)
"""After a start of the agent: containers whose creation was in progress when the last agent ended appear within these."""

_SAFE_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_REFUSED = ("OCI runtime create failed", "could not select device driver", "error gathering device information")


class DockerRuntime(ContainerFiles):
    """The runtime port over a Docker engine. Create with `open`, end with `close`; containers continue."""

    def __init__(
        self, directory: Path, engine: Engine, options: EngineOptions, wheel: Path, pull_pauses_s: Sequence[float]
    ) -> None:
        self._directory = directory
        super().__init__(directory / CONTAINERS)
        self._engine = engine
        self._options = options
        self._wheel = wheel
        self._pull_pauses_s = pull_pauses_s
        self._agents = (directory / AGENT_LOCK).open("w")
        self._followers: dict[str, Follower] = {}
        self._starting: dict[str, asyncio.Event] = {}
        self._work: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(
        cls,
        directory: Path,
        engine: Engine,
        options: EngineOptions | None = None,
        *,
        pull_pauses_s: Sequence[float] = PULL_PAUSES_S,
    ) -> DockerRuntime:
        """Make the directory, which must be this agent's alone, and put what containers need of us into it."""
        (directory / CONTAINERS).mkdir(parents=True, exist_ok=True, mode=0o700)
        directory = await asyncio.to_thread(directory.resolve)
        wheel = await asyncio.to_thread(_copied_package, directory)
        runtime = cls(directory, engine, options or EngineOptions(), wheel, pull_pauses_s)
        await asyncio.to_thread(fcntl.flock, runtime._agents, fcntl.LOCK_SH)
        return runtime

    async def close(self) -> None:
        """Let go of everything; containers and their leases continue."""
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        for follower in self._followers.values():
            await follower.stop()
        self._agents.close()
        self._wake()  # a watch with nothing to watch leaves
        await self._engine.close()

    # ---------------------------------------------------------------------------------------------------------- start

    async def start(self, spec: ContainerSpec, context: TaskContext) -> None:
        if not _SAFE_ID.fullmatch(spec.container_id):
            raise LaunchRefused(f"container id {spec.container_id!r} cannot be the name of a container")
        if problem := docker_request.why_not(spec, context.environment):
            raise LaunchRefused(problem)
        home = self._home(spec.container_id)
        if home.exists():
            raise LaunchFailed(f"{home} exists already")
        stop = self._starting[spec.container_id] = asyncio.Event()
        try:
            await self._start(home, spec, context, stop)
        except BaseException:
            with suppress(EngineError, EngineGone):  # otherwise the next sweep finds it
                await asyncio.shield(self._undo(home))
            raise
        finally:
            del self._starting[spec.container_id]
        self._follow(spec.container_id)

    async def _start(self, home: Path, spec: ContainerSpec, context: TaskContext, stop: asyncio.Event) -> None:
        name = name_of(spec.container_id)
        try:
            if problem := await asyncio.to_thread(refused_path, self._options.rules, spec):
                raise LaunchRefused(problem)
            self._prepare(home, spec, context)
            image = await self._image(spec, stop)
            around = self._surroundings(home, image)
            self._refuse_if_over(home)
            await self._engine.create(docker_request.create_body(spec, context, around, self._options), name)
            self._refuse_if_over(home)
            await self._engine.start(name)
            supervisor.write_whole(str(home / STARTED), b"{}")
        except InvalidInput as error:
            raise LaunchRefused(str(error)) from error
        except EngineGone as error:
            raise LaunchFailed(str(error)) from error
        except EngineError as error:
            raise _launch_error(spec, error) from error
        except OSError as error:
            raise LaunchFailed(f"cannot start a container in {home}: {error}") from error
        await self._wake_watch()

    def _prepare(self, home: Path, spec: ContainerSpec, context: TaskContext) -> None:
        home.mkdir(mode=0o700)
        make_run_directory(home / "run", spec, context)
        for stream, number in (("stdout", 1), ("stderr", 2)):
            (home / stream).touch(mode=0o600)
            (home / "run" / "train" / "logs" / f"{stream}.log").symlink_to(f"/proc/1/fd/{number}")
        if spec.options.user:
            _give_to(home / "run", spec.options.user)
        for host, _ in spec.shared_directories:
            try:
                if os.geteuid() == 0 and host in spec.options.configured_paths:
                    open_storage([host])
                else:
                    make_directories(host)
            except OSError as error:
                raise InvalidInput(
                    f"shared directory {host} cannot be made on this machine: {error.strerror}; name one that tasks "
                    "can write to (checkpoint_storage.host_path)"
                ) from error
        found = Found(
            container_id=spec.container_id,
            allocation_id=spec.allocation_id,
            task_id=spec.task_id,
            slots=tuple(sorted(spec.slots)),
        )
        self._write_lease(spec.container_id, context.lease_s)
        for name in (KILL, ENDED, supervisor.OFFSETS):
            supervisor.reserve(str(home / name))
        supervisor.write_whole(str(home / SPEC), msgspec.json.encode(found))

    def _surroundings(self, home: Path, image: Mapping[str, Any]) -> Surroundings:
        return Surroundings(
            owner=str(self._directory),
            run=str(home / "run"),
            wheel=str(self._wheel),
            image_environment=tuple((image.get("Config") or {}).get("Env") or ()),
            render_group=_group_of("/dev/kfd"),
        )

    async def _image(self, spec: ContainerSpec, stop: asyncio.Event) -> Mapping[str, Any]:
        """The engine's facts of the image, pulled where it must be. Raises `LaunchRefused` when it cannot be had."""
        image = await self._local_image(spec.image, stop)
        if image is not None and not spec.options.force_pull:
            return image
        credentials = docker_request.auth_for(spec.options.registry_auth, spec.image)
        log.info("container %s: pulling %s", spec.container_id, spec.image)
        pull = asyncio.create_task(self._pull(spec.image, credentials))
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([pull, stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            unfinished = not pull.done()
            for task in (pull, stopped):
                task.cancel()
            await asyncio.gather(pull, stopped, return_exceptions=True)
        if unfinished:
            raise LaunchAborted("killed while its image was pulled")
        pull.result()
        image = await self._engine.image(spec.image)
        if image is None:
            raise LaunchFailed(f"image {spec.image!r} was pulled, but no longer exists")
        return image

    async def _local_image(self, name: str, stop: asyncio.Event) -> Mapping[str, Any] | None:
        """What the engine has of an image; an engine that is being restarted is waited for."""
        until = supervisor.boot_time() + ENGINE_WAIT_S
        while True:
            try:
                return await self._engine.image(name)
            except EngineGone:
                if supervisor.boot_time() > until:
                    raise
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), ENGINE_PAUSE_S)
                raise LaunchAborted("killed before it was started")

    async def _pull(self, image: str, credentials: Mapping[str, str] | None) -> None:
        """Pull, again if that may help. Raises `LaunchRefused`."""
        for pause_s in (*self._pull_pauses_s, None):
            try:
                await self._engine.pull(image, credentials)
                return
            except PullFailed as error:
                if error.final or pause_s is None:
                    raise LaunchRefused(str(error)) from error
                log.warning("%s; once more in %g s", error, pause_s)
            await asyncio.sleep(pause_s)

    def _refuse_if_over(self, home: Path) -> None:
        """Nothing is started that was killed meanwhile, or whose lease a long pull has used up."""
        if (home / KILL).exists():
            raise LaunchAborted("killed before it was started")
        if self._leases[home.name] <= supervisor.boot_time():
            raise LaunchFailed("its lease ran out while its image was pulled: no master answered in time")

    async def _undo(self, home: Path) -> None:
        """Leave nothing of a start that did not come to its end."""
        await self._engine.remove(name_of(home.name))
        await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)

    # ----------------------------------------------------------------------------------------------------- afterwards

    async def adopt(self) -> tuple[Found, ...]:
        """Raises `EngineGone` when the engine does not answer: an agent without an answer must not report containers."""
        found = []
        for home in sorted(self._homes.iterdir()):
            if home.suffix == ".gone":
                await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)
            elif not (home / STARTED).exists():
                await self._undo(home)
            else:
                item = msgspec.json.decode((home / SPEC).read_bytes(), type=Found)
                found.append(replace(item, exit=recorded_end(home)))
                self._follow(home.name)
        await self._sweep()
        self._spawn(self._sweep_again())
        if found:
            await self._wake_watch()
        return tuple(found)

    async def _sweep(self) -> None:
        """Remove containers of this agent that have no record here, or whose end is recorded."""
        for name in await self._engine.owned(OWNER_LABEL, str(self._directory)):
            home = self._home(name.removeprefix("resolute-"))
            if (not home.exists() and home.name not in self._starting) or (home / EXIT).exists():
                log.info("removing container %s: it is no longer needed", name)
                await self._engine.remove(name)

    async def _sweep_again(self) -> None:
        for pause_s in SWEEP_S:
            await asyncio.sleep(pause_s)
            with suppress(EngineError, EngineGone):
                await self._sweep()

    def _follow(self, container_id: str) -> Follower:
        follower = self._followers.get(container_id)
        if follower is None:
            follower = self._followers[container_id] = Follower(self._home(container_id), self._engine, self._options)
            follower.begin()
        return follower

    async def wait(self, container_id: str) -> Exit:
        home = self._home(container_id)
        if not (home / STARTED).exists():
            return Exit(failure=FailureKind.RESTORE_ERROR, message="the container is unknown to the runtime")
        return await self._follow(container_id).end()

    async def kill(self, container_id: str, grace_s: float) -> None:
        home = self._home(container_id)
        if not home.is_dir() or (home / EXIT).exists():
            return
        at = supervisor.boot_time()
        before = supervisor.read_json(str(home / KILL))
        if before is None or at + grace_s < before["at"] + before["grace_s"]:
            supervisor.write_small(str(home / KILL), json.dumps({"grace_s": grace_s, "at": at}).encode())
        if container_id in self._starting:
            self._starting[container_id].set()
        await self._wake_watch()

    def renew(self, container_id: str, lease_s: float) -> None:
        if (self._home(container_id) / SPEC).exists():
            self._write_lease(container_id, lease_s)
            if not self._wake():
                self._spawn(self._wake_watch())

    def notify(self, container_id: str, notice: NoticeFile) -> None:
        home = self._home(container_id)
        if not (home / "run").is_dir() or (home / EXIT).exists():
            return
        pid = self._put_notice(home, notice)
        if pid is not None:
            self._spawn(self._signal_inside(container_id, pid))

    async def _signal_inside(self, container_id: str, pid: int) -> None:
        """The number is that of a process inside: only there it means anything."""
        try:
            await self._engine.run_inside(name_of(container_id), ["/bin/sh", "-c", f"kill -TERM {pid}"])
        except (EngineError, EngineGone) as error:
            log.warning("container %s: its task was not signalled: %s", container_id, error)

    # --------------------------------------------------------------------------------------------------------- output

    async def output_grown(self, container_id: str, offsets: Mapping[str, int]) -> None:
        follower = self._followers.get(container_id)
        if follower is not None and not self.output_ended(container_id):
            await follower.grown(offsets)

    async def forget(self, container_id: str) -> None:
        home = self._home(container_id)
        if not home.is_dir():
            return
        if (home / STARTED).exists() and not (home / EXIT).exists():
            raise FailedPrecondition(f"container {container_id} still runs; kill it first")
        follower = self._followers.pop(container_id, None)
        if follower is not None:
            await follower.finished()
        gone = home.with_name(f"{home.name}.gone")  # a half-removed directory must not look like a container
        os.replace(home, gone)
        self._forget(container_id)
        await asyncio.to_thread(shutil.rmtree, gone, ignore_errors=True)

    # --------------------------------------------------------------------------------------------------------- inside

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    def _wake(self) -> bool:
        """Make the watch look now. False when there is none."""
        try:
            descriptor = os.open(self._directory / WAKE, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            os.write(descriptor, b"x")
        except BlockingIOError:
            pass  # it has enough reasons to look already
        finally:
            os.close(descriptor)
        return True

    async def _wake_watch(self) -> None:
        """Make the watch look, and first make one where there is none."""
        if self._wake():
            return
        watch = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "resolute_agent.runtimes.docker_watch",
            "--detach",
            str(self._directory),
            self._engine.socket,
            stdin=asyncio.subprocess.DEVNULL,
        )
        await watch.wait()


def _launch_error(spec: ContainerSpec, error: EngineError) -> LaunchRefused | LaunchFailed:
    """What an engine's refusal means for the task."""
    said = str(error)
    if error.status == 409:
        return LaunchFailed(f"a container of this id exists already: {said}")
    if "could not select device driver" in said:
        return LaunchRefused(f"the engine cannot give GPUs to containers: {said}; install NVIDIA's container toolkit")
    if error.status in (400, 403, 404) or any(text in said for text in _REFUSED):
        return LaunchRefused(f"the engine cannot run image {spec.image!r} with the requested settings: {said}")
    return LaunchFailed(f"the engine did not start the container: {said}")


def _copied_package(directory: Path) -> Path:
    """A copy of our package for containers to mount: the place it was installed in holds others' packages as well.

    Named after what is in it, so that containers of an older version keep theirs.
    """
    source = Path(resolute.__file__).resolve().parent
    digest = hashlib.sha256()
    for path in sorted(source.rglob("*.py")):
        digest.update(f"{path.relative_to(source)} {path.stat().st_size} {path.stat().st_mtime_ns}\n".encode())
    target = directory / f"wheel-{digest.hexdigest()[:16]}"
    if not any((directory / CONTAINERS).iterdir()):
        for old in directory.glob("wheel-*"):
            if old != target:
                shutil.rmtree(old, ignore_errors=True)
    if not target.exists():
        fresh = target.with_suffix(".new")
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(source, fresh / "resolute")  # with its compiled modules: containers cannot write any
        fresh.chmod(0o755)
        os.replace(fresh, target)
    return target


def _give_to(directory: Path, user: str) -> None:
    """Make a directory and all in it the task's user's. Raises `InvalidInput` when `user` is not `uid:gid`."""
    try:
        uid, gid = (int(part) for part in user.split(":"))
    except ValueError:
        raise InvalidInput(f"the task's user {user!r} must be given as uid:gid, in numbers") from None
    for path in (directory, *directory.rglob("*")):
        os.chown(path, uid, gid, follow_symlinks=False)


def _group_of(device: str) -> str:
    try:
        return str(os.stat(device).st_gid)
    except FileNotFoundError:
        return ""
