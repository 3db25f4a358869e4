"""The state of the cluster: one table a noun, and the indexes that the rules look things up by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import KIND_OF, KINDS, Change, Entity, EntityKey, key_of, kind_name
from resolute_master.domain.effects import Effect
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job

E = TypeVar("E", bound=Entity)

IndexValue = int | str | None

ValuesOf = Callable[[Any], tuple[IndexValue, ...]]
"""Of an entity of the kind that the index is over."""


def _allocation_agents(allocation: Allocation) -> tuple[IndexValue, ...]:
    return tuple([c.agent for c in allocation.containers])


def _allocation_containers(allocation: Allocation) -> tuple[IndexValue, ...]:
    return tuple([c.id for c in allocation.containers])


def _pool_of_deadline(allocation: Allocation) -> tuple[IndexValue, ...]:
    return (allocation.pool,) if allocation.deadline is not None and not allocation.ended else ()


def _gangs_of_machine(instance: Instance) -> tuple[IndexValue, ...]:
    return () if instance.over else instance.gangs


def line_of(job: Job) -> IndexValue:
    """The jobs among which it has its place: those of its pool and priority that have not ended."""
    return None if job.ended else f"{job.priority} {job.pool}"


INDEXES: Mapping[str, tuple[str, ValuesOf]] = {
    "trials_of_experiment": ("trial", lambda e: (e.experiment_id,)),
    "trial_of_request": ("trial", lambda e: (e.request_id,)),
    "checkpoints_of_experiment": ("checkpoint", lambda e: (e.experiment_id,)),
    "experiment_of_job": ("experiment", lambda e: (e.job_id,)),
    "allocations_of_task": ("allocation", lambda e: (e.task_id,)),
    "allocations_of_job": ("allocation", lambda e: (e.job_id,)),
    "allocations_on_agent": ("allocation", _allocation_agents),
    "allocation_of_container": ("allocation", _allocation_containers),
    "deadlines_of_pool": ("allocation", _pool_of_deadline),
    "jobs_of_line": ("job", lambda e: (line_of(e),)),
    "agent_of_instance": ("agent", lambda e: (e.instance_id,)),
    "agents_of_pool": ("agent", lambda e: (e.pool,)),
    "instances_of_pool": ("instance", lambda e: (e.pool,)),
    "machine_of_agent": ("instance", lambda e: (e.agent_id,)),
    "machines_for_gang": ("instance", _gangs_of_machine),
    "user_by_name": ("user", lambda e: (e.username,)),
    "sessions_of_user": ("session", lambda e: (e.user_id,)),
    "usage_of_pool": ("usage", lambda e: (e.pool,)),
    "beliefs_of_pool": ("belief", lambda e: (e.pool,)),
}
"""name -> (kind, values under which an entity of that kind is found)."""

INDEXES_OF_KIND: dict[str, list[tuple[str, ValuesOf]]] = defaultdict(list)
"""kind -> names of the indexes over it, with the values under which they list an entity."""
for _name, (_kind, _values) in INDEXES.items():
    INDEXES_OF_KIND[_kind].append((_name, _values))


class ClusterState:
    """What is durable, in memory. Only `absorb`, `adopt` and `forget` change it, and only the engine calls them."""

    def __init__(self, entities: Iterable[Entity] = (), outbox: Iterable[Effect] = ()) -> None:
        self._tables: dict[str, dict[EntityKey, Any]] = {kind: {} for kind in KINDS}
        self._indexes: dict[str, dict[IndexValue, set[EntityKey]]] = {name: {} for name in INDEXES}
        self.outbox: dict[str, Effect] = {}
        self.adopt(entities)
        for effect in outbox:
            self.outbox[effect.key] = effect

    def get(self, type_: type[E], key: EntityKey) -> E | None:
        found: E | None = self._tables[KIND_OF[type_]].get(key)
        return found

    def all(self, type_: type[E]) -> tuple[E, ...]:
        """Every entity of the kind, by key."""
        table = self._tables[kind_name(type_)]
        return tuple(table[key] for key in sorted(table, key=sortable))

    def listed(self, type_: type[E]) -> list[E]:
        """Every entity of the kind as it is now, in no order: a copy, for readers in another thread."""
        return list(self._tables[kind_name(type_)].values())

    def keys(self, index: str, value: IndexValue) -> frozenset[EntityKey]:
        return frozenset(self._indexes[index].get(value, ()))

    def find(self, type_: type[E], index: str, value: IndexValue) -> tuple[E, ...]:
        """Entities which the index lists under the value, by key."""
        table = self._tables[kind_name(type_)]
        return tuple(table[key] for key in sorted(self.keys(index, value), key=sortable))

    def entities(self) -> tuple[Entity, ...]:
        """Everything, by kind and key."""
        return tuple(self._tables[kind][key] for kind in KINDS for key in sorted(self._tables[kind], key=sortable))

    def tables(self) -> tuple[tuple[str, list[Entity]], ...]:
        """Everything as it is now, by kind, in no order: a copy that later changes do not reach."""
        return tuple((kind, list(self._tables[kind].values())) for kind in KINDS)

    def absorb(self, change: Change) -> None:
        """Take over what has been committed."""
        self.adopt(change.upserts)
        for kind, key in change.deletes:
            self.forget(kind, key)
        for effect in change.outbox_added:
            self.outbox[effect.key] = effect
        for effect_key in change.outbox_removed:
            self.outbox.pop(effect_key, None)

    def adopt(self, entities: Iterable[Entity]) -> None:
        """Take durable entities into memory."""
        for entity in entities:
            kind, key = KIND_OF[type(entity)], key_of(entity)
            before = self._tables[kind].get(key)
            self._tables[kind][key] = entity
            for name, values in INDEXES_OF_KIND[kind]:
                old, new = () if before is None else values(before), values(entity)
                if old != new:  # most changes leave an entity where it is listed
                    self._unlist(name, old, key)
                    for value in new:
                        self._indexes[name].setdefault(value, set()).add(key)

    def forget(self, kind: str, key: EntityKey) -> None:
        """Drop it from memory; unknown is fine."""
        entity = self._tables[kind].pop(key, None)
        if entity is None:
            return
        for name, values in INDEXES_OF_KIND[kind]:
            self._unlist(name, values(entity), key)

    def _unlist(self, name: str, values: tuple[IndexValue, ...], key: EntityKey) -> None:
        for value in values:
            keys = self._indexes[name].get(value)
            if keys is not None:
                keys.discard(key)
                if not keys:
                    del self._indexes[name][value]


def sortable(key: EntityKey) -> tuple[int, str]:
    """Numbers by size, words by their letters."""
    return (key, "") if isinstance(key, int) else (0, key)
