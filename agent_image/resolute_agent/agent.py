"""The agent: feeds events into `state.step` and carries its effects out, over injected ports.

One task owns the state and handles events in order; everything that takes time runs concurrently and returns as an event. The
simulator builds this very class over an in-memory link and the scripted runtime.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from resolute.clock import Clock
from resolute.errors import PermissionDenied, ResoluteError
from resolute.ids import IdSource
from resolute.wire.agent_link import (
    AgentMessage,
    Device,
    Exit,
    Heartbeat,
    HeartbeatAnswer,
    LogBatch,
    LogsStored,
    NoticeFile,
    Refused,
    Welcome,
)
from resolute.wire.states import ContainerState, FailureKind
from resolute_agent import state as core
from resolute_agent.devices.detection import keep_numbers
from resolute_agent.last_error import with_last_error
from resolute_agent.link import BACKOFF_CAP_S, Backoff, Connection, Connector, LinkClosed
from resolute_agent.logs import LogShipper
from resolute_agent.memory import Memory
from resolute_agent.notices import NoticeSource
from resolute_agent.runtimes.base import LaunchAborted, LaunchFailed, LaunchRefused, Runtime, TaskContext
from resolute_agent.supervisor import disk_is_full

log = logging.getLogger(__name__)

DRAIN_LIMIT_S = 30.0
"""An end is reported at the latest after this much time with a link, also when its last lines are not stored."""

FORGET_LIMIT_S = 600.0
"""Output that no master takes for this much time with a link is given up."""

FLUSH_LIMIT_S = 3.0
"""An ending agent tries for this long to get its last reports out."""

CREDENTIAL_BITS = 256
"""Length in bits of the secret by which a machine proves its identity to the master."""

LookAgain = Callable[[], Awaitable[tuple[Device, ...]]]
"""The slots of the machine now. Raises `ResoluteError` when they cannot be listed."""

DISK_FULL_S = 0.5
"""Period of attempts to save the state on a full disk; see `Agent._handle`."""

SILENCE_HEARTBEATS = 4
"""A master that misses this many answers counts as disconnected, whatever the state of the socket; at least `SILENCE_LEAST_S`."""
SILENCE_LEAST_S = 10.0


class AgentRefused(PermissionDenied):
    """The master refuses this agent; the message has a remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSetup:
    """The identity and settings of an agent. `environment` are its machine's variables for every task.

    `master_timeout_s` is how long an elastic machine waits for a master before it ends itself; `None`: for ever.
    """

    agent_id: str
    resource_pool: str
    version: str
    devices: tuple[Device, ...]
    join_token: str = ""
    instance_id: str = ""
    address: str = ""
    master_timeout_s: float | None = None
    reconnect_cap_s: float = BACKOFF_CAP_S
    environment: Mapping[str, str] = field(default_factory=dict)
    master_cert: str = ""
    """PEM for tasks: see `TaskContext`."""


class Agent:
    """One agent process. `run` returns why the machine is to end; `stop` detaches and leaves the containers running."""

    def __init__(
        self,
        setup: AgentSetup,
        *,
        connector: Connector,
        runtime: Runtime,
        memory: Memory,
        clock: Clock,
        ids: IdSource,
        rng: random.Random,
        notices: NoticeSource | None = None,
        look_again: LookAgain | None = None,
        on_message: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_message` is called for each message of a master that accepts this agent."""
        self._setup = setup
        self._connector = connector
        self._runtime = runtime
        self._memory = memory
        self._clock = clock
        self._notices = notices
        self._look_again = look_again
        self._on_message = on_message
        self._held: list[core.Effect] = []
        self._waits_for_disk = False
        self._looking: asyncio.Task[None] | None = None
        self._rng = rng
        self._backoff = Backoff(rng, cap_s=setup.reconnect_cap_s)
        identity = core.Identity(
            agent_id=setup.agent_id,
            resource_pool=setup.resource_pool,
            incarnation=ids.uuid(),
            version=setup.version,
            devices=setup.devices,
            join_token=setup.join_token,
            instance_id=setup.instance_id,
            own_credential="" if setup.instance_id else f"{ids.bits(CREDENTIAL_BITS):0{CREDENTIAL_BITS // 4}x}",
        )
        self._state = core.initial(identity, memory.load())
        self._events: asyncio.Queue[core.Event | None] = asyncio.Queue()
        self._outgoing: asyncio.Queue[AgentMessage] = asyncio.Queue()
        self._asked: deque[tuple[float, datetime]] = deque()
        self._lease_from: tuple[float, datetime] = (clock.monotonic(), clock.now())
        self._last_message_s = clock.monotonic()
        self._link_is_up = False
        self._close_link = asyncio.Event()
        self._shipper = LogShipper(runtime=runtime, clock=clock, send=self._send_logs)
        self._watched: set[str] = set()
        self._work: set[asyncio.Task[None]] = set()
        self._services: list[asyncio.Task[None]] = []
        self._failure: BaseException | None = None

    @property
    def state(self) -> core.AgentState:
        """The present state of the agent, for observers."""
        return self._state

    def stop(self) -> None:
        """Detach: `run` returns `None` soon, containers continue."""
        self._events.put_nowait(None)

    async def run(self) -> str | None:
        """Serve until stopped (`None`) or until the machine is to end (the reason).

        Raises `AgentRefused` when the master does not take this agent (its containers continue until their leases end), and what
        broke the agent.
        """
        try:
            self._handle(core.Booted(found=await self._found()))
            self._serve("log shipper", self._shipper.run())
            self._serve("link", self._keep_link())
            if self._setup.master_timeout_s is not None:
                self._serve("master watch", self._watch_master(self._setup.master_timeout_s))
            if self._notices is not None:
                self._serve("notice watch", self._watch_notices(self._notices))
            while not self._state.over:
                events = await self._waiting_events()
                if self._failure is not None:
                    raise self._failure
                if None in events:
                    return None
                self._handle(*(event for event in events if event is not None))
                if self._state.refused is not None:
                    raise AgentRefused(self._state.refused)
            await self._flush()
            return self._state.ending
        finally:
            await self._stop_all()

    # ------------------------------------------------------------------------------------------ events and effects

    async def _found(self) -> tuple[core.Found, ...]:
        """The runtime's containers; for those that have failed meanwhile, with the end of their output."""
        return tuple(
            found
            if found.exit is None
            else replace(found, exit=with_last_error(found.exit, self._runtime, found.container_id))
            for found in await self._runtime.adopt()
        )

    async def _waiting_events(self) -> list[core.Event | None]:
        """All that have come; at least one, except while effects wait for the disk."""
        events: list[core.Event | None] = []
        try:
            async with asyncio.timeout(DISK_FULL_S if self._held else None):
                events.append(await self._events.get())
        except TimeoutError:
            return []
        while not self._events.empty():
            events.append(self._events.get_nowait())
        return events

    def _handle(self, *events: core.Event) -> None:
        """Events that came together are saved together, and before anything that follows from any of them is done.

        On a full disk what follows is held until the state can be saved: nothing is reported or begun that a next agent would
        not know. Leases are prolonged all the same, and what is to end is ended: neither depends on the saved state.
        """
        effects: list[core.Effect] = []
        for event in events:
            if isinstance(event, core.LinkClosed):  # what was not sent over that link is reported again over the next
                self._held = [effect for effect in self._held if not isinstance(effect, core.Send)]
            self._state, more = core.step(self._state, event, self._clock.now())
            effects += more
        due, self._held = [*self._held, *effects], []
        if core.Save() in due and not self._saved():
            self._held = [effect for effect in due if not isinstance(effect, core.RenewLeases | core.Kill)]
            due = [effect for effect in due if isinstance(effect, core.RenewLeases | core.Kill)]
        for effect in due:
            self._carry_out(effect)

    def _saved(self) -> bool:
        """Save the state; False when the disk is full."""
        try:
            self._memory.save(self._state.durable())
        except OSError as error:
            if not disk_is_full(error):
                raise
            if not self._waits_for_disk:
                log.error(
                    "the disk is full: the agent cannot save its state; it starts no container and sends no report: %s",
                    error,
                )
            self._waits_for_disk = True
            return False
        if self._waits_for_disk:
            log.warning("the agent's state can be saved again")
        self._waits_for_disk = False
        return True

    def _carry_out(self, effect: core.Effect) -> None:
        match effect:
            case core.Save():
                pass  # done, with all of its batch
            case core.Send():
                self._outgoing.put_nowait(effect.message)
            case core.Start():
                self._spawn(self._start(effect))
            case core.Watch():
                self._watch(effect.container_id, effect.allocation_id, effect.task_id)
            case core.Kill():
                self._spawn(self._runtime.kill(effect.container_id, effect.grace_s))
            case core.DrainLogs():
                self._spawn(self._drain(effect))
            case core.Forget():
                self._spawn(self._forget(effect))
            case core.RenewLeases():
                left_s = self._lease_left_s(effect.lease_s)
                for container_id in effect.container_ids:
                    self._runtime.renew(container_id, left_s)
            case core.NotifyTasks():
                for container_id in effect.container_ids:
                    self._notify_task(container_id, effect.notice)
            case core.CloseLink():
                log.warning("the link to the master is opened again: %s", effect.reason)
                self._close_link.set()
            case core.End():
                log.warning("this machine ends: %s", effect.reason)

    def _notify_task(self, container_id: str, notice: NoticeFile) -> None:
        try:
            self._runtime.notify(container_id, notice)
        except OSError as error:
            if not disk_is_full(error):
                raise
            log.error(
                "container %s gets no notice that its machine ends, for the disk is full: %s", container_id, error
            )

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._finished)
        return task

    def _serve(self, name: str, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, name=name)
        self._services.append(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        """A part that breaks ends the agent: its init starts a fresh one, which adopts."""
        self._work.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error
            self._events.put_nowait(None)

    # ---------------------------------------------------------------------------------------------------- containers

    async def _start(self, effect: core.Start) -> None:
        spec = effect.spec
        welcome = self._state.welcome
        lease_s = self._lease_left_s(welcome.lease_s if welcome is not None else 0.0)
        context = TaskContext(
            environment=self._environment(),
            devices=effect.devices,
            lease_s=lease_s,
            address=self._state.address,
            master_cert=self._setup.master_cert,
        )
        try:
            await self._runtime.start(spec, context)
        except LaunchAborted as error:
            exit = Exit(failure=FailureKind.ABORTED, message=str(error))
        except LaunchRefused as error:
            exit = Exit(failure=FailureKind.LAUNCH_REFUSED, message=str(error))
        except LaunchFailed as error:
            exit = Exit(failure=FailureKind.AGENT_ERROR, message=str(error))
        else:
            self._events.put_nowait(core.Progressed(container_id=spec.container_id, state=ContainerState.RUNNING))
            record = self._state.containers.get(spec.container_id)
            if record is not None and record.killing:  # asked while there was nothing to kill yet
                await self._runtime.kill(spec.container_id, 0.0)
            self._watch(spec.container_id, spec.allocation_id, spec.task_id)
            return
        log.warning("container %s was not started: %s", spec.container_id, exit.message)
        self._events.put_nowait(core.Exited(container_id=spec.container_id, exit=exit))

    def _environment(self) -> Mapping[str, str]:
        welcome = self._state.welcome
        own = {"DET_AGENT_ID": self._setup.agent_id}
        if welcome is not None:
            own |= {"DET_CLUSTER_ID": welcome.cluster_id, "DET_MASTER_ID": welcome.master_id}
        return {**self._setup.environment, **own}

    def _watch(self, container_id: str, allocation_id: str, task_id: str) -> None:
        if container_id in self._watched:
            return
        self._watched.add(container_id)
        self._shipper.attach(container_id, allocation_id=allocation_id, task_id=task_id)
        self._spawn(self._wait(container_id))

    async def _wait(self, container_id: str) -> None:
        exit = with_last_error(await self._runtime.wait(container_id), self._runtime, container_id)
        self._events.put_nowait(core.Exited(container_id=container_id, exit=exit))

    async def _drain(self, effect: core.DrainLogs) -> None:
        self._shipper.attach(effect.container_id, allocation_id=effect.allocation_id, task_id=effect.task_id)
        if not await self._shipper.drain(effect.container_id, DRAIN_LIMIT_S):
            log.warning("the last output of container %s is not stored yet; its end is reported", effect.container_id)
        self._events.put_nowait(core.LogsDrained(container_id=effect.container_id))

    async def _forget(self, effect: core.Forget) -> None:
        container_id = effect.container_id
        if effect.ship:
            self._shipper.attach(container_id, allocation_id=effect.allocation_id, task_id=effect.task_id)
            if not await self._shipper.drain(container_id, FORGET_LIMIT_S):
                log.error("output of container %s was never stored and is given up", container_id)
        await self._shipper.detach(container_id)
        await self._runtime.forget(container_id)
        self._watched.discard(container_id)

    # ---------------------------------------------------------------------------------------------------------- link

    async def _keep_link(self) -> None:
        while True:
            try:
                connection = await self._connector.connect()
            except LinkClosed as error:
                log.info("%s", error)
            else:
                try:
                    await self._use(connection)
                except LinkClosed as error:
                    log.warning("link lost: %s", error)
                finally:
                    await connection.close()
                self._look_at_devices()
            await asyncio.sleep(self._backoff.next_s())

    def _look_at_devices(self) -> None:
        """After each link: what broke it may have taken a GPU along. Beside the link, which a driver may not hold up."""
        if self._look_again is not None and (self._looking is None or self._looking.done()):
            self._looking = self._spawn(self._report_devices(self._look_again))

    async def _report_devices(self, look_again: LookAgain) -> None:
        try:
            found = await look_again()
        except ResoluteError as error:
            log.error("the devices cannot be listed now; the agent keeps the previous ones: %s", error)
            return
        devices = keep_numbers(found, self._state.identity.devices)
        self._events.put_nowait(core.DevicesSeen(devices=devices))

    async def _use(self, connection: Connection) -> None:
        """Serve one connection until it is closed."""
        self._outgoing = asyncio.Queue()
        self._asked.clear()
        self._close_link.clear()
        self._asked.append(self._instant())  # the Hello asks for the first lease
        self._events.put_nowait(core.LinkOpened(address=self._setup.address or connection.local_address))
        self._link_is_up = True
        parts = [
            asyncio.create_task(self._read(connection)),
            asyncio.create_task(self._write(connection)),
            asyncio.create_task(self._close_when_asked()),
        ]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
        finally:
            self._link_is_up = False
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
            self._shipper.link_down()
            self._events.put_nowait(core.LinkClosed())

    async def _close_when_asked(self) -> None:
        await self._close_link.wait()

    async def _write(self, connection: Connection) -> None:
        queue = self._outgoing
        while True:
            await connection.send(await queue.get())

    async def _read(self, connection: Connection) -> None:
        """Always reading: also so that the transport can answer its own pings."""
        beating: asyncio.Task[None] | None = None
        silence_s: float | None = SILENCE_LEAST_S
        try:
            while True:
                try:
                    async with asyncio.timeout(silence_s):
                        message = await connection.receive()
                except TimeoutError:
                    raise LinkClosed(f"no answer from the master for {silence_s} s") from None
                self._last_message_s = self._clock.monotonic()
                match message:
                    case Welcome():
                        self._report_message()
                        self._lease_renewed()
                        self._backoff.reset()
                        self._events.put_nowait(core.Received(message=message))
                        self._shipper.link_up()
                        if beating is None:
                            beating = asyncio.create_task(self._beat(message.heartbeat_s))
                        silence_s = max(SILENCE_LEAST_S, SILENCE_HEARTBEATS * message.heartbeat_s)
                    case HeartbeatAnswer():
                        self._report_message()
                        self._lease_renewed()
                        self._events.put_nowait(core.Received(message=message))
                    case LogsStored():
                        self._shipper.stored(message.batch)
                    case Refused():
                        self._events.put_nowait(core.Received(message=message))
                        silence_s = None
                    case _:
                        self._events.put_nowait(core.Received(message=message))
        finally:
            if beating is not None:
                beating.cancel()
                await asyncio.gather(beating, return_exceptions=True)

    def _report_message(self) -> None:
        try:
            self._on_message()
        except OSError as error:
            if not disk_is_full(error):
                raise

    async def _beat(self, heartbeat_s: float) -> None:
        # The first at a moment of its own: after a restart of the master all agents are welcomed at once.
        await asyncio.sleep(heartbeat_s * self._rng.random())
        while True:
            self._asked.append(self._instant())
            self._outgoing.put_nowait(Heartbeat(at=self._clock.now()))
            await asyncio.sleep(heartbeat_s)

    def _send_logs(self, batch: LogBatch) -> None:
        self._outgoing.put_nowait(batch)

    # ---------------------------------------------------------------------------------------------------------- leases

    def _instant(self) -> tuple[float, datetime]:
        return self._clock.monotonic(), self._clock.now()

    def _lease_renewed(self) -> None:
        """An answer arrived: the lease counts from its request, which the master cannot have received earlier."""
        if self._asked:
            self._lease_from = self._asked.popleft()

    def _lease_left_s(self, lease_s: float) -> float:
        """The rest of the lease, by both clocks: the monotonic one stops while a machine sleeps."""
        monotonic, wall = self._lease_from
        passed_s = max(self._clock.monotonic() - monotonic, (self._clock.now() - wall).total_seconds())
        return max(0.0, lease_s - passed_s)

    # -------------------------------------------------------------------------------------------------------- services

    async def _watch_master(self, timeout_s: float) -> None:
        while True:
            left_s = self._last_message_s + timeout_s - self._clock.monotonic()
            if left_s <= 0:
                self._events.put_nowait(core.MasterLost(after_s=timeout_s))
                return
            await asyncio.sleep(left_s)

    async def _watch_notices(self, source: NoticeSource) -> None:
        while True:
            self._events.put_nowait(core.NoticeSeen(notice=await source.next()))

    async def _flush(self) -> None:
        """Give the last reports a chance to leave."""
        try:
            async with asyncio.timeout(FLUSH_LIMIT_S):
                while self._link_is_up and self._state.acknowledged < self._state.sequence:
                    event = await self._events.get()
                    if event is not None:
                        self._handle(event)
        except TimeoutError:
            log.info("the master did not acknowledge the last reports in time")

    async def _stop_all(self) -> None:
        tasks = [*self._services, *self._work]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._shipper.close()
