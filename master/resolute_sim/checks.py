"""All checkers over one world: called at every commit, at every start of a task, and at the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from resolute.clock import Clock
from resolute_master.api.reading.booked_runs import runs_on
from resolute_master.domain.change import Change
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import PoolName
from resolute_master.domain.instance import Instance
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine.memory import Memory
from resolute_master.lifecycle.cost import Grouping, Line, cost_by
from resolute_master.lifecycle.ledger import Books
from resolute_master.store.base import ExperimentQuery, Store, TrialQuery
from resolute_provisioner.clouds.fake import FakeCloud
from resolute_sim.checkers import deadlines, economy, liveness, reference, resume, safety, spending
from resolute_sim.checkers.prices import ReportedPrices, work_pays_what_its_machines_cost
from resolute_sim.event_log import EventLog, LiveTask

ENOUGH = 20
"""Violations that are kept: the first one explains, the rest only repeats it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """`rule` begins with its family."""

    at: datetime
    rule: str
    text: str

    def __str__(self) -> str:
        return f"[{self.at:%H:%M:%S.%f}] {self.rule}: {self.text}"


class Checks:
    """Collects violations; `snapshot_every` is the interval of the costliest rule (1: at every commit), `rules_every` that of all
    rules about the whole state."""

    def __init__(
        self,
        *,
        clock: Clock,
        cloud: FakeCloud,
        event_log: EventLog,
        checkpoints: Mapping[str, int],
        pools: Mapping[PoolName, PoolPolicy],
        snapshot_every: int = 1,
        rules_every: int = 1,
        prices_asked_every_s: float = 0.0,
    ) -> None:
        self.violations: list[Violation] = []
        self.commits = 0
        self.deadlines = 0
        """Number of deadlines that were checked."""
        self._clock = clock
        self._cloud = cloud
        self._event_log = event_log
        self._checkpoints = checkpoints
        self._pools = pools
        self._snapshot_every = snapshot_every
        self._rules_every = rules_every
        self._moves = safety.Moves()
        self._incarnations = safety.Incarnations()
        self._ownership = safety.Ownership(event_log, {p.name: p.agent_reconnect_wait_s for p in pools.values()})
        self._lingering = economy.Lingering(pools)
        self._deadlines = deadlines.Deadlines(pools, event_log)
        self._reported = ReportedPrices(cloud, prices_asked_every_s)
        self._limits = spending.Limits(cloud, event_log, self._reported)

    @property
    def broken(self) -> bool:
        return bool(self.violations)

    def violate(self, rule: str, text: str) -> None:
        if len(self.violations) < ENOUGH:
            self.violations.append(Violation(at=self._clock.now(), rule=rule, text=text))

    def _found(self, rule: str, problems: Iterable[str]) -> None:
        for text in problems:
            self.violate(rule, text)

    # -- while it runs -----------------------------------------------------------------------------------------

    def stored(self, change: Change) -> None:
        """Every durable change, also one after which its master was killed at once."""
        self._ownership.note(change)
        self._reported.note(change)
        self._found("safety: states move forward", self._moves.check(change))
        self._found("safety: reports of outdated agents are refused", self._incarnations.check(change))
        self._found("reference: orders are in the outbox", reference.starts_are_ordered(change))

    def committed(self, memory: Memory, change: Change) -> None:
        """A change that its master has taken over."""
        state, now = memory.state, self._clock.now()
        self.commits += 1
        self._lingering.note(state, now)
        self._deadlines.note(state, change)
        if self.commits % self._rules_every:
            return
        self._found("safety: a slot is used once", safety.slots_used_once(state))
        self._found("safety: gangs are whole", safety.gangs_are_whole(state))
        self._found("safety: pools stay within their bounds", safety.pools_within_bounds(state, self._pools))
        self._found("safety: nothing outlives its allocation", self._ownership.outlived(now))
        self._found("reference: pointers have targets", reference.pointers_have_targets(state))
        self._found("reference: agents have instances", reference.agents_have_instances(state))
        self._found("reference: orders are in the outbox", reference.orders_are_in_the_outbox(state))
        self._found("economy: launches are needed", economy.launches_are_needed(state, change, self._pools))
        self._found("reference: work pays what its machines cost", work_pays_what_its_machines_cost(state))
        self._found("reference: usage is what is held", reference.usage_is_what_is_held(memory))
        self._found("reference: searches know their trials", reference.searches_know_their_trials(state))
        if self.commits % self._snapshot_every == 0:
            self._found("reference: the snapshot equals its source", reference.snapshots_equal_scratch(memory))

    def task_started(self, task: LiveTask) -> None:
        self._found("safety: one run of a trial at a time", self._ownership.started(task))

    def resumed(self, trial: int, run: int, *, told: int, uuid: str) -> None:
        problems = resume.resumed(self._event_log, self._checkpoints, trial=trial, run=run, told=told, uuid=uuid)
        self._found("resume: runs resume from the latest checkpoint", problems)

    def excuse(self, seconds: float) -> None:
        """Time for which the master or a machine was unreachable."""
        self._lingering.excuse(seconds)
        self._deadlines.excuse(seconds)

    def unreachable(self, machine: str | None, since: datetime) -> None:
        """From then until now no order could reach the machine, None: any."""
        self._limits.unreachable(machine, since, self._clock.now())
        if machine is None:
            self._reported.away(since, self._clock.now())
        else:
            self._deadlines.silent(machine)

    def froze(self, machine: str) -> None:
        self._lingering.froze(machine)
        self._deadlines.silent(machine)

    # -- now and then ------------------------------------------------------------------------------------------

    async def look(self, store: Store) -> None:
        """What can be seen from outside at any time."""
        self._found("safety: nothing outlives its allocation", self._ownership.outlived(self._clock.now()))
        recorded = economy.every_machine_is_recorded(self._cloud, await store.instances())
        self._found("economy: every machine is recorded", recorded)

    async def woken(self, memory: Memory, store: Store) -> None:
        """What a restart would find equals what the engine has, unless it was killed between its commit and the update of its
        memory."""
        stored = await store.load()
        if stored.sequence == memory.sequence:
            self._found("reference: memory equals store", reference.memory_equals_store(memory.state, stored))

    def unsettled(self, memory: Memory) -> list[str]:
        return list(liveness.unsettled(memory.state, self._pools))

    def not_settled(self, memory: Memory, hours: float) -> None:
        for text in self.unsettled(memory):
            self.violate("liveness: everything settles", f"after {hours:.1f} calm hours {text}")

    async def at_the_end(self, memory: Memory, store: Store) -> None:
        rows = await store.instances()
        await self.look(store)
        await self.woken(memory, store)
        self._found("economy: bills are booked", economy.bills_are_booked(self._cloud, rows))
        booked = economy.accounts_are_booked(memory.state, rows, self._clock.now())
        self._found("economy: accounts are booked", booked)
        bill, now = spending.ordered(self._cloud, rows), self._clock.now()
        asked = spending.Asked(self._cloud, self._reported, bill, rows, now)
        self._found("economy: accounts equal the bill", asked.of_accounts(memory.state))
        self._found("economy: the books equal the bill", asked.of_books(await _books(store, rows, now)))
        self._found("economy: the market is followed", self._reported.late(now))
        self._found("economy: nothing is left", economy.nothing_is_left(self._cloud, self._event_log, memory.state))
        lingering = self._lingering.check(self._cloud, self._event_log, self._clock.now())
        self._found("economy: machines are given back", lingering)
        for trial in sorted(self._event_log.of_trial):
            self._found("resume: steps are contiguous", resume.steps_are_contiguous(self._event_log, trial))
        self._found("economy: deadlines are kept", self._deadlines.check())
        self.deadlines = self._deadlines.judged
        await self._completed(store)

    async def _completed(self, store: Store) -> None:
        for experiment in (await store.page_experiments(ExperimentQuery(limit=None))).rows:
            steps = _steps_of(experiment)
            trials = (await store.page_trials(TrialQuery(experiment_id=experiment.id))).rows
            kept = self._limits.check(experiment, (trial.id for trial in trials))
            self._found("economy: limits are kept", kept)
            for trial in trials:
                reports = await store.metrics(trial.id)
                problems = resume.completed_trials_are_complete(trial, steps, self._event_log, reports)
                self._found("resume: completed trials are complete", problems)


async def _books(store: Store, rows: Sequence[Instance], now: datetime) -> list[tuple[str, dict[str, Line]]]:
    """As `det cost` shows them, by everything that they can be shown by."""
    runs = await runs_on(store, rows)
    jobs = {job.id: job for job in await store.jobs(sorted({run.allocation.job_id for run in runs}))}
    return [(each.value, cost_by(each, rows, Books(runs), jobs, now=now)) for each in Grouping]


def _steps_of(experiment: Experiment) -> int:
    return int(experiment.config["data"]["steps"])
