"""One connection of an agent, from its Hello to its end, over any transport."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from resolute import logs
from resolute.clock import Clock
from resolute.errors import NotFound, PermissionDenied, ResoluteError
from resolute.wire.agent_link import (
    LOG_BATCH_LINES,
    LOG_BATCHES_IN_FLIGHT,
    PROTOCOL_VERSION,
    Acknowledged,
    AgentMessage,
    ContainerChanged,
    CredentialKept,
    Heartbeat,
    HeartbeatAnswer,
    Hello,
    KillContainer,
    LogBatch,
    LogLine,
    LogsStored,
    MasterMessage,
    Notice,
    Refused,
    StartContainer,
    Welcome,
)
from resolute_master.agents.container_spec import SpecRenderer
from resolute_master.agents.credentials import digest_of
from resolute_master.agents.own_lines import OwnLines
from resolute_master.domain import commands as c
from resolute_master.domain import effects as fx
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AgentId, AllocationId, InstanceId, PoolName, TaskId
from resolute_master.domain.machines import SpendJoinToken
from resolute_master.domain.metrics import LogRecord
from resolute_master.engine.engine import Engine
from resolute_master.engine.reporting import Reporting
from resolute_master.store.base import Store

log = logging.getLogger(__name__)

HELLO_S = 30.0
"""A connection that sends no hello within this time is closed."""

SILENT_HEARTBEATS = 4
"""A link without a message for this number of heartbeats is closed: the agent may reconnect, or is lost."""


class Closed(Exception):
    """The transport has ended."""


class Transport(Protocol):
    """Messages in order, both ways; used by one session."""

    async def receive(self) -> AgentMessage:
        """Raises `Closed` at the end."""
        ...

    async def send(self, message: MasterMessage) -> None:
        """Raises `Closed` when it cannot be sent."""
        ...

    async def close(self) -> None: ...


class AgentSession:
    """Registers the agent, then carries reports in and orders out until the transport ends."""

    def __init__(
        self,
        transport: Transport,
        *,
        engine: Engine,
        store: Store,
        reporting: Reporting,
        renderer: SpecRenderer,
        welcome: Callable[[AgentId, PoolName, Sequence[str]], Welcome],
        check: Callable[[Hello], None],
        admit: Callable[[Hello], None],
        turns: asyncio.Semaphore,
        clock: Clock,
    ) -> None:
        self._transport = transport
        self._engine = engine
        self._reporting = reporting
        self._own_lines = OwnLines(engine, store)
        self._renderer = renderer
        self._welcome = welcome
        self._check = check
        self._admit = admit
        self._turns = turns
        self._clock = clock
        self._heartbeat_s = 0.0
        self.agent_id = AgentId("")
        self.incarnation = ""
        self._welcomed = False
        self._log_tasks: set[asyncio.Task[None]] = set()
        self._unstored_batches = 0
        self._sending = asyncio.Lock()
        self._sending_orders = asyncio.Lock()

    # -- registration ------------------------------------------------------------------------------------------

    async def register(self) -> bool:
        """Read the Hello and answer it; False when the agent was refused. Raises `Closed` when it does not come."""
        try:
            async with asyncio.timeout(HELLO_S):
                hello = await self._transport.receive()
        except TimeoutError:
            raise Closed(f"no Hello within {HELLO_S:.0f} s") from None
        refusal = await self._try_register(hello)
        if refusal is not None:
            await self._send(refusal)
        return refusal is None

    async def _try_register(self, hello: AgentMessage) -> Refused | None:
        if not isinstance(hello, Hello):
            return Refused(reason=f"expected Hello, got {type(hello).__name__}", final=True)
        self.agent_id, self.incarnation = AgentId(hello.agent_id), hello.incarnation
        try:
            self._check(hello)
        except PermissionDenied as error:
            return Refused(reason=str(error), final=_is_final(hello))
        if hello.protocol != PROTOCOL_VERSION:
            reason = f"the agent has protocol {hello.protocol}, this master {PROTOCOL_VERSION}: install the same version of both"
            return Refused(reason=reason, final=True)
        if hello.resource_pool not in self._engine.pools:
            known = ", ".join(sorted(self._engine.pools))
            return Refused(reason=f"resource_pool: '{hello.resource_pool}' is none of {known}", final=True)
        logs.also_about(agent=self.agent_id)
        try:
            self._admit(hello)
            expected = await self._engine.submit(_registration(hello))
        except (PermissionDenied, NotFound) as error:
            return Refused(reason=str(error), final=True)
        except ResoluteError as error:
            return Refused(reason=str(error), final=False)
        welcome = self._welcome(self.agent_id, PoolName(hello.resource_pool), expected)
        self._heartbeat_s = welcome.heartbeat_s
        await self._send(welcome)
        self._welcomed = True
        if hello.containers:
            await self._send(Acknowledged(sequence=max(r.sequence for r in hello.containers)))
        return None

    # -- messages in -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until the transport ends or the agent is silent for too long."""
        try:
            while True:
                async with asyncio.timeout(self._heartbeat_s * SILENT_HEARTBEATS):
                    message = await self._transport.receive()
                await self._take(message)
        except TimeoutError:
            log.warning("agent %s has been silent for %d heartbeats", self.agent_id, SILENT_HEARTBEATS)
        except (Closed, ResoluteError) as reason:
            log.info("the link of agent %s ends: %s", self.agent_id, reason)
        finally:
            for task in self._log_tasks:
                task.cancel()
            await self._transport.close()

    async def _take(self, message: AgentMessage) -> None:
        match message:
            case Heartbeat():
                await self._send(HeartbeatAnswer(at=self._clock.now()))
            case ContainerChanged(report=report):
                await self._engine.submit(
                    c.ReportContainer(agent=self.agent_id, incarnation=self.incarnation, report=report)
                )
                await self._send(Acknowledged(sequence=report.sequence))
            case LogBatch():
                # Stored beside the loop: a slow disk must not delay heartbeats. Order is kept by the lines' own keys and by
                # the agent, which has only a few batches in flight.
                if self._unstored_batches >= LOG_BATCHES_IN_FLIGHT or len(message.lines) > LOG_BATCH_LINES:
                    raise Closed(
                        f"a batch of {len(message.lines)} log lines with {self._unstored_batches} batches on their way; "
                        f"the limits are {LOG_BATCH_LINES} and {LOG_BATCHES_IN_FLIGHT}"
                    )
                self._unstored_batches += 1
                task = asyncio.create_task(self._store_logs(message))
                self._log_tasks.add(task)
                task.add_done_callback(self._log_tasks.discard)
            case Notice():
                await self._engine.submit(
                    c.ReportNotice(
                        agent=self.agent_id,
                        incarnation=self.incarnation,
                        kind=message.kind,
                        deadline=message.deadline,
                        reason=message.reason,
                    )
                )
            case CredentialKept():
                await self._engine.submit(SpendJoinToken(agent=self.agent_id, incarnation=self.incarnation))
            case Hello():
                raise Closed("a second Hello on one link")

    async def _store_logs(self, batch: LogBatch) -> None:
        try:
            try:
                lines = await self._own_lines.of(self.agent_id, batch.lines)
                await self._reporting.logs([_record(line, self.agent_id) for line in lines])
            finally:
                self._unstored_batches -= 1  # before the agent gets the answer and sends the next one
            await self._send(LogsStored(batch=batch.batch))
        except (Closed, ResoluteError) as error:
            log.warning(
                "log batch %d of agent %s is not stored; the agent will send it again: %s",
                batch.batch,
                self.agent_id,
                error,
            )

    # -- orders out --------------------------------------------------------------------------------------------

    async def send_orders(self, effects: Sequence[fx.Effect]) -> None:
        """Send the orders that are for this agent; a broken link is no error, they stay in the outbox.

        Before the welcome nothing is sent: all that is outstanding follows it.
        """
        if not self._welcomed:
            return
        async with self._sending_orders:  # in the order of the commits
            for effect in effects:
                async with self._turns:  # a cycle may start hundreds: others have their turn between them
                    order = self._order(effect)
                    await asyncio.sleep(0)
                if order is not None:
                    try:
                        await self._send(order)
                    except Closed:
                        return

    def _order(self, effect: fx.Effect) -> MasterMessage | None:
        match effect:
            case fx.StartContainer():
                allocation = self._engine.state.get(Allocation, effect.allocation)
                if allocation is None:
                    return None
                spec = self._renderer.render(self._engine.state, allocation, effect.container)
                return None if spec is None else StartContainer(spec=spec)
            case fx.KillContainer():
                return KillContainer(container_id=effect.container, grace_s=effect.grace_s)
            case _:
                return None

    async def _send(self, message: MasterMessage) -> None:
        async with self._sending:
            await self._transport.send(message)

    async def close(self) -> None:
        await self._transport.close()


def _registration(hello: Hello) -> c.RegisterAgent:
    return c.RegisterAgent(
        agent=AgentId(hello.agent_id),
        pool=PoolName(hello.resource_pool),
        incarnation=hello.incarnation,
        devices=hello.devices,
        address=hello.address,
        version=hello.version,
        instance=InstanceId(hello.instance_id) if hello.instance_id else None,
        reports=hello.containers,
        key="" if hello.instance_id else digest_of(hello.credential),
        proven=bool(hello.instance_id and hello.credential),
    )


def _is_final(hello: Hello) -> bool:
    """Not for an agent of an older version with work: it would end that work. The agent logs the reason and retries, so its
    operator can install the new version, which adopts the work."""
    return bool(hello.instance_id or hello.credential or not hello.containers)


def _record(line: LogLine, agent: AgentId) -> LogRecord:
    return LogRecord(
        key=f"{line.container_id}:{line.stdtype}:{line.offset}",
        task_id=TaskId(line.task_id),
        allocation_id=AllocationId(line.allocation_id),
        agent_id=agent,
        container_id=line.container_id,
        rank=line.rank,
        at=line.at,
        level=line.level,
        stdtype=line.stdtype,
        source=line.source,
        log=line.log,
    )
