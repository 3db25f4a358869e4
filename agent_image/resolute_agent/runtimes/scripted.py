"""Containers that are coroutines: for tests, demonstrations without processes, and the simulator.

By default a container executes its environment variable `RESOLUTE_SCRIPT`, steps separated by `;`:

    pull 3s              takes that long to start
    refuse REASON        the start is refused for good
    fail REASON          the start fails this time
    run 40s              works for that long (also `sleep 40s`)
    log 5 lines          writes that many numbered lines to stdout
    say TEXT             writes one line to stdout
    ignore kill          does not end when asked politely, only at the end of the grace
    ignore kill 60s      is stuck: even the hard end takes effect only after that long
    exit 137             ends with that code (0 when the script just ends)

Only `asyncio` sleeps: no threads, no processes, so that it runs under a virtual loop. The object is the machine, not
the agent: a new agent that is given the same object adopts what the last one left.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from resolute.errors import FailedPrecondition, InvalidInput
from resolute.wire.agent_link import ContainerSpec, Exit, NoticeFile
from resolute.wire.states import FailureKind
from resolute_agent.runtimes.base import STREAMS, LaunchAborted, LaunchFailed, LaunchRefused, TaskContext
from resolute_agent.state import Found

SCRIPT_VARIABLE = "RESOLUTE_SCRIPT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a script: a verb and its argument (seconds, a count, a code or a text)."""

    verb: str
    number: float = 0.0
    text: str = ""


_STEPS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("pull", re.compile(r"pull (?P<number>\d+(\.\d+)?)s")),
    ("refuse", re.compile(r"refuse (?P<text>.+)")),
    ("fail", re.compile(r"fail (?P<text>.+)")),
    ("run", re.compile(r"(run|sleep) (?P<number>\d+(\.\d+)?)s")),
    ("log", re.compile(r"log (?P<number>\d+) lines?")),
    ("say", re.compile(r"say (?P<text>.+)")),
    ("ignore kill", re.compile(r"ignore kill( (?P<number>\d+(\.\d+)?)s)?")),
    ("exit", re.compile(r"exit (?P<number>\d+)")),
)


def parse_script(text: str) -> tuple[Step, ...]:
    """The steps of a script. Raises `InvalidInput` naming the step that is none."""
    steps = []
    for part in filter(None, (part.strip() for part in text.split(";"))):
        for verb, pattern in _STEPS:
            if match := pattern.fullmatch(part):
                found = match.groupdict()
                steps.append(Step(verb=verb, number=float(found.get("number") or 0), text=found.get("text") or ""))
                break
        else:
            known = ", ".join(verb for verb, _ in _STEPS)
            raise InvalidInput(f"{SCRIPT_VARIABLE}: {part!r} is no step; steps are: {known}")
    return tuple(steps)


class ScriptedTask:
    """What a running program sees of its container."""

    def __init__(self, spec: ContainerSpec, context: TaskContext) -> None:
        self.spec = spec
        self.context = context
        self.notices: list[NoticeFile] = []
        self.noticed = asyncio.Event()
        self.output: dict[str, bytearray] = {stream: bytearray() for stream in STREAMS}
        self.changed = asyncio.Event()
        self.polite = True
        self.stuck_s = 0.0

    def write(self, text: str, stream: str = "stdout") -> None:
        """Append text to an output stream."""
        self.output[stream] += text.encode()
        self.changed.set()


Program = Callable[[ScriptedTask], Awaitable[int]]
"""What a container does: returns its exit code. It is cancelled when the container is ended."""


async def run_script(task: ScriptedTask) -> int:
    """The default program: the part of `RESOLUTE_SCRIPT` after the start; an empty script ends at once."""
    for step in parse_script(task.spec.environment.get(SCRIPT_VARIABLE, "")):
        match step.verb:
            case "run":
                await asyncio.sleep(step.number)
            case "log":
                task.write("".join(f"line {number}\n" for number in range(int(step.number))))
            case "say":
                task.write(step.text + "\n")
            case "ignore kill":
                task.polite = False
                task.stuck_s = step.number
            case "exit":
                return int(step.number)
    return 0


@dataclass(slots=True, kw_only=True, eq=False)
class _Container:
    task: ScriptedTask
    lease_until: float
    kill_at: float = math.inf
    exit: Exit | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    poked: asyncio.Event = field(default_factory=asyncio.Event)
    offsets: dict[str, int] = field(default_factory=dict)
    runner: asyncio.Task[None] | None = None


class ScriptedRuntime:
    """The runtime port over coroutines. `program` replaces the script interpreter."""

    def __init__(self, *, program: Program = run_script) -> None:
        self._program = program
        self._containers: dict[str, _Container] = {}
        self._starting: dict[str, asyncio.Event] = {}
        self._leases: dict[str, float] = {}
        """Until when each container that is being started may continue: a long pull must not use its lease up."""

    async def start(self, spec: ContainerSpec, context: TaskContext) -> None:
        if spec.container_id in self._containers:
            raise LaunchFailed(f"container {spec.container_id} exists already")
        try:
            steps = parse_script(spec.environment.get(SCRIPT_VARIABLE, ""))
        except InvalidInput as error:
            raise LaunchRefused(str(error)) from error
        aborted = self._starting[spec.container_id] = asyncio.Event()
        self._leases[spec.container_id] = _now() + context.lease_s
        try:
            await _launch(steps, aborted)
        finally:
            del self._starting[spec.container_id]
            lease_until = self._leases.pop(spec.container_id)
        container = _Container(task=ScriptedTask(spec, context), lease_until=lease_until)
        self._containers[spec.container_id] = container
        container.runner = asyncio.create_task(self._run(container), name=f"scripted {spec.container_id}")

    async def adopt(self) -> tuple[Found, ...]:
        return tuple(
            Found(
                container_id=container_id,
                allocation_id=container.task.spec.allocation_id,
                task_id=container.task.spec.task_id,
                slots=tuple(sorted(container.task.spec.slots)),
                exit=container.exit,
            )
            for container_id, container in sorted(self._containers.items())
        )

    async def wait(self, container_id: str) -> Exit:
        container = self._containers.get(container_id)
        if container is None:
            return Exit(failure=FailureKind.RESTORE_ERROR, message="the container is unknown to the runtime")
        await container.ended.wait()
        assert container.exit is not None
        return container.exit

    async def kill(self, container_id: str, grace_s: float) -> None:
        if container_id in self._starting:
            self._starting[container_id].set()
        container = self._containers.get(container_id)
        if container is None or container.exit is not None:
            return
        stops_at = _now() if container.task.polite else _now() + grace_s + container.task.stuck_s
        container.kill_at = min(container.kill_at, stops_at)
        container.poked.set()

    def renew(self, container_id: str, lease_s: float) -> None:
        if container_id in self._leases:
            self._leases[container_id] = max(self._leases[container_id], _now() + lease_s)
        container = self._containers.get(container_id)
        if container is not None:
            container.lease_until = max(container.lease_until, _now() + lease_s)

    def notify(self, container_id: str, notice: NoticeFile) -> None:
        container = self._containers.get(container_id)
        if container is not None and container.exit is None:
            container.task.notices.append(notice)
            container.task.noticed.set()

    def read_output(self, container_id: str, stream: str, offset: int, limit: int) -> bytes:
        container = self._containers.get(container_id)
        return b"" if container is None else bytes(container.task.output[stream][offset : offset + limit])

    def output_size(self, container_id: str, stream: str) -> int:
        container = self._containers.get(container_id)
        return 0 if container is None else len(container.task.output[stream])

    def output_time(self, container_id: str, stream: str, offset: int) -> datetime | None:
        return None  # there is no wall clock here; the reader's own is as good under virtual time

    async def output_grown(self, container_id: str, offsets: Mapping[str, int]) -> None:
        container = self._containers.get(container_id)
        while container is not None and container.exit is None:
            if any(len(container.task.output[stream]) > offsets.get(stream, 0) for stream in STREAMS):
                return
            container.task.changed.clear()
            await container.task.changed.wait()

    def output_ended(self, container_id: str) -> bool:
        container = self._containers.get(container_id)
        return container is None or container.exit is not None

    def offsets(self, container_id: str) -> Mapping[str, int]:
        container = self._containers.get(container_id)
        return {} if container is None else dict(container.offsets)

    def save_offsets(self, container_id: str, offsets: Mapping[str, int]) -> None:
        container = self._containers.get(container_id)
        if container is not None:
            container.offsets = dict(offsets)

    async def forget(self, container_id: str) -> None:
        container = self._containers.get(container_id)
        if container is None:
            return
        if container.exit is None:
            raise FailedPrecondition(f"container {container_id} still runs; kill it first")
        del self._containers[container_id]

    def task(self, container_id: str) -> ScriptedTask:
        """What a container's program sees; for the test that plays the machine."""
        return self._containers[container_id].task

    async def power_off(self) -> None:
        """The machine has ended: every container ends at once, without a report."""
        runners = [container.runner for container in self._containers.values() if container.runner is not None]
        self._containers.clear()
        for runner in runners:
            runner.cancel()
        await asyncio.gather(*runners, return_exceptions=True)

    async def _run(self, container: _Container) -> None:
        """Race the program against its lease and against being killed."""
        program = asyncio.ensure_future(self._program(container.task))
        try:
            while not program.done():
                until_s = min(container.lease_until, container.kill_at) - _now()
                if until_s <= 0:
                    break
                poked = asyncio.ensure_future(container.poked.wait())
                await asyncio.wait({program, poked}, timeout=until_s, return_when=asyncio.FIRST_COMPLETED)
                poked.cancel()
                container.poked.clear()
            exit = _exit_of(program) if program.done() else _ended_by(container)
        finally:
            program.cancel()
            await asyncio.gather(program, return_exceptions=True)
        container.exit = exit
        container.task.changed.set()
        container.ended.set()


async def _launch(steps: tuple[Step, ...], aborted: asyncio.Event) -> None:
    for step in steps:
        match step.verb:
            case "pull":
                try:
                    async with asyncio.timeout(step.number):
                        await aborted.wait()
                except TimeoutError:
                    continue
                raise LaunchAborted("killed while its image was pulled")
            case "refuse":
                raise LaunchRefused(step.text)
            case "fail":
                raise LaunchFailed(step.text)


def _exit_of(program: asyncio.Future[int]) -> Exit:
    if error := program.exception():
        return Exit(code=1, failure=FailureKind.CONTAINER_FAILED, message=f"{type(error).__name__}: {error}")
    return exit_with_code(program.result())


def exit_with_code(code: int) -> Exit:
    """A container that ended by itself with `code`."""
    if code == 0:
        return Exit(code=0)
    return Exit(code=code, failure=FailureKind.CONTAINER_FAILED)


def _ended_by(container: _Container) -> Exit:
    if container.kill_at <= _now():
        return Exit(code=137, failure=FailureKind.CONTAINER_FAILED, message="killed")
    return Exit(failure=FailureKind.AGENT_FAILED, message="its lease ran out: no master answered in time")


def _now() -> float:
    """Durations are the event loop's, so that a virtual loop carries virtual leases."""
    return asyncio.get_running_loop().time()
