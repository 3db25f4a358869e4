"""One machine: the production agent over the scripted runtime, restarted by its init as on a real one."""

from __future__ import annotations

import asyncio
import random
from datetime import datetime
from typing import Protocol

from resolute.clock import Clock
from resolute.ids import SeededIds
from resolute.wire.agent_link import Device, Notice
from resolute.wire.states import NoticeKind, SlotKind
from resolute_agent.agent import Agent, AgentSetup
from resolute_agent.link import Connection, LinkClosed
from resolute_agent.memory import HeldMemory
from resolute_agent.runtimes.scripted import Program, ScriptedRuntime
from resolute_provisioner.bootstrap import MachineBoot
from resolute_sim.link import Link

INIT_PAUSE_S = 0.5
"""Time after which the machine's init restarts a crashed agent."""

REBOOT_S = (5.0, 60.0)

RECONNECT_CAP_S = 10.0


class Network(Protocol):
    """Where machines find the master."""

    def connect(self, machine: SimulatedMachine) -> Link:
        """Raises `LinkClosed` when the master cannot be reached from there."""
        ...

    def powered_off(self, machine: SimulatedMachine, reason: str) -> None:
        """The machine has ended itself."""
        ...


class NoticeQueue:
    """A `NoticeSource` that the world writes to. Repeats the last notice to each new agent process, as a file does."""

    def __init__(self) -> None:
        self.current: Notice | None = None
        self.changed = asyncio.Event()

    def put(self, notice: Notice) -> None:
        self.current = notice
        self.changed.set()

    def reader(self) -> NoticeReader:
        return NoticeReader(self)


class NoticeReader:
    def __init__(self, queue: NoticeQueue) -> None:
        self._queue = queue
        self._reported: Notice | None = None

    async def next(self) -> Notice:
        while self._queue.current is None or self._queue.current is self._reported:
            self._queue.changed.clear()
            await self._queue.changed.wait()
        self._reported = self._queue.current
        return self._reported


class SimulatedMachine:
    """`boot()` starts it; `end()` is the power switch. The agent may crash and restart in between."""

    def __init__(
        self, *, boot: MachineBoot, clock: Clock, seed: int, program: Program, network: Network, provider_id: str = ""
    ) -> None:
        self.id = boot.agent_id
        self.provider_id = provider_id
        self.runtime = ScriptedRuntime(program=program)
        self.partitioned = False
        """No packet of this machine arrives anywhere."""
        self.dead = False
        self.link: Link | None = None
        self._boot = boot
        self._clock = clock
        self._rng = random.Random(seed)
        self._network = network
        self._memory = HeldMemory()
        self._notices = NoticeQueue()
        self._boots_until = 0.0
        self._life: asyncio.Task[None] | None = None
        self._process: asyncio.Task[str | None] | None = None

    def boot(self) -> None:
        self._life = asyncio.create_task(self._live(), name=f"machine {self.id}")

    async def _live(self) -> None:
        while not self.dead:
            process = self._process = asyncio.create_task(self._agent().run(), name=f"agent {self.id}")
            await asyncio.wait([process])
            if self.dead:
                return
            if not process.cancelled() and process.exception() is None and process.result() is not None:
                self._network.powered_off(self, process.result() or "")
                return
            if not process.cancelled() and (error := process.exception()) is not None:
                raise error
            await asyncio.sleep(max(INIT_PAUSE_S, self._boots_until - asyncio.get_running_loop().time()))

    def _agent(self) -> Agent:
        boot = self._boot
        devices = tuple(
            Device(index=n, kind=SlotKind.CPU, brand="Artificial", uuid=f"{self.id}-{n}")
            for n in range(boot.artificial_slots)
        )
        return Agent(
            AgentSetup(
                agent_id=boot.agent_id,
                resource_pool=boot.resource_pool,
                version="simulated",
                devices=devices,
                join_token=boot.join_token,
                instance_id=boot.instance_id,
                master_timeout_s=boot.master_timeout_s if boot.instance_id else None,
                reconnect_cap_s=RECONNECT_CAP_S,
            ),
            connector=self,
            runtime=self.runtime,
            memory=self._memory,
            clock=self._clock,
            ids=SeededIds(self._rng.getrandbits(64)),
            rng=random.Random(self._rng.getrandbits(64)),
            notices=self._notices.reader(),
        )

    # -- the agent's connector ---------------------------------------------------------------------------------

    async def connect(self) -> Connection:
        await asyncio.sleep(self._rng.uniform(0.001, 0.05))
        if self.partitioned:
            raise LinkClosed("the network is down")
        self.link = self._network.connect(self)
        return self.link.agent_end

    # -- what befalls it ---------------------------------------------------------------------------------------

    def notify(self, notice: Notice) -> None:
        self._notices.put(notice)

    def crash_agent(self) -> None:
        """A SIGKILL of the agent alone: its containers continue, and what it has sent is on its way."""
        if self._process is not None:
            self._process.cancel()
        if self.link is not None:
            self.link.to_master.finish()

    async def reboot(self) -> None:
        """Every program is dead at once; the agent restarts with the contents of its disk."""
        self._boots_until = asyncio.get_running_loop().time() + self._rng.uniform(*REBOOT_S)
        if self.link is not None:
            self.link.cut(agent_sees=False, master_sees=self._rng.random() < 0.5)
        if self._process is not None:
            self._process.cancel()
        await self.runtime.power_off()

    def failure(self) -> BaseException | None:
        """What broke the machine's own code."""
        life = self._life
        return life.exception() if life is not None and life.done() and not life.cancelled() else None

    async def end(self) -> None:
        """Everything on it is dead at once, without a report."""
        self.dead = True
        if self.link is not None:
            self.link.cut(agent_sees=False, master_sees=self._rng.random() < 0.5)
        if self._process is not None:
            self._process.cancel()
        await self.runtime.power_off()
        if self._life is not None:
            await asyncio.gather(self._life, return_exceptions=True)


def notice_of(kind: NoticeKind, deadline: datetime | None, at: datetime) -> Notice:
    """The cloud's notice for the machine."""
    return Notice(kind=kind, deadline=deadline, reason=f"simulated {kind.value}", at=at)
