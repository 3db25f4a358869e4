"""One world: a master that is killed and restarted, a cloud with its machines, tasks that train, users that interfere."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime
from typing import Any

from resolute.clock import Clock, LoopClock
from resolute.errors import ResoluteError, Unavailable
from resolute.ids import IdSource, SeededIds
from resolute.wire.states import NoticeKind
from resolute_agent.link import LinkClosed
from resolute_agent.runtimes.scripted import ScriptedTask
from resolute_master.domain.change import Change
from resolute_master.domain.commands import Command, CreateUser
from resolute_master.domain.ids import ExperimentId, PoolName
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine.cycle import RuleFault
from resolute_master.engine.replay import Replay, replay
from resolute_master.store.memory import MemoryStore, MemoryTables
from resolute_provisioner.bootstrap import MachineBoot
from resolute_provisioner.clouds.fake import FakeCloud, FakeMachine
from resolute_sim.checks import Checks
from resolute_sim.event_log import Entry, Event, EventLog, LiveTask
from resolute_sim.fault_plan import NO_FAULTS, FaultPlan
from resolute_sim.link import Link
from resolute_sim.machine import SimulatedMachine, notice_of
from resolute_sim.master import JOIN_TOKEN, Killed, LatentStore, SimulatedMaster, UnansweredCloud
from resolute_sim.training import Storage, Training
from resolute_sim.workload import EPOCH, OWNERS, Workload

HEARTBEAT_S = 5.0


class WorldEventLog(EventLog):
    """An event log that also prints its events."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._tell = tell

    def add(self, entry: Entry) -> None:
        super().add(entry)
        if entry.event is not Event.STEP:
            detail = f" {entry.why}" if entry.why else ""
            self._tell(f"task   {entry.allocation} {entry.event.value} at step {entry.step}{detail}")


class World:
    """Build it inside a virtual loop; `simulation` leads it from its first to its last moment."""

    def __init__(
        self,
        *,
        seed: int,
        workload: Workload,
        fault_plan: FaultPlan,
        tell: Callable[[str], None] | None = None,
        snapshot_every: int = 1,
        rules_every: int = 1,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.rng = random.Random(seed)
        self.ids: IdSource = SeededIds(self.rng.getrandbits(64))
        self.clock: Clock = LoopClock(EPOCH, loop)
        self.workload = workload
        self.fault_plan = fault_plan
        self.pools: Mapping[PoolName, PoolPolicy] = workload.pools
        self.storage = Storage()
        self.event_log: EventLog = WorldEventLog(self.tell)
        self.tables = MemoryTables()
        self.cloud = FakeCloud(
            clock=self.clock, rng=random.Random(self.rng.getrandbits(64)), behaviour=fault_plan.cloud, host=self
        )
        self.machines: dict[str, SimulatedMachine] = {}
        self.master: SimulatedMaster | None = None
        self.checks = Checks(
            clock=self.clock,
            cloud=self.cloud,
            event_log=self.event_log,
            checkpoints=self.storage.checkpoints,
            pools=self.pools,
            snapshot_every=snapshot_every,
            rules_every=rules_every,
            prices_asked_every_s=fault_plan.prices.asked_every_s if fault_plan.prices is not None else 0.0,
        )
        self._prices_asked_every_s = fault_plan.prices.asked_every_s if fault_plan.prices is not None else None
        self.fate: Callable[[Change], None] | None = None
        """What befalls the next commit before it is stored."""
        self.fate_after: Callable[[Change], None] | None = None
        self.submitted: list[ExperimentId] = []
        """Every experiment that was ever created."""
        self.masters = 0
        self.tally: Counter[str] = Counter()
        """How often what happened: faults, decisions, ends of tasks."""
        self._tell = tell
        self._trace = hashlib.sha256()
        self._links: list[Link] = []
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._restarting = False

    # -- the story ---------------------------------------------------------------------------------------------

    def tell(self, text: str) -> None:
        line = f"{self.clock.now():%d %H:%M:%S.%f} {text}"
        self._trace.update(line.encode())
        if self._tell is not None:
            self._tell(line)

    @property
    def trace(self) -> str:
        """A digest of everything that happened so far."""
        return self._trace.hexdigest()

    def violate(self, rule: str, text: str) -> None:
        self.checks.violate(rule, text)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.violate("safety: the code does not fail", f"{type(error).__name__}: {error}")

    # -- the master --------------------------------------------------------------------------------------------

    async def start_master(self) -> None:
        """Until one runs: it may die in its first cycle."""
        while self.master is None:
            self.masters += 1
            self.tell(f"master start {self.masters}")
            seed = self.rng.getrandbits(64)
            commits = random.Random(seed + 1)
            master = SimulatedMaster(
                store=LatentStore(self.tables, hook=self, rng=commits, commit_s=self.fault_plan.commit_s),
                clock=self.clock,
                seed=seed,
                pools=self.pools,
                cloud=UnansweredCloud(self.cloud),
                heartbeat_s=HEARTBEAT_S,
                observer=self,
                prices=self.cloud,
                prices_asked_every_s=self._prices_asked_every_s,
            )
            try:
                await master.start()
            except (Killed, ResoluteError, OSError):
                await master.kill()
                await asyncio.sleep(self.rng.uniform(*self.fault_plan.outage_s))
                continue
            self.master = master
        self._restarting = False

    def kill_master(self) -> None:
        """SIGKILL now; another process starts after the outage."""
        if self.master is None or self._restarting:
            return
        self._restarting = True
        master, self.master = self.master, None
        self.tell("master is killed")
        self.spawn(self._replace(master))

    async def _replace(self, master: SimulatedMaster) -> None:
        began = self.clock.now()
        if not master.committing:
            await self.checks.woken(master.engine.memory, MemoryStore(self.tables))
        await master.kill()
        for link in self._links:
            link.cut()
        self._links.clear()
        await asyncio.sleep(self.rng.uniform(*self.fault_plan.outage_s))
        await self.start_master()
        self.checks.excuse((self.clock.now() - began).total_seconds())
        self.checks.unreachable(None, began)

    async def watch_master(self) -> None:
        """An init: a master that ended by itself is started again."""
        while True:
            await asyncio.sleep(1.0)
            failure = self.master.failure() if self.master is not None else None
            if failure is not None:
                if not isinstance(failure, ResoluteError | Killed | OSError):
                    self.violate("safety: the code does not fail", f"master: {type(failure).__name__}: {failure}")
                self.kill_master()

    def before_commit(self, change: Change) -> None:
        fate, self.fate = self.fate, None
        if fate is not None:
            fate(change)

    def after_commit(self, change: Change) -> None:
        self.checks.stored(change)
        fate, self.fate_after = self.fate_after, None
        if fate is not None:
            fate(change)

    def committed(self, master: SimulatedMaster, change: Change) -> None:
        for decision in change.decisions:
            self.tally[f"decision: {decision.kind}"] += 1
            self.tell(f"master {decision.kind} {decision.subject}: {decision.reason}")
        self._trace.update(change.journal.digest.encode())
        self.checks.committed(master.engine.memory, change)

    def failed(self, fault: RuleFault) -> None:
        self.violate("safety: the code does not fail", f"master: {fault}")

    async def submit(self, command: Command) -> Any:
        """As a user's client would: again until there is a master to answer."""
        while True:
            try:
                if self.master is None:
                    raise Unavailable("there is no master")
                return await self.master.carry(lambda master: master.engine.submit(command))
            except Unavailable:
                await asyncio.sleep(1.0)

    # -- the network -------------------------------------------------------------------------------------------

    def connect(self, machine: SimulatedMachine) -> Link:
        if self.master is None:
            raise LinkClosed("there is no master")
        link = Link(self.rng)
        self._links = [each for each in self._links if not each.to_master.closed]
        self._links.append(link)
        self.master.serve(self.master.hub.serve(link.master_end))
        return link

    def master_for(self, machine: SimulatedMachine) -> SimulatedMaster:
        if self.master is None or machine.partitioned:
            raise Unavailable("the master does not answer")
        return self.master

    # -- machines ----------------------------------------------------------------------------------------------

    def boot_fixed_machines(self) -> None:
        """Those that no cloud gives and takes."""
        for number, (pool, slots) in enumerate(self.workload.fixed_machines):
            boot = MachineBoot(
                master_url="http://simulated",
                agent_id=f"fixed-{number}",
                resource_pool=pool,
                instance_id="",
                join_token=JOIN_TOKEN,
                artificial_slots=slots,
            )
            self._boot(boot.agent_id, boot, provider_id="")

    def booted(self, machine: FakeMachine) -> None:
        self.tell(f"cloud  {machine.request.instance_id} boots")
        self._boot(machine.provider_id, machine.request.boot, provider_id=machine.provider_id)

    def _boot(self, name: str, boot: MachineBoot, *, provider_id: str) -> None:
        async def program(task: ScriptedTask) -> int:
            return await Training(self, simulated, task)()

        simulated = SimulatedMachine(
            boot=boot,
            clock=self.clock,
            seed=self.rng.getrandbits(64),
            program=program,
            network=self,
            provider_id=provider_id,
        )
        self.machines[name] = simulated
        simulated.boot()

    def noticed(self, machine: FakeMachine, deadline: datetime) -> None:
        self.tell(f"cloud  {machine.request.instance_id} gets a notice: it ends at {deadline:%H:%M:%S}")
        simulated = self.machines.get(machine.provider_id)
        if simulated is not None:
            simulated.notify(notice_of(NoticeKind.INTERRUPTION, deadline, self.clock.now()))

    def ended(self, machine: FakeMachine) -> None:
        self.tell(f"cloud  {machine.request.instance_id} is gone: {machine.message or 'ended'}")
        simulated = self.machines.pop(machine.provider_id, None)
        if simulated is not None:
            simulated.dead = True
            self.spawn(simulated.end())

    def powered_off(self, machine: SimulatedMachine, reason: str) -> None:
        self.tell(f"cloud  {machine.id} ends itself: {reason}")
        self.cloud.power_off(machine.provider_id)

    # -- tasks -------------------------------------------------------------------------------------------------

    def task_started(self, task: LiveTask) -> None:
        if any(other.allocation == task.allocation for other in self.event_log.live.values()):
            self.tally["task: is a member of a gang"] += 1
        self.checks.task_started(task)

    def resumed(self, trial: int, run: int, *, told: int, uuid: str) -> None:
        self.tally["task: goes on from a checkpoint" if uuid else "task: starts afresh"] += 1
        self.checks.resumed(trial, run, told=told, uuid=uuid)

    # -- phases ------------------------------------------------------------------------------------------------

    async def set_up(self) -> None:
        for owner in OWNERS:
            await self.submit(CreateUser(username=f"user-{owner}", password_hash="hash"))
        for budget in self.workload.budgets:
            await self.submit(budget)

    def stop_faults(self) -> None:
        """From here on nothing goes wrong any more."""
        self.tell("world  grows calm")
        self.fate = self.fate_after = None
        self.cloud.behaviour = NO_FAULTS.cloud
        self.fault_plan = NO_FAULTS
        for machine in self.machines.values():
            machine.partitioned = False

    def machine_failure(self) -> BaseException | None:
        for _, machine in sorted(self.machines.items()):
            if (failure := machine.failure()) is not None:
                return failure
        return None

    async def replayed(self) -> Replay:
        """The whole life of the world again, from its journal and first snapshot alone."""
        store = MemoryStore(self.tables)
        snapshots = await store.snapshots()
        return await replay(snapshots[0], store.journal(snapshots[0].sequence), self.pools)

    async def close(self) -> None:
        """Stop everything without a message."""
        if self.master is not None:
            await self.master.kill()
            self.master = None
        for machine in tuple(self.machines.values()):
            await machine.end()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
