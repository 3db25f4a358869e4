"""Carries out the faults of a world's fault_plan, each kind at its own random moments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from resolute.errors import ResoluteError, Unavailable
from resolute.wire.states import ExperimentState, NoticeKind
from resolute_master.domain import commands as c
from resolute_master.domain.agent import Agent
from resolute_master.domain.change import Change
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import PoolName
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job
from resolute_master.domain.trial import Trial
from resolute_provisioner.clouds.fake import FakeMachine
from resolute_provisioner.model import Intent, Observed
from resolute_sim.fault_plan import Fault
from resolute_sim.machine import SimulatedMachine, notice_of
from resolute_sim.master import Killed
from resolute_sim.money import request_about_money
from resolute_sim.world import HEARTBEAT_S, World

Thing = TypeVar("Thing")

SHORT_S = (1.0, 15.0)
LONG_S = (40.0, 900.0)
NOTICE_S = (15.0, 30.0, 120.0)


class FaultInjector:
    """`run(fault)` continues until it is cancelled."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng
        self._acts: dict[Fault, Callable[[], None]] = {
            Fault.KILL_MASTER: world.kill_master,
            Fault.DIE_BEFORE_COMMIT: self._die_before_commit,
            Fault.DIE_AFTER_COMMIT: self._die_after_commit,
            Fault.STORE_FAILURE: self._store_failure,
            Fault.CRASH_AGENT: self._crash_agent,
            Fault.CUT_LINK: self._cut_link,
            Fault.HALF_OPEN_LINK: self._half_open_link,
            Fault.SHORT_PARTITION: lambda: self._partition(SHORT_S),
            Fault.LONG_PARTITION: lambda: self._partition(LONG_S),
            Fault.INTERRUPT_WITH_NOTICE: lambda: self._interrupt(self._rng.choice(NOTICE_S)),
            Fault.INTERRUPT: lambda: self._interrupt(None),
            Fault.REBOOT: self._reboot,
            Fault.FREEZE: self._freeze,
            Fault.REBALANCE: lambda: self._announce(NoticeKind.REBALANCE),
            Fault.MAINTENANCE: lambda: self._announce(NoticeKind.MAINTENANCE),
            Fault.USER: lambda: world.spawn(self._act_as_user()),
        }

    async def run(self, fault: Fault) -> None:
        mean_s = self._world.fault_plan.gaps[fault]
        while True:
            await asyncio.sleep(self._rng.expovariate(1.0 / mean_s))
            self._world.tally[f"fault: {fault.value}"] += 1
            self._acts[fault]()

    def _tell(self, text: str) -> None:
        self._world.tell(f"fault  {text}")

    def _one_of(self, things: Sequence[Thing]) -> Thing | None:
        return self._rng.choice(things) if things else None

    # -- the master --------------------------------------------------------------------------------------------

    def _die_before_commit(self) -> None:
        self._world.fate = self._die

    def _die_after_commit(self) -> None:
        self._world.fate_after = self._die

    def _die(self, change: Change) -> None:
        self._tell(f"the master dies at change {change.journal.sequence}")
        asyncio.get_running_loop().call_soon(self._world.kill_master)
        raise Killed

    def _store_failure(self) -> None:
        def refuse(change: Change) -> None:
            self._tell("the store refuses a commit")
            raise OSError("the disk is full")

        self._world.fate = refuse

    # -- machines ----------------------------------------------------------------------------------------------

    def _some_machine(self) -> SimulatedMachine | None:
        return self._one_of([machine for _, machine in sorted(self._world.machines.items())])

    def _crash_agent(self) -> None:
        machine = self._some_machine()
        if machine is not None:
            self._tell(f"the agent of {machine.id} crashes")
            machine.crash_agent()
            self._out_of_reach(machine)

    def _cut_link(self) -> None:
        machine = self._some_machine()
        if machine is not None and machine.link is not None:
            self._tell(f"the link of {machine.id} is cut")
            machine.link.cut()
            self._out_of_reach(machine)

    def _half_open_link(self) -> None:
        machine = self._some_machine()
        if machine is not None and machine.link is not None:
            agent_sees = self._rng.random() < 0.5
            self._tell(f"the link of {machine.id} dies, and only the {'agent' if agent_sees else 'master'} sees it")
            machine.link.cut(agent_sees=agent_sees, master_sees=not agent_sees)
            self._out_of_reach(machine)

    def _out_of_reach(self, machine: SimulatedMachine) -> None:
        """Until its agent is connected again."""
        self._world.checks.unreachable(machine.id, self._world.clock.now())

    def _partition(self, length_s: tuple[float, float]) -> None:
        machine = self._some_machine()
        if machine is not None and not machine.partitioned:
            self._world.spawn(self._cut_off(machine, self._rng.uniform(*length_s)))

    async def _cut_off(self, machine: SimulatedMachine, seconds: float) -> None:
        self._tell(f"{machine.id} is cut off for {seconds:.0f} s")
        machine.partitioned = True
        began = self._world.clock.now()
        if machine.link is not None:
            silent = self._rng.random() < 0.5
            machine.link.cut(agent_sees=not silent, master_sees=not silent)
        await asyncio.sleep(seconds)
        machine.partitioned = False
        self._world.checks.excuse(seconds + 4 * HEARTBEAT_S)
        self._world.checks.unreachable(machine.id, began)

    def _reboot(self) -> None:
        machine = self._some_machine()
        if machine is not None:
            self._tell(f"{machine.id} reboots")
            self._world.spawn(machine.reboot())

    def _freeze(self) -> None:
        """Only of those that a cloud replaces."""
        machine = self._some_machine()
        if machine is not None and machine.provider_id:
            self._tell(f"{machine.id} freezes")
            self._world.checks.froze(machine.id)
            machine.dead = True
            self._world.spawn(machine.end())

    # -- the cloud ---------------------------------------------------------------------------------------------

    def _running_machine(self) -> FakeMachine | None:
        return self._one_of([m for m in self._world.cloud.living() if m.observed is Observed.RUNNING])

    def _interrupt(self, notice_s: float | None) -> None:
        machine = self._running_machine()
        if machine is not None:
            self._world.cloud.interrupt(machine.provider_id, notice_s=notice_s)

    def _announce(self, kind: NoticeKind) -> None:
        """A notice that its cloud gives a machine without taking it back."""
        machine = self._some_machine()
        if machine is None or not machine.provider_id:
            return
        now = self._world.clock.now()
        deadline = now + timedelta(seconds=120.0) if kind is NoticeKind.MAINTENANCE else None
        self._tell(f"{machine.id} gets a notice of {kind.value}")
        machine.notify(notice_of(kind, deadline, now))

    # -- users -------------------------------------------------------------------------------------------------

    async def _act_as_user(self) -> None:
        command = self._some_request()
        if command is None:
            return
        self._world.tell(f"user   {command}")
        try:
            await self._world.submit(command)
        except Unavailable:
            return
        except ResoluteError as error:
            self._world.tell(f"user   is told: {error}")

    def _some_request(self) -> c.Command | None:
        master = self._world.master
        if master is None:
            return None
        state = master.engine.state
        if self._world.workload.minds_money and self._rng.random() < 0.15:
            return request_about_money(self._rng, state, self._world.pools)
        if self._rng.random() < 0.35:
            agent = self._one_of(state.all(Agent))
            return None if agent is None else self._about_agent(agent)
        if self._world.submitted and self._rng.random() < 0.1:
            id_ = self._rng.choice(self._world.submitted)
            if self._rng.random() < 0.3:
                return c.ArchiveExperiment(experiment=id_, archived=True)
            return c.DeleteExperiment(experiment=id_)
        checkpoint = self._one_of(state.all(Checkpoint))
        if checkpoint is not None and self._rng.random() < 0.08:
            return c.DeleteCheckpoints(uuids=(checkpoint.uuid,))
        experiment = self._one_of(state.all(Experiment))
        if experiment is None:
            return None
        return self._about_experiment(
            experiment,
            [t for t in state.find(Trial, "trials_of_experiment", experiment.id) if not t.state.gone],
            state.get(Job, experiment.job_id),
        )

    def _about_agent(self, agent: Agent) -> c.Command:
        slot = self._one_of(agent.slots)
        draw = self._rng.random()
        if draw < 0.25:
            return c.SetAgentEnabled(agent=agent.id, enabled=False, draining=self._rng.random() < 0.5)
        if draw < 0.4 and slot is not None:
            return c.SetSlotEnabled(agent=agent.id, index=slot.index, enabled=False, draining=self._rng.random() < 0.5)
        if draw < 0.5 and slot is not None:
            return c.SetSlotEnabled(agent=agent.id, index=slot.index, enabled=True)
        return c.SetAgentEnabled(agent=agent.id, enabled=True)

    def _about_experiment(self, experiment: Experiment, trials: Sequence[Trial], job: Job | None) -> c.Command:
        id_ = experiment.id
        trial = self._one_of(trials)
        draw = self._rng.random()
        if draw < 0.2:
            return c.PauseExperiment(experiment=id_)
        if draw < 0.5:
            return c.ActivateExperiment(experiment=id_)
        if draw < 0.55:
            return c.CancelExperiment(experiment=id_)
        if draw < 0.6:
            return c.KillExperiment(experiment=id_)
        if draw < 0.65 and trial is not None:
            return c.KillTrial(trial=trial.id)
        if draw < 0.72 and job is not None and len(self._world.pools) > 1:
            others = [name for name in sorted(self._world.pools) if name != job.pool]
            return c.UpdateJob(job=job.id, pool=PoolName(self._rng.choice(others)))
        if draw < 0.77 and job is not None:
            return c.UpdateJob(job=job.id, weight=self._rng.uniform(0.5, 2.0))
        if draw < 0.85 and job is not None:
            return self._move(job)
        if job is not None:
            return c.UpdateJob(job=job.id, priority=self._rng.choice((1, 10, 42, 99)))
        return c.PatchExperiment(experiment=id_, description="changed")

    def _move(self, job: Job) -> c.Command:
        """Beside any job, also where that is refused."""
        assert self._world.master is not None
        anchor = self._one_of([other.id for other in self._world.master.engine.state.all(Job)])
        ahead = self._rng.random() < 0.5
        return c.UpdateJob(job=job.id, ahead_of=anchor if ahead else None, behind_of=None if ahead else anchor)


async def restore_order(world: World) -> None:
    """The users' last request: everything that was stopped for a time continues. Of an elastic pool's machines they may
    leave some closed: the pool is to do without."""
    for _ in range(2):
        while world.master is None:  # noqa: ASYNC110  # virtual time costs nothing
            await asyncio.sleep(0.5)
        state = world.master.engine.state
        requests: list[c.Command] = [
            c.ActivateExperiment(experiment=e.id) for e in state.all(Experiment) if e.state is ExperimentState.PAUSED
        ]
        for agent in state.all(Agent):
            instance = None if agent.instance_id is None else state.get(Instance, agent.instance_id)
            if agent.instance_id is not None and world.rng.random() < 0.5:
                continue
            if not agent.enabled or (agent.draining and not _ending(instance)):
                requests.append(c.SetAgentEnabled(agent=agent.id, enabled=True))
            requests += [
                c.SetSlotEnabled(agent=agent.id, index=slot.index, enabled=True)
                for slot in agent.slots
                if not slot.enabled or slot.draining
            ]
        for request in requests:
            try:
                await world.submit(request)
            except ResoluteError:
                pass  # it has ended meanwhile
        await asyncio.sleep(5.0)


def _ending(instance: Instance | None) -> bool:
    """The master itself empties the machine."""
    return instance is not None and (instance.intent is Intent.STOP or instance.draining_since is not None)
