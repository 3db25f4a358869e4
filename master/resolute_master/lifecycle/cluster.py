"""The state of the cluster: one table per noun, and indexes for the rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import KIND_OF, KINDS, Change, Entity, EntityKey, kind_name
from resolute_master.domain.effects import Effect
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job
from resolute_master.domain.search import Boards, SearchTrial

E = TypeVar("E", bound=Entity)

IndexValue = int | str | None

Place = tuple[str, IndexValue]
"""An index, and a value under which it lists entities."""

INDEXES: Mapping[str, str] = {
    "trials_of_experiment": "trial",
    "trial_of_request": "trial",
    "checkpoints_of_experiment": "checkpoint",
    "experiment_of_job": "experiment",
    "allocations_of_task": "allocation",
    "allocations_of_job": "allocation",
    "allocations_on_agent": "allocation",
    "allocation_of_container": "allocation",
    "deadlines_of_pool": "allocation",
    "jobs_of_line": "job",
    "agent_of_instance": "agent",
    "agents_of_pool": "agent",
    "instances_of_pool": "instance",
    "machine_of_agent": "instance",
    "machines_for_gang": "instance",
    "user_by_name": "user",
    "sessions_of_user": "session",
    "usage_of_pool": "usage",
    "beliefs_of_pool": "belief",
    "trials_of_search": "search_trial",
}
"""Name of an index -> kind of entities in it."""


def _places_of_allocation(allocation: Allocation) -> tuple[Place, ...]:
    places = [("allocations_of_task", allocation.task_id), ("allocations_of_job", allocation.job_id)]
    for container in allocation.containers:
        places += ("allocations_on_agent", container.agent), ("allocation_of_container", container.id)
    if allocation.deadline is not None and not allocation.ended:
        places.append(("deadlines_of_pool", allocation.pool))
    return tuple(places)


def _places_of_instance(instance: Instance) -> tuple[Place, ...]:
    return (
        ("instances_of_pool", instance.pool),
        ("machine_of_agent", instance.agent_id),
        *[("machines_for_gang", gang) for gang in instance.gangs if not instance.over],
    )


def line_of(job: Job) -> IndexValue:
    """The queue in which a job has its place: the jobs of its pool and priority that have not ended."""
    return None if job.ended else f"{job.priority} {job.pool}"


PLACES: Mapping[str, Callable[[Any], tuple[Place, ...]]] = {
    "experiment": lambda e: (("experiment_of_job", e.job_id),),
    "trial": lambda e: (("trials_of_experiment", e.experiment_id), ("trial_of_request", e.request_id)),
    "checkpoint": lambda e: (("checkpoints_of_experiment", e.experiment_id),),
    "allocation": _places_of_allocation,
    "job": lambda e: (("jobs_of_line", line_of(e)),),
    "agent": lambda e: (("agent_of_instance", e.instance_id), ("agents_of_pool", e.pool)),
    "instance": _places_of_instance,
    "user": lambda e: (("user_by_name", e.username),),
    "session": lambda e: (("sessions_of_user", e.user_id),),
    "usage": lambda e: (("usage_of_pool", e.pool),),
    "belief": lambda e: (("beliefs_of_pool", e.pool),),
    "search_trial": lambda e: (("trials_of_search", e.search),),
}
"""Kind -> the places of an entity in indexes. Kinds without an entry are in no index."""


SEARCH_TRIALS = kind_name(SearchTrial)


class ClusterState:
    """The durable state, in memory. Only `absorb`, `adopt` and `forget` change it, and only the engine calls them."""

    def __init__(self, entities: Iterable[Entity] = (), outbox: Iterable[Effect] = ()) -> None:
        self._tables: dict[str, dict[EntityKey, Any]] = {kind: {} for kind in KINDS}
        self.by_kind: Mapping[str, Mapping[EntityKey, Any]] = self._tables
        """Kind -> key -> entity, live: for working copies, which read a hundred times for each write of a command."""
        self._listed: dict[Place, set[EntityKey]] = {}
        self.boards = Boards()
        """Results of searches, in order."""
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

    def by_key(self, type_: type[E]) -> dict[Any, E]:
        """A copy of the table of the kind, for readers in another thread."""
        return dict(self._tables[kind_name(type_)])

    def listed(self, type_: type[E]) -> list[E]:
        """A copy of the entities of the kind, in no order, for readers in another thread."""
        return list(self._tables[kind_name(type_)].values())

    def keys(self, index: str, value: IndexValue) -> frozenset[EntityKey]:
        """Keys which the index lists under the value. Raises `KeyError` when there is no such index."""
        if index not in INDEXES:
            raise KeyError(index)  # for nothing is ever listed in one
        return frozenset(self._listed.get((index, value), ()))

    def find(self, type_: type[E], index: str, value: IndexValue) -> tuple[E, ...]:
        """Entities which the index lists under the value, by key."""
        table = self._tables[kind_name(type_)]
        return tuple(table[key] for key in sorted(self.keys(index, value), key=sortable))

    def entities(self) -> tuple[Entity, ...]:
        """All entities, by kind and key."""
        return tuple(self._tables[kind][key] for kind in KINDS for key in sorted(self._tables[kind], key=sortable))

    def tables(self) -> tuple[tuple[str, list[Entity]], ...]:
        """A copy of all entities by kind, in no order; later changes do not affect it."""
        return tuple((kind, list(self._tables[kind].values())) for kind in KINDS)

    def absorb(self, change: Change) -> None:
        """Apply a committed change."""
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
            kind, key = KIND_OF[type(entity)], entity.id
            table = self._tables[kind]
            before = table.get(key)
            table[key] = entity
            if kind == SEARCH_TRIALS:
                self.boards.move(before, entity if isinstance(entity, SearchTrial) else None)
            if (places := PLACES.get(kind)) is not None:
                self._list(key, () if before is None else places(before), places(entity))

    def forget(self, kind: str, key: EntityKey) -> None:
        """Drop an entity from memory; an unknown one is no error."""
        entity = self._tables[kind].pop(key, None)
        if kind == SEARCH_TRIALS:
            self.boards.move(entity, None)
        if entity is not None and (places := PLACES.get(kind)) is not None:
            self._list(key, places(entity), ())

    def _list(self, key: EntityKey, old: tuple[Place, ...], new: tuple[Place, ...]) -> None:
        if old == new:  # most changes leave an entity where it is listed
            return
        for place in old:
            keys = self._listed.get(place)
            if keys is not None and place not in new:
                keys.discard(key)
                if not keys:
                    del self._listed[place]
        for place in new:
            self._listed.setdefault(place, set()).add(key)


def sortable(key: EntityKey) -> tuple[int, str]:
    """Sort key: numbers by size, texts by their characters."""
    return (key, "") if isinstance(key, int) else (0, key)
