"""One cycle, as a deterministic function of memory, commands, time and entropy.

    commands -> rules -> due timeouts -> the plan of each pool (`decision.plan_pool`) -> one change

The engine commits the change and only then applies it to the memory; replay does the same without a store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from operator import itemgetter
from typing import Any

from msgspec import Struct

from resolute.errors import InvalidInput, ResoluteError
from resolute.ids import SeededIds
from resolute_master.decision.plan_pool import plan_machines, plan_pool
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import KINDS, Change, Entity, EntityKey, JournalEntry, kind_name
from resolute_master.domain.commands import Command, MasterStarted, Reconsider
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import InstanceId, PoolName
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job
from resolute_master.domain.usage import Usage
from resolute_master.engine.apply_plan import apply_plan
from resolute_master.engine.journal import chain, encode_entities, journaled, written_down
from resolute_master.engine.memory import POOL_KINDS, Memory, pool_of
from resolute_master.engine.pool_view import pool_view
from resolute_master.lifecycle import budget, deadlines, instances, spending, usage
from resolute_master.lifecycle.apply import apply, settle
from resolute_master.lifecycle.step import Step
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_master.store.base import VALUE_ERRORS, Unstorable, keeping_values, unstorable
from resolute_master.store.encoding import encode_entity
from resolute_provisioner.model import Demand, InstanceView, OfferBelief, PoolScaling, ScalePlan
from resolute_provisioner.planning.plan import plan_scale

SNAPSHOT_EVERY = 5000
"""Cycles between journal snapshots. A replay of this number takes about a minute, and a snapshot of ten thousand jobs at this
interval costs little. After each snapshot, every pool is decided again, so that a replay may start there."""


DUE_A_CYCLE = 20
"""Most deadlines that expire in one cycle: when a network fails, a thousand agents are lost at one moment, with all their tasks."""


_JOBS = kind_name(Job)

_ABOUT_EVERY_POOL = (MasterStarted, Reconsider)


class RuleFault(ResoluteError):
    """A command that triggers a defect of the rules. It changed nothing, so the master continues with all other commands."""

    def __init__(self, command: Command, cause: Exception) -> None:
        super().__init__(f"{type(command).__name__} cannot be carried out: {type(cause).__name__}: {cause}")
        self.__cause__ = cause


def refusal_of(command: Command, error: Exception) -> ResoluteError:
    """The error for a command that could not be applied."""
    if isinstance(error, InvalidInput):
        return Unstorable(f"{type(command).__name__} is refused: {error}")
    return RuleFault(command, error)


class Outcome(Struct, frozen=True, kw_only=True):
    """The result of a cycle. `replies` has one entry per command: its reply, or the error that refused it.

    `change` is None if no command was accepted, nothing changed and no pool was decided: then there is nothing to store.
    """

    change: Change | None
    replies: tuple[Any | ResoluteError, ...]
    snapshots: dict[PoolName, PoolSnapshot]
    digest: str


class Cycle:
    """One cycle: call `run` once, then commit `Outcome.change` and call `Memory.absorb`; or, if nothing was stored,
    `Memory.take_back`."""

    def __init__(
        self,
        memory: Memory,
        *,
        now: datetime,
        entropy: str,
        adopted: Sequence[Entity] = (),
        stopwatch: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`stopwatch` gives seconds from an arbitrary origin. It has no effect on decisions."""
        self._memory = memory
        self._stopwatch = stopwatch
        self.passes_s: list[tuple[PoolName, float]] = []
        """Seconds of the decision of each pool."""
        self._now = now
        self._entropy = entropy
        self._adopted = tuple(adopted)
        memory.remember()
        memory.state.adopt(self._adopted)  # durable already; `Memory.absorb` lets go of what is over
        self._step = Step(
            memory.state, now=now, ids=self._ids("cycle"), sequence=memory.sequence + 1, pools=memory.pools
        )
        self._snapshots = dict(memory.snapshots)
        self._shown: dict[tuple[str, EntityKey], Entity | None] = {}
        """Changes of this cycle that the snapshots already contain."""
        self._accepted: list[Command] = []
        self._journaled: list[bytes] = []
        """The accepted commands in the form of the journal."""
        self._plans: list[object] = []
        self._stale: set[PoolName] = set()
        """Pools to decide in this cycle."""
        self._known_waiting: set[str] = set()
        """Allocations that were pending when the pools were decided."""
        self._unfinished: set[PoolName] = set()
        """Pools in which more allocations can be placed."""

    def run(self, commands: Iterable[Command]) -> Outcome:
        replies = tuple(self._carry_out(command) for command in commands)
        self._expire()
        self._refresh_idle()
        self._choose_pools()
        for pool in sorted(self._stale):
            begun = self._stopwatch()
            self._decide(pool)
            self.passes_s.append((pool, self._stopwatch() - begun))
        settle(self._step)
        self._refresh_idle()
        self._book()
        self._update_snapshots()
        return self._outcome(replies)

    def _ids(self, label: object) -> SeededIds:
        return SeededIds(f"{self._entropy}/{label}")

    # -- commands and time -------------------------------------------------------------------------------------

    def _carry_out(self, command: Command) -> Any | ResoluteError:
        """Applies a command. The writes of a refused command are undone; only accepted commands are journaled."""
        try:
            command, written = written_down(command)
        except VALUE_ERRORS as error:
            return refusal_of(command, unstorable(error))
        try:
            with self._step.attempt(self._ids(len(self._accepted))):
                reply = apply(self._step, command)
        except ResoluteError as error:
            return error
        except Exception as error:
            return RuleFault(command, error)
        self._accepted.append(command)
        self._journaled.append(written)
        if isinstance(command, _ABOUT_EVERY_POOL):
            self._stale.update(self._memory.pools)
        if isinstance(command, MasterStarted):
            self._memory.scaled.clear()  # a new process remembers no decision, so a replay over its start must not either
        return reply

    def _expire(self) -> None:
        for kind, key in self._memory.take_due(self._now, DUE_A_CYCLE):
            entity = self._step.get(KINDS[kind], key)
            due = None if entity is None else deadlines.deadline(entity, self._memory.pools)
            if entity is not None and due is not None and due <= self._now:
                deadlines.expire(self._step, entity)
                settle(self._step)

    def _refresh_idle(self) -> None:
        """Updates the idle times of machines whose agent, or an allocation on it, was written."""
        if not self._memory.machines and not self._step.written_of(Instance):
            return
        ids = {agent.id for agent in self._step.written_of(Agent)}
        ids.update(container.agent for each in self._step.written_of(Allocation) for container in each.containers)
        touched: dict[str, Instance] = {}
        for id_ in ids:
            agent = self._step.get(Agent, id_)
            instance = self._step.get(Instance, agent.instance_id) if agent and agent.instance_id else None
            if instance is not None:
                touched[instance.id] = instance
        instances.refresh_idle(self._step, [touched[id_] for id_ in sorted(touched)])

    def _book(self) -> None:
        """Books the changes of held slots and paid machines at this cycle's time, whatever their cause."""
        if any(isinstance(command, MasterStarted) for command in self._accepted):
            usage.count_anew(self._step)
            spending.count_anew(self._step)
        else:
            usage.book(self._step, self._memory.state)
            spending.book(self._step, self._memory.state)

    # -- decisions ---------------------------------------------------------------------------------------------

    def _choose_pools(self) -> None:
        memory = self._memory
        self._stale |= memory.due_pools
        self._stale |= {pool for pool, at in memory.revisit.items() if at <= self._now}
        if memory.sequence and memory.sequence % SNAPSHOT_EVERY == 0:
            self._stale.update(memory.pools)
            memory.scaled.clear()
        self._stale |= self._update_snapshots()
        self._stale &= set(memory.pools)
        self._known_waiting = {a.id for a in self._waiting()}

    def _update_snapshots(self) -> set[PoolName]:
        """Bring the pools' snapshots up to date with the working copy; returns the changed pools."""
        moves: list[tuple[int, Entity | None, Entity | None]] = []
        for slot in self._step.written_keys():
            kind, key = slot
            if kind not in POOL_KINDS:
                continue
            after = self._step.get(KINDS[kind], key)
            before = self._shown[slot] if slot in self._shown else self._memory.state.get(KINDS[kind], key)
            if after is not before:
                self._shown[slot] = after
                moves.append((_turn(kind, after), before, after))
        moves.sort(key=itemgetter(0))
        changed = {self._shown_pool(entity) for _, *both in moves for entity in both}
        for _, before, after in moves:
            self._move(before, after)
        return {pool for pool in changed if pool is not None}

    def _move(self, before: Entity | None, after: Entity | None) -> None:
        old, new = self._shown_pool(before), self._shown_pool(after)
        if before is not None and old is not None and old != new:
            self._snapshots[old] = _without(self._snapshots[old], before)
        if after is not None and new is not None:
            self._snapshots[new] = _with(self._snapshots[new], after)

    def _shown_pool(self, entity: Entity | None) -> PoolName | None:
        """The entity's pool, if there is a snapshot of it."""
        pool = None if entity is None else pool_of(entity)
        return pool if pool in self._snapshots else None

    def _decide(self, pool: PoolName) -> None:
        snapshot = self._snapshots[pool].at(self._now).with_hold(budget.hold_of_pool(self._step, pool))
        view = pool_view(self._step, snapshot, self._machines(pool) if snapshot.policy.scaling is not None else ())
        plan = plan_pool(view, machine_planner=partial(plan_machines, planner=self._remembering))
        apply_plan(self._step, plan)
        if plan.unfinished:
            self._unfinished.add(pool)
        self._plans.append([pool, *plan.decided])
        self._snapshots[pool] = plan.snapshot
        self._schedule_revisit(pool, plan.revisit_at)

    def _machines(self, pool: PoolName) -> tuple[InstanceView, ...]:
        """The pool's machines by id; only those that this cycle has changed are read again."""
        entities = (
            entity
            for kind, key in self._step.written_keys()
            for entity in (self._memory.state.get(KINDS[kind], key), self._step.get(KINDS[kind], key))
            if entity is not None
        )
        seen: dict[InstanceId, InstanceView | None] = {**self._memory.machines}
        for id_ in sorted(instances.concerned(self._step, entities)):
            instance = self._step.get(Instance, id_)
            there = instance is not None and not instance.over
            seen[id_] = instances.view(self._step, instance) if instance is not None and there else None
        here = self._step.keys("instances_of_pool", pool)
        return tuple(view for id_ in sorted(here, key=str) if (view := seen.get(InstanceId(str(id_)))) is not None)

    def _remembering(
        self,
        scaling: PoolScaling,
        machines: Sequence[InstanceView],
        demand: Demand,
        beliefs: Mapping[str, OfferBelief],
        now: datetime,
    ) -> ScalePlan:
        """`plan_scale` with a cache: a plan that changed nothing holds until its inputs change, or until its time."""
        pool, inputs = PoolName(scaling.pool), (scaling, machines, demand, dict(beliefs))
        known = self._memory.scaled.pop(pool, None)
        if known is not None and (known[1].revisit_at is None or now < known[1].revisit_at) and known[0] == inputs:
            plan = known[1]
        else:
            plan = plan_scale(scaling, machines, demand, beliefs, now)
        if not plan.launches and not plan.terminations:
            self._memory.scaled[pool] = (inputs, plan)
        return plan

    def _schedule_revisit(self, pool: PoolName, at: datetime | None) -> None:
        self._memory.revisit.pop(pool, None)
        if at is not None:
            self._memory.revisit[pool] = at

    # -- the result --------------------------------------------------------------------------------------------

    def _outcome(self, replies: tuple[Any | ResoluteError, ...]) -> Outcome:
        """The outcome of the cycle. Raises `Unstorable` if a value has no stored form."""
        with keeping_values():
            return self._written_down(replies)

    def _written_down(self, replies: tuple[Any | ResoluteError, ...]) -> Outcome:
        step = self._step
        self._memory.due_pools = self._left_over()
        upserts, deletes = step.upserts(), step.deletes()
        for entity in upserts:
            deadlines.deadline(entity, self._memory.pools)  # once this is stored, it is too late to fail
        draft = Change(
            journal=JournalEntry(
                sequence=step.sequence,
                at=self._now,
                entropy=self._entropy,
                commands=journaled(self._journaled),
                adopted=encode_entities(self._adopted),
                digest="",
            ),
            upserts=upserts,
            bodies=tuple(map(encode_entity, upserts)),
            deletes=deletes,
            outbox_added=step.outbox_added(),
            outbox_removed=step.outbox_removed(),
            logs=tuple(step.logs),
            decisions=tuple(step.decisions),
        )
        if not (self._accepted or self._plans or upserts or deletes):
            return Outcome(change=None, replies=replies, snapshots=self._snapshots, digest=self._memory.digest)
        digest = chain(self._memory.digest, draft, self._plans)
        change = replace(draft, journal=replace(draft.journal, digest=digest))
        return Outcome(change=change, replies=replies, snapshots=self._snapshots, digest=digest)

    def _waiting(self) -> list[Allocation]:
        return [a for a in self._step.written_of(Allocation) if a.assigned_at is None and not a.ended]

    def _left_over(self) -> set[PoolName]:
        """Pools in which applying the plans has caused new pending work, or is incomplete. They are decided again at once."""
        return self._unfinished | {a.pool for a in self._waiting() if a.id not in self._known_waiting}


def _turn(kind: str, after: Entity | None) -> int:
    """Order of writes: a job precedes its allocations when it begins, and follows them when it has ended. Otherwise the work
    would be listed twice."""
    if kind != _JOBS:
        return 1
    return 0 if isinstance(after, Job) and not after.ended else 2


def _with(snapshot: PoolSnapshot, entity: Entity) -> PoolSnapshot:
    match entity:
        case Allocation():
            return snapshot.with_allocation(entity)
        case Job():
            return snapshot.with_job(entity.as_scheduled)
        case Agent():
            return snapshot.with_agent(entity)
        case Usage():
            return snapshot.with_usage(entity)
        case _:
            return snapshot


def _without(snapshot: PoolSnapshot, entity: Entity) -> PoolSnapshot:
    match entity:
        case Usage():
            return snapshot.without_usage(entity)
        case Agent():
            return snapshot.without_agent(entity.id)
        case Job():
            return snapshot.without_job(entity.id)
        case Allocation():
            return snapshot.without_allocation(entity.id)
        case _:
            return snapshot
