"""A master with an in-memory link, and an agent on the link, for tests under virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from resolute.clock import LoopClock
from resolute.ids import SeededIds
from resolute.wire.agent_link import (
    Acknowledged,
    ContainerChanged,
    ContainerReport,
    Device,
    Heartbeat,
    HeartbeatAnswer,
    Hello,
    LogBatch,
    LogLine,
    LogsStored,
    MasterMessage,
    Notice,
    Refused,
    Welcome,
)
from resolute.wire.states import ContainerState, SlotKind
from resolute_agent.agent import Agent, AgentSetup, LookAgain
from resolute_agent.link import MemoryConnection, MemoryConnector
from resolute_agent.memory import HeldMemory
from resolute_agent.notices import NoticeSource
from resolute_agent.runtimes.base import Runtime
from resolute_agent.runtimes.scripted import ScriptedRuntime

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


@dataclass(kw_only=True)
class MemoryMaster:
    """Accepts connections, answers while its switches are on, and stores messages."""

    connector: MemoryConnector = field(default_factory=MemoryConnector)
    heartbeat_s: float = 2.0
    lease_s: float = 30.0
    expected: tuple[str, ...] = ()
    stores_logs: bool = True
    acknowledges: bool = True
    answers_heartbeats: bool = True
    refuses: Refused | None = None
    hellos: list[Hello] = field(default_factory=list)
    reports: list[ContainerReport] = field(default_factory=list)
    lines: list[LogLine] = field(default_factory=list)
    batches: list[LogBatch] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    heartbeats: int = 0
    connection: MemoryConnection | None = None

    async def serve(self) -> None:
        while True:
            connection = await self.connector.accepted.get()
            self.connection = connection
            await self._serve_one(connection)

    async def _serve_one(self, connection: MemoryConnection) -> None:
        while (message := await connection.to_master.get()) is not None:
            match message:
                case Hello():
                    self.hellos.append(message)
                    self._say(self.refuses or self._welcome())
                case ContainerChanged():
                    self.reports.append(message.report)
                    if self.acknowledges:
                        self._say(Acknowledged(sequence=message.report.sequence))
                case Heartbeat():
                    self.heartbeats += 1
                    if self.answers_heartbeats:
                        self._say(HeartbeatAnswer(at=message.at))
                case LogBatch():
                    self.batches.append(message)
                    if self.stores_logs:
                        self.lines.extend(message.lines)
                        self._say(LogsStored(batch=message.batch))
                case Notice():
                    self.notices.append(message)

    def _welcome(self) -> Welcome:
        return Welcome(
            cluster_id="cluster",
            cluster_name="a cluster",
            master_id="master",
            heartbeat_s=self.heartbeat_s,
            lease_s=self.lease_s,
            expected=self.expected,
        )

    def _say(self, message: MasterMessage) -> None:
        assert self.connection is not None
        self.connection.to_agent.put_nowait(message)

    def say(self, message: MasterMessage) -> None:
        self._say(message)

    def cut(self) -> None:
        assert self.connection is not None
        self.connection.cut()

    def states(self, container_id: str) -> list[ContainerState]:
        return [report.state for report in self.reports if report.container_id == container_id]

    def end(self, container_id: str) -> ContainerReport:
        return next(r for r in self.reports if r.container_id == container_id and r.state is ContainerState.TERMINATED)


class World:
    """One machine with an agent, and its master. Use inside `run_virtually`."""

    def __init__(
        self,
        *,
        notices: NoticeSource | None = None,
        runtime: Runtime | None = None,
        look_again: LookAgain | None = None,
        **setup: Any,
    ) -> None:
        self.master = MemoryMaster()
        self.runtime = runtime or ScriptedRuntime()
        self.memory = HeldMemory()
        self.clock = LoopClock(EPOCH, asyncio.get_running_loop())
        self._ids = SeededIds(7)
        self._notices = notices
        self._look_again = look_again
        devices = tuple(Device(index=n, kind=SlotKind.CPU, brand="Artificial", uuid=f"slot-{n}") for n in range(2))
        fields: dict[str, Any] = {"agent_id": "agent-1", "resource_pool": "pool", "version": "1", "devices": devices}
        self._setup = AgentSetup(**{**fields, **setup})
        self._serving = asyncio.create_task(self.master.serve())
        self.running: asyncio.Task[str | None]
        self.agent: Agent
        self.start_agent()

    def start_agent(self) -> None:
        self.agent = Agent(
            self._setup,
            connector=self.master.connector,
            runtime=self.runtime,
            memory=self.memory,
            clock=self.clock,
            ids=self._ids,
            rng=random.Random(3),
            notices=self._notices,
            look_again=self._look_again,
        )
        self.running = asyncio.create_task(self.agent.run())

    async def crash_agent(self) -> None:
        """Like SIGKILL: the agent sends and saves nothing, and the containers keep running."""
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        self.master.cut()

    async def until(self, condition: Callable[[], bool], *, limit_s: float = 3600.0) -> None:
        async with asyncio.timeout(limit_s):
            while not condition():  # noqa: ASYNC110  # virtual time costs nothing
                await asyncio.sleep(0.05)

    async def close(self) -> None:
        self._serving.cancel()
        self.running.cancel()
        await asyncio.gather(self._serving, self.running, return_exceptions=True)
        if isinstance(self.runtime, ScriptedRuntime):
            await self.runtime.power_off()
