"""A working copy of the cluster for one cycle: rules read and write it, nothing else happens.

Reads go through to the committed state; writes stay here until the engine has stored them. A command works on a copy of the
copy (`attempt`), so that a refused command leaves no trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TypeVar, cast

from resolute.ids import IdSource
from resolute_master.domain.change import KIND_OF, Counter, Decision, Entity, EntityKey, key_of, kind_name
from resolute_master.domain.effects import Effect
from resolute_master.domain.ids import AllocationId, PoolName, TaskId, TrialId
from resolute_master.domain.metrics import LogRecord
from resolute_master.domain.pool import PoolPolicy
from resolute_master.lifecycle.cluster import INDEXES, INDEXES_OF_KIND, ClusterState, IndexValue

E = TypeVar("E", bound=Entity)
_GONE = object()


class Step:
    """`now` and `ids` are inputs of the cycle; everything else that a rule may know is in the state."""

    def __init__(
        self,
        base: ClusterState | Step,
        *,
        now: datetime,
        ids: IdSource,
        sequence: int,
        pools: Mapping[PoolName, PoolPolicy] | None = None,
    ) -> None:
        """`pools` None takes those of `base`."""
        self._base = base
        inherited = base.pools if isinstance(base, Step) else {}
        self.pools: Mapping[PoolName, PoolPolicy] = inherited if pools is None else pools
        self.now = now
        self.ids = ids
        self.sequence = sequence
        self._written: dict[tuple[str, EntityKey], Entity | object] = {}
        self._order: tuple[tuple[str, EntityKey], ...] | None = None
        """The keys of `_written` in order, until another one is written."""
        self._listed: dict[str, dict[IndexValue, set[EntityKey]]] = {}
        """Index -> value -> keys that were written with this value here: a look-up costs what it finds."""
        self._effects: dict[str, Effect | None] = {}
        self.logs: list[LogRecord] = list(base.logs) if isinstance(base, Step) else []
        self.decisions: list[Decision] = list(base.decisions) if isinstance(base, Step) else []
        self.ended_allocations: list[AllocationId] = []
        """Ended in this step, and not yet made known to their trials."""
        self.ended_trials: list[TrialId] = []
        """Ended in this step, and not yet made known to their experiments."""

    # -- reading -----------------------------------------------------------------------------------------------

    def get(self, type_: type[E], key: EntityKey) -> E | None:
        written = self._written.get((kind_name(type_), key))
        if written is _GONE:
            return None
        return cast("E | None", written) if written is not None else self._base.get(type_, key)

    def need(self, type_: type[E], key: EntityKey) -> E:
        """For references which the rules keep intact."""
        entity = self.get(type_, key)
        assert entity is not None, f"{kind_name(type_)} {key!r} is referred to and missing"
        return entity

    def keys(self, index: str, value: IndexValue) -> frozenset[EntityKey]:
        kind, _ = INDEXES[index]
        unchanged = {key for key in self._base.keys(index, value) if (kind, key) not in self._written}
        return frozenset(unchanged.union(self._listed.get(index, {}).get(value, ())))

    def find(self, type_: type[E], index: str, value: IndexValue) -> tuple[E, ...]:
        """Entities which the index lists under the value, by key."""
        keys = self.keys(index, value)
        return tuple(
            self.need(type_, key) for key in sorted(keys, key=lambda k: (k, "") if isinstance(k, int) else (0, k))
        )

    def all(self, type_: type[E]) -> tuple[E, ...]:
        """Every entity of the kind, by key. For rare occasions: it reads the whole table."""
        kind = kind_name(type_)
        keys = {key_of(entity) for entity in self._base.all(type_)}
        keys |= {key for (written_kind, key) in self._written if written_kind == kind}
        found = [self.get(type_, key) for key in sorted(keys, key=str)]
        return tuple(entity for entity in found if entity is not None)

    def outstanding(self, effect_key: str) -> bool:
        """Is the effect in the outbox?"""
        if effect_key in self._effects:
            return self._effects[effect_key] is not None
        if isinstance(self._base, Step):
            return self._base.outstanding(effect_key)
        return effect_key in self._base.outbox

    # -- writing -----------------------------------------------------------------------------------------------

    def put(self, entity: Entity) -> None:
        self._write(KIND_OF[type(entity)], key_of(entity), entity)

    def delete(self, entity: Entity) -> None:
        """Forget it for good, also in the store."""
        self._write(KIND_OF[type(entity)], key_of(entity), _GONE)

    def _write(self, kind: str, key: EntityKey, entity: Entity | object) -> None:
        slot = (kind, key)
        before = self._written.get(slot)
        if before is None:
            before, self._order = _GONE, None
        self._written[slot] = entity
        for index, values in INDEXES_OF_KIND[kind]:
            old = () if before is _GONE else values(cast(Entity, before))
            new = () if entity is _GONE else values(cast(Entity, entity))
            if old != new:  # most changes leave an entity where it is listed
                listed = self._listed.setdefault(index, {})
                for value in old:
                    listed[value].discard(key)
                for value in new:
                    listed.setdefault(value, set()).add(key)

    def emit(self, effects: Iterable[Effect]) -> None:
        """To be done in the world after the commit."""
        for effect in effects:
            self._effects[effect.key] = effect

    def done(self, effect_key: str) -> None:
        """The world has obeyed, or there is nothing left to obey."""
        if self.outstanding(effect_key):
            self._effects[effect_key] = None

    def next_number(self, counter: str) -> int:
        current = self.get(Counter, counter)
        number = (current.value if current else 0) + 1
        self.put(Counter(id=counter, value=number))
        return number

    def log(self, task: TaskId, allocation: AllocationId | None, text: str, *, level: str = "INFO") -> None:
        """One line of the master's own in the task's log."""
        self.logs.append(
            LogRecord(
                key=f"master:{self.sequence}:{len(self.logs)}",
                task_id=task,
                allocation_id=allocation,
                agent_id="",
                container_id="",
                rank=None,
                at=self.now,
                level=level,
                stdtype="stdout",
                source="master",
                log=text + "\n",
            )
        )

    def decide(self, kind: str, *, pool: str, subject: str, reason: str) -> None:
        """Say to people what was decided and why."""
        self.decisions.append(Decision(at=self.now, pool=pool, kind=kind, subject=subject, reason=reason))

    # -- copies ------------------------------------------------------------------------------------------------

    def attempt(self, ids: IdSource) -> Step:
        """A copy that may be thrown away; `keep` takes it over."""
        return Step(self, now=self.now, ids=ids, sequence=self.sequence)

    def keep(self, attempt: Step) -> None:
        for (kind, key), entity in attempt._written.items():
            self._write(kind, key, entity)
        self._effects.update(attempt._effects)
        self.logs = attempt.logs
        self.decisions = attempt.decisions

    # -- results -----------------------------------------------------------------------------------------------

    def written_keys(self) -> tuple[tuple[str, EntityKey], ...]:
        """(kind, key) of everything written or deleted so far, in order."""
        if self._order is None:
            self._order = tuple(sorted(self._written, key=lambda slot: (slot[0], str(slot[1]))))
        return self._order

    def written(self) -> tuple[Entity, ...]:
        """What was written so far, by kind and key."""
        found = (self._written[slot] for slot in self.written_keys())
        return tuple(cast(Entity, entity) for entity in found if entity is not _GONE)

    def upserts(self) -> tuple[Entity, ...]:
        """What was written, by kind and key, without what is as it was."""
        return tuple(each for each in self.written() if self._base.get(type(each), key_of(each)) != each)

    def deletes(self) -> tuple[tuple[str, EntityKey], ...]:
        return tuple(slot for slot in self.written_keys() if self._written[slot] is _GONE)

    def outbox_added(self) -> tuple[Effect, ...]:
        return tuple(effect for _, effect in sorted(self._effects.items()) if effect is not None)

    def outbox_removed(self) -> tuple[str, ...]:
        return tuple(sorted(key for key, effect in self._effects.items() if effect is None))
