"""The life of experiments under any order of users' wishes, agents' reports, losses and restarts of the master.

The engine is the real one over the memory store; the clock stands still until a rule advances it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from resolute.clock import FixedClock
from resolute.errors import ResoluteError
from resolute.ids import SeededIds
from resolute.wire.agent_link import ContainerReport, Exit
from resolute.wire.states import ContainerState, ExperimentState, FailureKind, LogPolicyAction, NoticeKind
from resolute_master.domain import commands as c
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation, Container
from resolute_master.domain.change import Counter as Numbers
from resolute_master.domain.effects import KillContainer, RemoveCheckpoint, StartContainer
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import AgentId, ExperimentId, InstanceId, PoolName, TaskId, TrialId
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy
from resolute_master.domain.trial import Trial
from resolute_master.engine.cycle import RuleFault
from resolute_master.engine.engine import Engine
from resolute_master.engine.replay import replay
from resolute_master.lifecycle import instances
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.lifecycle.step import Step
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_master.store.encoding import encode_entity
from resolute_master.store.memory import MemoryStore
from resolute_provisioner.model import Intent, Market, Observed, Offer, PoolScaling, RefusalKind
from support.cluster import T0, device
from support.engines import DEFAULT, a_config, a_user, an_engine

OTHER = PoolName("other")
OFFER = Offer(offer_id="local", instance_type="local", zone="z", market=Market.SPOT, slots=2, price_per_hour=1.0)
SCALING = PoolScaling(
    pool=OTHER, offers=(OFFER,), max_instances=2, idle_timeout_s=30.0, boot_timeout_s=100.0, drain_timeout_s=50.0
)
POOLS = {
    DEFAULT: PoolPolicy(name=DEFAULT, preemption=True),
    OTHER: PoolPolicy(name=OTHER, preemption=True, scaling=SCALING),
}
AGENTS = (AgentId("agent-1"), AgentId("agent-2"), AgentId("agent-3"))
SLOTS = 2

USER_ACTIONS = (
    c.PauseExperiment,
    c.ActivateExperiment,
    c.CancelExperiment,
    c.KillExperiment,
    c.DeleteExperiment,
)
ENDS = (
    Exit(code=0),
    Exit(code=0),
    Exit(code=1),
    Exit(code=137),
    Exit(failure=FailureKind.AGENT_ERROR, message="no room"),
    Exit(failure=FailureKind.LAUNCH_REFUSED, message="no such image"),
)
NEXT = {
    ContainerState.ASSIGNED: ContainerState.PULLING,
    ContainerState.PULLING: ContainerState.STARTING,
    ContainerState.STARTING: ContainerState.RUNNING,
    ContainerState.RUNNING: ContainerState.RUNNING,
}

which = st.integers(0, 1_000_000)
"""Chooses among whatever there is at the time."""


class Life(RuleBasedStateMachine):
    """Rules act; what is refused is refused with a reason; the invariants hold after each."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = FixedClock(T0)
        self.store = MemoryStore()
        self.starts = 0
        self.sequence = 0
        self.incarnations = dict.fromkeys(AGENTS, 0)
        self.checkpoints = 0
        self.run_ids: dict[TrialId, int] = {}
        self.ends: dict[tuple[str, int], ExperimentState] = {}
        self.engine = self.start_engine()

    def start_engine(self) -> Engine:
        self.starts += 1
        engine = an_engine(self.store, seed=self.starts, clock=self.clock, pools=POOLS)

        async def go() -> asyncio.Task[None]:
            await engine.start()
            return asyncio.create_task(engine.run())

        self.task = self.runner.run(go())
        return engine

    def stop_engine(self) -> None:
        async def stop() -> None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

        self.runner.run(stop())

    def tell(self, command: c.Command) -> Any:
        """The reply, or None when it was refused; a bug is no refusal."""
        try:
            return self.runner.run(self.engine.submit(command))
        except RuleFault:
            raise
        except ResoluteError:
            return None

    def teardown(self) -> None:
        try:
            digest = self.engine.memory.digest
            self.stop_engine()
            for snapshot in self.runner.run(self.store.snapshots()):
                result = self.runner.run(replay(snapshot, self.store.journal(snapshot.sequence), POOLS))
                assert result.divergence is None and result.digest == digest
        finally:
            self.runner.close()

    # -- what there is ---------------------------------------------------------------------------------------------

    def chosen(self, there: tuple[Any, ...], choice: int) -> Any:
        return there[choice % len(there)]

    def containers(self) -> tuple[tuple[Agent, Container], ...]:
        """What an agent that is connected has or is to have."""
        return tuple(
            (agent, container)
            for agent in self.engine.state.all(Agent)
            if agent.connected
            for allocation in self.engine.state.find(Allocation, "allocations_on_agent", agent.id)
            for container in allocation.containers
            if container.agent == agent.id and not container.ended
        )

    def placed(self) -> tuple[Allocation, ...]:
        return tuple(a for a in self.engine.state.all(Allocation) if a.containers)

    # -- users -----------------------------------------------------------------------------------------------------

    @initialize()
    def someone_owns_everything(self) -> None:
        self.owner = self.runner.run(a_user(self.engine))

    @rule(
        slots=st.sampled_from((1, 1, 2, 3, 4)),
        trials=st.sampled_from((1, 1, 3)),
        restarts=st.integers(0, 2),
        seed=st.integers(0, 2),
        priority=st.integers(1, 99),
        pool=st.sampled_from((DEFAULT, OTHER)),
        activate=st.booleans(),
    )
    def submit(
        self, slots: int, trials: int, restarts: int, seed: int, priority: int, pool: PoolName, activate: bool
    ) -> None:
        command = c.CreateExperiment(
            owner=self.owner,
            config={**a_config(slots=slots, trials=trials, restarts=restarts), "preemption_timeout": 100.0},
            original_config="",
            context_hash="",
            pool=pool,
            priority=priority,
            weight=1.0,
            max_slots=None,
            seed=seed,
            activate=activate,
        )
        assert self.tell(command) is not None

    @rule(action=st.sampled_from(USER_ACTIONS), choice=which)
    def act(self, action: Any, choice: int) -> None:
        if last := self.count("experiment"):
            self.tell(action(experiment=ExperimentId(1 + choice % last)))

    @rule(choice=which)
    def kill_one_trial(self, choice: int) -> None:
        if last := self.count("trial"):
            self.tell(c.KillTrial(trial=TrialId(1 + choice % last)))

    @precondition(lambda self: self.engine.state.all(Job))
    @rule(choice=which, priority=st.integers(1, 99), pool=st.sampled_from((None, None, DEFAULT, OTHER)))
    def change_a_job(self, choice: int, priority: int, pool: PoolName | None) -> None:
        job = self.chosen(self.engine.state.all(Job), choice)
        self.tell(c.UpdateJob(job=job.id, priority=priority, pool=pool))

    # -- agents ----------------------------------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(AGENTS),
        anew=st.booleans(),
        forgets=st.booleans(),
        slots=st.sampled_from((SLOTS, SLOTS, SLOTS, 1)),
        pool=st.sampled_from((DEFAULT, DEFAULT, DEFAULT, OTHER)),
    )
    def agent_connects(self, name: AgentId, anew: bool, forgets: bool, slots: int, pool: PoolName) -> None:
        self.incarnations[name] += anew
        self.register(name, pool, slots, self.reports_of(name, forgets=forgets), str(self.incarnations[name]))

    def reports_of(self, name: AgentId, *, forgets: bool) -> tuple[ContainerReport, ...]:
        """Reports of the agent's containers, if its memory was not lost."""
        reports = []
        for allocation in self.engine.state.find(Allocation, "allocations_on_agent", name):
            for container in allocation.containers:
                started = f"start:{container.id}" not in self.engine.state.outbox
                if container.agent == name and not container.ended and started and not forgets:
                    reports.append(self.report_of(container, container.state, None))
        return tuple(reports)

    def register(
        self,
        name: AgentId,
        pool: PoolName,
        slots: int,
        reports: tuple[ContainerReport, ...],
        incarnation: str,
        instance: InstanceId | None = None,
    ) -> None:
        self.tell(
            c.RegisterAgent(
                agent=name,
                pool=pool,
                incarnation=incarnation,
                devices=tuple(device(i) for i in range(slots)),
                address="10.0.0.1",
                version="0",
                instance=instance,
                reports=reports,
            )
        )

    @precondition(lambda self: self.engine.state.all(Agent))
    @rule(choice=which)
    def link_breaks(self, choice: int) -> None:
        agent = self.chosen(self.engine.state.all(Agent), choice)
        self.tell(c.LoseAgentLink(agent=agent.id, incarnation=agent.incarnation))

    def report_of(self, container: Container, state: ContainerState, exit_: Exit | None) -> ContainerReport:
        self.sequence += 1
        return ContainerReport(
            container_id=container.id,
            allocation_id="",
            state=state,
            sequence=self.sequence,
            at=self.clock.now(),
            exit=exit_,
        )

    def report(self, agent: Agent, container: Container, state: ContainerState, exit_: Exit | None = None) -> None:
        report = self.report_of(container, state, exit_)
        self.tell(c.ReportContainer(agent=agent.id, incarnation=agent.incarnation, report=report))

    @precondition(lambda self: self.containers())
    @rule(choice=which)
    def container_moves_on(self, choice: int) -> None:
        agent, container = self.chosen(self.containers(), choice)
        self.report(agent, container, NEXT[container.state])

    @precondition(lambda self: self.containers())
    @rule(choice=which, exit_=st.sampled_from((*ENDS, None)))
    def container_ends(self, choice: int, exit_: Exit | None) -> None:
        agent, container = self.chosen(self.containers(), choice)
        self.report(agent, container, ContainerState.TERMINATED, exit_)

    @rule()
    def agents_obey_every_kill(self) -> None:
        killed = {e.container for e in self.engine.outstanding() if isinstance(e, KillContainer)}
        for agent, container in self.containers():
            if container.id in killed:
                self.report(agent, container, ContainerState.TERMINATED, Exit(code=137))

    @precondition(lambda self: self.engine.state.all(Agent))
    @rule(choice=which, kind=st.sampled_from(NoticeKind), in_s=st.sampled_from((None, 5, 120)))
    def machine_gives_notice(self, choice: int, kind: NoticeKind, in_s: int | None) -> None:
        agent = self.chosen(self.engine.state.all(Agent), choice)
        deadline = None if in_s is None else self.clock.now() + timedelta(seconds=in_s)
        self.tell(
            c.ReportNotice(
                agent=agent.id,
                incarnation=agent.incarnation,
                kind=kind,
                deadline=deadline,
                reason="a fault",
            )
        )

    @precondition(lambda self: self.engine.state.all(Agent))
    @rule(choice=which, enabled=st.booleans(), draining=st.booleans(), slot=st.sampled_from((None, 0, 1)))
    def operator_switches(self, choice: int, enabled: bool, draining: bool, slot: int | None) -> None:
        agent = self.chosen(self.engine.state.all(Agent), choice)
        if slot is None:
            self.tell(c.SetAgentEnabled(agent=agent.id, enabled=enabled, draining=draining))
        else:
            self.tell(c.SetSlotEnabled(agent=agent.id, index=slot, enabled=enabled, draining=draining))

    @precondition(lambda self: self.engine.state.all(Trial) and self.engine.state.all(Agent))
    @rule(trial=which, agent=which, action=st.sampled_from((*LogPolicyAction, None)))
    def log_line_matches(self, trial: int, agent: int, action: LogPolicyAction | None) -> None:
        match = c.MatchedLine(
            trial=self.chosen(self.engine.state.all(Trial), trial).id,
            allocation=None,
            agent=self.chosen(self.engine.state.all(Agent), agent).id,
            name=None if action else "a label",
            pattern="bad",
            action=action,
            line="a bad line",
        )
        self.tell(c.RecordLogMatches(matches=(match,)))

    # -- machines of the elastic pool --------------------------------------------------------------------------------

    @precondition(lambda self: self.engine.state.all(Instance))
    @rule(choice=which, refused=st.sampled_from((False, False, False, True)))
    def cloud_answers(self, choice: int, refused: bool) -> None:
        instance = self.chosen(self.engine.state.all(Instance), choice)
        if instance.launched_at is not None:
            return
        if refused:
            self.tell(c.RecordRefusal(instance=instance.id, kind=RefusalKind.NO_CAPACITY, message="none left"))
        else:
            self.tell(
                c.RecordLaunch(
                    instance=instance.id, provider_id=instance.id, observed=Observed.RUNNING, paid_from=self.clock.now()
                )
            )

    @precondition(lambda self: self.engine.state.all(Instance))
    @rule(choice=which, forgets=st.sampled_from((False, False, True)))
    def machine_joins(self, choice: int, forgets: bool) -> None:
        instance = self.chosen(self.engine.state.all(Instance), choice)
        name = AgentId(instance.id)
        self.register(name, OTHER, SLOTS, self.reports_of(name, forgets=forgets), "its own", instance.id)

    @precondition(lambda self: self.engine.state.all(Instance))
    @rule(choice=which, only_if_asked=st.sampled_from((True, True, False)))
    def machine_goes(self, choice: int, only_if_asked: bool) -> None:
        instance = self.chosen(self.engine.state.all(Instance), choice)
        if instance.intent is Intent.STOP or not only_if_asked:
            self.tell(
                c.RecordObservation(
                    instance=instance.id,
                    provider_id=instance.id,
                    observed=Observed.GONE,
                    paid_from=None,
                    paid_until=self.clock.now(),
                )
            )

    # -- tasks -----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.engine.state.all(Allocation))
    @rule(choice=which)
    def task_acknowledges(self, choice: int) -> None:
        self.tell(c.AcknowledgePreemption(allocation=self.chosen(self.engine.state.all(Allocation), choice).id))

    @precondition(lambda self: self.placed())
    @rule(choice=which)
    def task_joins(self, choice: int) -> None:
        allocation = self.chosen(self.placed(), choice)
        container = self.chosen(allocation.containers, choice // 7)
        self.tell(c.JoinRendezvous(allocation=allocation.id, container=container.id))
        if choice % 3 == 0:
            self.tell(c.MarkDaemon(allocation=allocation.id, container=container.id))

    @precondition(lambda self: self.placed())
    @rule(choice=which, steps=st.integers(0, 20), loss=st.sampled_from((0.5, "NaN", "Infinity", 2)))
    def task_reports(self, choice: int, steps: int, loss: object) -> None:
        allocation = self.chosen(self.placed(), choice)
        assert allocation.trial_id is not None
        report = c.StoredReport(
            trial=allocation.trial_id,
            run_id=allocation.run_id - choice % 2,
            steps_completed=steps,
            validation={"loss": loss},
            reported_at=self.clock.now(),
        )
        self.tell(c.RecordReports(reports=(report,)))
        self.tell(c.ReportProgress(trial=allocation.trial_id, progress=steps / 20))

    @precondition(lambda self: self.placed())
    @rule(choice=which, steps=st.integers(0, 20))
    def task_saves(self, choice: int, steps: int) -> None:
        self.checkpoints += 1
        allocation = self.chosen(self.placed(), choice)
        self.tell(
            c.ReportCheckpoint(
                uuid=f"checkpoint-{self.checkpoints}",
                allocation=allocation.id,
                steps_completed=steps,
                resources={"weights": 1},
                metadata={"steps_completed": steps},
            )
        )

    @precondition(lambda self: self.placed())
    @rule(choice=which)
    def task_finds_its_point_invalid(self, choice: int) -> None:
        trial = self.chosen(self.placed(), choice).trial_id
        self.tell(c.ReportEarlyExit(trial=trial, invalid_hparams=True))

    # -- time, files, the master itself ----------------------------------------------------------------------------

    @rule(seconds=st.sampled_from((1, 11, 31, 101)))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.tell(c.Reconsider())

    @rule()
    def files_are_removed(self) -> None:
        for effect in self.engine.outstanding():
            if isinstance(effect, RemoveCheckpoint):
                self.tell(c.SetCheckpointResources(uuid=effect.uuid, resources={}))

    @rule()
    def master_restarts(self) -> None:
        self.stop_engine()
        self.engine = self.start_engine()

    # -- what holds ------------------------------------------------------------------------------------------------

    @invariant()
    def memory_is_what_a_restart_would_load(self) -> None:
        stored = self.runner.run(self.store.load())
        held, loaded = self.engine.state.entities(), ClusterState(stored.entities).entities()
        # As bytes, because a loss that is no number equals nothing.
        assert list(map(encode_entity, held)) == list(map(encode_entity, loaded))
        assert self.engine.outstanding() == tuple(sorted(stored.outbox, key=lambda effect: effect.key))

    @invariant()
    def snapshots_are_what_one_would_build(self) -> None:
        state = self.engine.state
        for name, policy in POOLS.items():
            kept = self.engine.memory.snapshots[name]
            built = PoolSnapshot.build(
                policy,
                [a for a in state.all(Agent) if a.pool == name],
                [j for j in state.all(Job) if j.pool == name],
                [a for a in state.all(Allocation) if a.pool == name],
                kept.supply,
                now=kept.now,
            )
            assert kept == built

    @invariant()
    def machines_are_seen_as_they_are(self) -> None:
        memory = self.engine.memory
        reading = Step(memory.state, now=self.clock.now(), ids=SeededIds(0), sequence=0)
        seen = tuple(memory.machines[id_] for id_ in sorted(memory.machines))
        assert seen == instances.views(reading, OTHER)
        assert sum(not instance.over for instance in memory.state.all(Instance)) == len(seen)

    @invariant()
    def a_trial_has_the_allocation_that_its_state_asks_for(self) -> None:
        open_ = Counter(a.trial_id for a in self.engine.state.all(Allocation) if not a.ended)
        for trial in self.engine.state.all(Trial):
            assert open_[trial.id] <= 1
            if trial.state is ExperimentState.ACTIVE or trial.state.stopping:
                assert open_[trial.id] == 1, trial
            if trial.state.gone:
                assert open_[trial.id] == 0, trial
        for allocation in self.engine.state.all(Allocation):
            assert not allocation.ended
            trial_ = self.engine.state.get(Trial, allocation.trial_id or 0)
            assert trial_ is not None and trial_.run_id == allocation.run_id
            if trial_.state is ExperimentState.PAUSED:
                assert allocation.leaving, allocation

    @invariant()
    def no_run_is_where_log_policies_forbid_it(self) -> None:
        for allocation in self.engine.state.all(Allocation):
            trial = self.engine.state.get(Trial, allocation.trial_id or 0)
            if allocation.assigned_at is None:
                assert trial is not None and allocation.blocked_agents == trial.blocked_agents
            assert not {member.agent for member in allocation.containers} & set(allocation.blocked_agents)

    @invariant()
    def run_ids_grow(self) -> None:
        for trial in self.engine.state.all(Trial):
            assert trial.run_id >= self.run_ids.get(trial.id, 0)
            self.run_ids[trial.id] = trial.run_id
            rows = self.runner.run(self.store.allocations_of_task(TaskId(trial.task_id)))
            assert [row.run_id for row in rows] == list(range(1, trial.run_id + 1))

    @invariant()
    def an_experiment_lives_as_long_as_one_of_its_trials(self) -> None:
        for experiment in self.engine.state.all(Experiment):
            trials = self.engine.state.find(Trial, "trials_of_experiment", experiment.id)
            assert any(not t.state.gone for t in trials) != experiment.state.gone, experiment.state

    @invariant()
    def what_is_over_stays_as_it_was(self) -> None:
        for kind in ("experiment", "trial"):
            for key in range(1, self.count(kind) + 1):
                entity = self.stored(kind, key)
                before = self.ends.get((kind, key))
                if before is not None and entity is not None and entity.state is not ExperimentState.DELETING:
                    assert entity.state is before
                if entity is not None and entity.state.terminal:
                    assert entity.ended_at is not None
                    self.ends[(kind, key)] = entity.state

    def stored(self, kind: str, key: int) -> Experiment | Trial | None:
        if kind == "trial":
            return self.runner.run(self.store.trial(TrialId(key)))
        return self.runner.run(self.store.experiment(ExperimentId(key)))

    def count(self, counter: str) -> int:
        last = self.engine.state.get(Numbers, counter)
        return 0 if last is None else last.value

    @invariant()
    def every_slot_has_one_holder_on_an_agent_that_has_it(self) -> None:
        held = [slot for a in self.engine.state.all(Allocation) for slot in a.held_slots]
        assert len(held) == len(set(held))
        for slot in held:
            agent = self.engine.state.get(Agent, slot.agent)
            assert agent is not None and slot.index in {s.index for s in agent.slots}

    @invariant()
    def every_order_is_about_something_that_has_not_ended(self) -> None:
        open_ = {
            container.id
            for allocation in self.engine.state.all(Allocation)
            for container in allocation.containers
            if not container.ended
        }
        for effect in self.engine.outstanding():
            if isinstance(effect, StartContainer | KillContainer):
                assert effect.container in open_, effect

    @invariant()
    def what_is_killed_is_ordered_to_end(self) -> None:
        ordered = {e.container for e in self.engine.outstanding() if isinstance(e, KillContainer)}
        for allocation in self.engine.state.all(Allocation):
            if allocation.killed_at is not None:
                assert {container.id for container in allocation.containers if not container.ended} <= ordered


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=40, stateful_step_count=40)
