"""The working data of a cycle: the committed state, and values derived from it incrementally.

The derived values (pool snapshots, the heap of deadlines) are functions of the state: a replay that starts from a journal snapshot
rebuilds them and decides the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

from resolute.ids import SeededIds
from resolute_master.decision.view import PoolView
from resolute_master.domain.account import Account, Owner
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import KIND_OF, KINDS, Change, Entity, EntityKey, PoolBelief, key_of, kind_name
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import InstanceId, PoolName
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy
from resolute_master.domain.search import Search, SearchTrial
from resolute_master.domain.trial import Trial
from resolute_master.domain.usage import Usage
from resolute_master.engine.pool_view import pool_view
from resolute_master.lifecycle import instances
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.lifecycle.deadlines import deadline
from resolute_master.lifecycle.step import Step
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_provisioner.model import InstanceView, ScalePlan

Pools = Mapping[PoolName, PoolPolicy]

STALE_DEADLINES = 100
"""The heap is rebuilt when more entries than this, and more than half of them, are out of date."""


_POOL_OF: Mapping[type[Entity], Callable[[Any], PoolName | None]] = {
    **{type_: attrgetter("pool") for type_ in (Agent, Allocation, Instance, Job, PoolBelief, Usage)},
    Account: lambda account: PoolName(account.name) if account.owner is Owner.POOL else None,
}

_EXPERIMENT = kind_name(Experiment)

POOL_KINDS = frozenset(KIND_OF[type_] for type_ in _POOL_OF)
"""The kinds of the entities that belong to a pool."""


def pool_of(entity: Entity) -> PoolName | None:
    """The pool whose decisions depend on the entity."""
    of = _POOL_OF.get(type(entity))
    return None if of is None else of(entity)


_OVER: Mapping[type[Entity], Callable[[Any], bool]] = {
    Allocation: lambda allocation: allocation.ended,
    Instance: lambda instance: instance.over,
    Experiment: lambda experiment: experiment.state.terminal,
}
"""Whether an entity has ended, so that it stays in the store only."""


class Memory:
    """State plus derived indexes; changed by `absorb` only."""

    def __init__(self, state: ClusterState, pools: Pools, *, sequence: int, digest: str, now: datetime) -> None:
        self.state = state
        self.pools = pools
        self.sequence = sequence
        self.digest = digest
        self.snapshots: dict[PoolName, PoolSnapshot] = {}
        self.due_pools: set[PoolName] = set(pools)
        """Pools that the next cycle decides, whatever changes."""
        self.revisit: dict[PoolName, datetime] = {}
        self._deadlines: list[tuple[datetime, str, str, EntityKey]] = []
        """A heap of deadlines, which may contain postponed ones; `_due` has the deadlines in force."""
        self._due: dict[tuple[str, EntityKey], datetime] = {}
        for name, policy in sorted(pools.items()):
            self.snapshots[name] = PoolSnapshot.build(
                policy,
                [a for a in state.listed(Agent) if a.pool == name],
                [j.as_scheduled for j in state.listed(Job) if j.pool == name],
                [a for a in state.listed(Allocation) if a.pool == name],
                usage=state.find(Usage, "usage_of_pool", name),
                now=now,
            )
        for _, entities in state.tables():
            self._watch_deadlines(entities)
        self.machines: dict[InstanceId, InstanceView] = {}
        """Machines of elastic pools that have not ended, as inputs of the planner."""
        self.scaled: dict[PoolName, tuple[object, ScalePlan]] = {}
        """The last scaling decision that changed nothing, with its inputs."""
        self._before: tuple[set[PoolName], dict[PoolName, datetime], dict[PoolName, tuple[object, ScalePlan]]]
        """The values that a cycle changes here, before the cycle."""
        self._taken: list[tuple[datetime, str, EntityKey]] = []
        """Deadlines that the cycle has taken."""
        self.remember()
        self._reading = Step(state, now=datetime.min.replace(tzinfo=UTC), ids=SeededIds(0), sequence=0)
        """Rules read through a working copy; this one is never written."""
        self._look_at_machines({instance.id for instance in state.all(Instance)})

    # -- cycles that are given up -------------------------------------------------------------------------------

    def remember(self) -> None:
        """Records the values that a cycle changes, which `take_back` restores."""
        self._before = (set(self.due_pools), dict(self.revisit), dict(self.scaled))
        self._taken.clear()

    def take_back(self) -> None:
        """Restores the values before a cycle of which nothing was stored. Adopted entities stay."""
        due_pools, revisit, scaled = self._before
        self.due_pools, self.revisit, self.scaled = set(due_pools), dict(revisit), dict(scaled)
        for due, kind, key in self._taken:
            self._due[(kind, key)] = due
            heapq.heappush(self._deadlines, (due, kind, str(key), key))
        self._taken.clear()

    # -- machines ----------------------------------------------------------------------------------------------

    def _look_at_machines(self, ids: Iterable[InstanceId]) -> None:
        for id_ in sorted(ids):
            instance = self.state.get(Instance, id_)
            if instance is None or instance.over:
                self.machines.pop(id_, None)
            else:
                self.machines[id_] = instances.view(self._reading, instance)

    def _concerned(self, change: Change) -> set[InstanceId]:
        """Machines whose view may be affected by a change, in the present state. Call it before the change is applied and after."""
        if not self.machines and not any(isinstance(entity, Instance) for entity in change.upserts):
            return set()
        slots = (*((KIND_OF[type(entity)], key_of(entity)) for entity in change.upserts), *change.deletes)
        touched = (self.state.get(KINDS[kind], key) for kind, key in slots)
        return instances.concerned(self._reading, (entity for entity in touched if entity is not None))

    def view(self, pool: PoolName, now: datetime) -> PoolView:
        """The view of the pool for a decision now."""
        here = sorted(self.state.keys("instances_of_pool", pool), key=str)
        machines = tuple(view for id_ in here if (view := self.machines.get(InstanceId(str(id_)))) is not None)
        return pool_view(self.state, self.snapshots[pool].at(now), machines)

    # -- deadlines ---------------------------------------------------------------------------------------------

    def _watch_deadlines(self, entities: Iterable[Entity]) -> None:
        for entity in entities:
            kind, key = KIND_OF[type(entity)], key_of(entity)
            due = deadline(entity, self.pools)
            if due is None:
                self._due.pop((kind, key), None)
            elif self._due.get((kind, key)) != due:
                self._due[(kind, key)] = due
                heapq.heappush(self._deadlines, (due, kind, str(key), key))
        if len(self._deadlines) > STALE_DEADLINES + 2 * len(self._due):
            self._deadlines = [(due, kind, str(key), key) for (kind, key), due in self._due.items()]
            heapq.heapify(self._deadlines)

    def take_due(self, now: datetime, limit: int) -> tuple[tuple[str, EntityKey], ...]:
        """(kind, key) of entities that may be due, each once, in order; the caller checks whether they still are.

        It returns the first `limit`; the rest is due at once in the next cycle.
        """
        found: list[tuple[str, EntityKey]] = []
        while self._deadlines and self._deadlines[0][0] <= now and len(found) < limit:
            due, kind, _, key = heapq.heappop(self._deadlines)
            if self._due.get((kind, key)) == due:
                del self._due[(kind, key)]
                self._taken.append((due, kind, key))
                found.append((kind, key))
        return tuple(sorted(found, key=lambda slot: (slot[0], str(slot[1]))))

    def next_wake(self) -> datetime | None:
        """Time of the next cycle if no command arrives; None for never."""
        times = list(self.revisit.values())
        if self.due_pools:
            return datetime.min.replace(tzinfo=UTC)
        if self._deadlines:
            times.append(self._deadlines[0][0])
        return min(times, default=None)

    # -- commits -----------------------------------------------------------------------------------------------

    def absorb(self, change: Change, snapshots: Mapping[PoolName, PoolSnapshot], digest: str) -> None:
        """Apply a committed change, and drop ended entities."""
        jobs = [
            e.job_id for kind, key in change.deletes if kind == _EXPERIMENT and (e := self.state.get(Experiment, key))
        ]
        concerned = self._concerned(change)
        self.state.absorb(change)
        self.snapshots.update(snapshots)
        self.sequence = change.journal.sequence
        self.digest = digest
        for slot in change.deletes:
            self._due.pop(slot, None)
        self._watch_deadlines(change.upserts)
        concerned |= self._concerned(change)
        self.let_go(change.upserts)
        for job in jobs:
            self.state.forget("job", job)  # stored on, for the books
        self._look_at_machines(concerned)

    def let_go(self, entities: Iterable[Entity]) -> None:
        """Drop ended entities, which stay in the store only. So the memory is proportional to what is active."""
        for entity in entities:
            over = _OVER.get(type(entity))
            held = None if over is None else self.state.get(type(entity), key_of(entity))
            if over is None or held is None or not over(held):
                continue
            if isinstance(held, Experiment):
                self._forget_experiment(held)
            else:
                self.state.forget(KIND_OF[type(held)], key_of(held))

    def _forget_experiment(self, experiment: Experiment) -> None:
        for trial in self.state.find(Trial, "trials_of_experiment", experiment.id):
            self.state.forget("trial", trial.id)
        for checkpoint in self.state.find(Checkpoint, "checkpoints_of_experiment", experiment.id):
            self.state.forget("checkpoint", checkpoint.uuid)
        for row in self.state.find(SearchTrial, "trials_of_search", experiment.id):
            self.state.forget(KIND_OF[SearchTrial], row.id)
        self.state.forget(KIND_OF[Search], experiment.id)
        self.state.forget("job", experiment.job_id)
        self.state.forget("experiment", experiment.id)
