"""A working copy of the cluster for one cycle: rules read and write it, without side effects.

Reads go through to the committed state; writes stay here until the engine has stored them. Each command is an `attempt`: its
writes are undone when it is refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar, cast

from msgspec import Struct

from resolute.ids import IdSource
from resolute_master.domain.change import KIND_OF, Counter, Decision, Entity, EntityKey, key_of, kind_name
from resolute_master.domain.effects import Effect
from resolute_master.domain.ids import AllocationId, PoolName, TaskId, TrialId
from resolute_master.domain.metrics import LogRecord
from resolute_master.domain.pool import PoolPolicy
from resolute_master.domain.search import ChangedBoards, SearchTrial
from resolute_master.lifecycle.cluster import (
    INDEXES,
    PLACES,
    SEARCH_TRIALS,
    ClusterState,
    IndexValue,
    Place,
    sortable,
)

E = TypeVar("E", bound=Entity)
_GONE = object()


class _Undo(Struct, eq=False):
    """The state before an attempt, and before each of its writes, in the order of the writes."""

    ids: IdSource
    lengths: tuple[int, ...]
    """Lengths of the lists that only grow."""
    written: list[tuple[str, EntityKey, Entity | object | None]] = []
    """None: the key had not been written."""
    effects: list[tuple[str, Effect | object | None]] = []


class Step:
    """The working copy of one cycle. `now` and `ids` are inputs of the cycle; everything else that a rule may read is in the
    state."""

    def __init__(
        self,
        base: ClusterState,
        *,
        now: datetime,
        ids: IdSource,
        sequence: int,
        pools: Mapping[PoolName, PoolPolicy] | None = None,
    ) -> None:
        self._base = base
        self._committed = base.by_kind
        self.pools: Mapping[PoolName, PoolPolicy] = {} if pools is None else pools
        self.now = now
        self.ids = ids
        self.sequence = sequence
        self._written: defaultdict[str, dict[EntityKey, Any]] = defaultdict(dict)
        """Written entities, by kind and key."""
        self._order: tuple[tuple[str, EntityKey], ...] | None = None
        """The keys of `_written` in order, until another one is written."""
        self._listed: dict[Place, set[EntityKey]] = {}
        """Place -> keys that were written to it, so that the cost of a look-up depends on its result only."""
        self.boards = ChangedBoards(base.boards)
        """Results of searches, with what was written."""
        self._effects: dict[str, Effect | None] = {}
        self._undo: _Undo | None = None
        """Undoes the attempt in progress."""
        self.logs: list[LogRecord] = []
        self.decisions: list[Decision] = []
        self.ended_allocations: list[AllocationId] = []
        """Allocations that ended in this step, of which their trials have not been notified yet."""
        self.ended_trials: list[TrialId] = []
        """Trials that ended in this step, of which their experiments have not been notified yet."""
        self._appended: tuple[list[Any], ...] = (self.logs, self.decisions, self.ended_allocations, self.ended_trials)

    # -- reading -----------------------------------------------------------------------------------------------

    def get(self, type_: type[E], key: EntityKey) -> E | None:
        kind = KIND_OF[type_]
        found: E | None = self._written[kind].get(key)
        if found is None:
            found = self._committed[kind].get(key)
        return None if found is _GONE else found

    def need(self, type_: type[E], key: EntityKey) -> E:
        """The entity, which must exist: for references that the rules keep intact."""
        entity = self.get(type_, key)
        assert entity is not None, f"{kind_name(type_)} {key!r} is referred to and missing"
        return entity

    def keys(self, index: str, value: IndexValue) -> frozenset[EntityKey]:
        committed, written = self._base.keys(index, value), self._written[INDEXES[index]]
        if not written:
            return committed
        left, listed = committed.difference(written), self._listed.get((index, value))
        return left.union(listed) if listed else left

    def find(self, type_: type[E], index: str, value: IndexValue) -> tuple[E, ...]:
        """Entities which the index lists under the value, by key."""
        return tuple([self.need(type_, key) for key in sorted(self.keys(index, value), key=sortable)])

    def all(self, type_: type[E]) -> tuple[E, ...]:
        """Every entity of the kind, by key. For rare occasions: it reads the whole table."""
        kind = kind_name(type_)
        keys = {key_of(entity) for entity in self._base.all(type_)}
        keys.update(self._written[kind])
        found = [self.get(type_, key) for key in sorted(keys, key=str)]
        return tuple(entity for entity in found if entity is not None)

    def outstanding(self, effect_key: str) -> bool:
        """Whether the effect is in the outbox."""
        if effect_key in self._effects:
            return self._effects[effect_key] is not None
        return effect_key in self._base.outbox

    # -- writing -----------------------------------------------------------------------------------------------

    def put(self, entity: Entity) -> None:
        self._write(KIND_OF[type(entity)], entity.id, entity)

    def delete(self, entity: Entity) -> None:
        """Delete the entity, also from the store."""
        self._write(KIND_OF[type(entity)], key_of(entity), _GONE)

    def _write(self, kind: str, key: EntityKey, entity: Entity | object) -> None:
        written = self._written[kind]
        before = written.get(key)
        written[key] = entity
        if before is None:
            self._order = None
        if self._undo is not None:
            self._undo.written.append((kind, key, before))
        if kind in PLACES:
            self._list(kind, key, _GONE if before is None else before, entity)
        if kind == SEARCH_TRIALS:
            self._rank(key, before, entity)

    def _list(self, kind: str, key: EntityKey, before: Entity | object, entity: Entity | object) -> None:
        """Updates the indexes for a write."""
        places = PLACES[kind]
        old = () if before is _GONE else places(before)
        new = () if entity is _GONE else places(entity)
        if old != new:  # most changes leave an entity where it is listed
            for place in old:
                self._listed[place].discard(key)
            for place in new:
                self._listed.setdefault(place, set()).add(key)

    def _rank(self, key: EntityKey, before: Entity | object | None, entity: Entity | object | None) -> None:
        """Updates the boards of searches for a write; None stands for the committed row."""
        old, new = (self._committed[SEARCH_TRIALS].get(key) if each is None else each for each in (before, entity))
        self.boards.move(old if isinstance(old, SearchTrial) else None, new if isinstance(new, SearchTrial) else None)

    def emit(self, effects: Iterable[Effect]) -> None:
        """Adds effects to the outbox, to be carried out after the commit."""
        for effect in effects:
            self._affect(effect.key, effect)

    def done(self, effect_key: str) -> None:
        """Removes an effect from the outbox: it was carried out, or is not needed any more."""
        if self.outstanding(effect_key):
            self._affect(effect_key, None)

    def _affect(self, effect_key: str, effect: Effect | None) -> None:
        if self._undo is not None:
            self._undo.effects.append((effect_key, self._effects.get(effect_key, _GONE)))
        self._effects[effect_key] = effect

    def next_number(self, counter: str) -> int:
        current = self.get(Counter, counter)
        number = (current.value if current else 0) + 1
        self.put(Counter(id=counter, value=number))
        return number

    def log(self, task: TaskId, allocation: AllocationId | None, text: str, *, level: str = "INFO") -> None:
        """Writes one line by the master to the task's log."""
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
        """Report the decision and its reason to users."""
        self.decisions.append(Decision(at=self.now, pool=pool, kind=kind, subject=subject, reason=reason))

    # -- attempts ----------------------------------------------------------------------------------------------

    def attempt(self, ids: IdSource) -> Step:
        """`with step.attempt(ids)`: inside the block, `ids` generates the ids. If the block raises, its writes are undone.

        Not by `contextlib`, of which each use costs as much as all that a small command writes.
        """
        assert self._undo is None, "an attempt within an attempt"
        self._undo = _Undo(self.ids, tuple([len(each) for each in self._appended]))
        self.ids = ids
        return self

    def __enter__(self) -> None:
        assert self._undo is not None, "only an attempt is entered"

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        undo, self._undo = self._undo, None
        assert undo is not None
        self.ids = undo.ids
        if kind is not None:
            self._take_back(undo)

    def _take_back(self, undo: _Undo) -> None:
        for kind, key, before in reversed(undo.written):
            written = self._written[kind]
            if kind in PLACES:
                self._list(kind, key, written[key], _GONE if before is None else before)
            if kind == SEARCH_TRIALS:
                self._rank(key, written[key], before)
            if before is None:
                del written[key]
            else:
                written[key] = before
        self._order = None
        for key, effect in reversed(undo.effects):
            if effect is _GONE:
                del self._effects[key]
            else:
                self._effects[key] = cast("Effect | None", effect)
        for each, length in zip(self._appended, undo.lengths, strict=True):
            del each[length:]

    # -- results -----------------------------------------------------------------------------------------------

    def written_keys(self) -> tuple[tuple[str, EntityKey], ...]:
        """(kind, key) of everything written or deleted so far, in order."""
        if self._order is None:
            self._order = tuple([(kind, key) for kind in sorted(self._written) for key in self._keys_of(kind)])
        return self._order

    def written(self) -> tuple[Entity, ...]:
        """Written entities, by kind and key."""
        found = [self._written[kind][key] for kind, key in self.written_keys()]
        return tuple([entity for entity in found if entity is not _GONE])

    def written_of(self, type_: type[E]) -> tuple[E, ...]:
        """Written entities of one kind, by key."""
        written = self._written[KIND_OF[type_]]
        if not written:
            return ()
        found = [written[key] for key in sorted(written, key=str)]
        return tuple([entity for entity in found if entity is not _GONE])

    def _keys_of(self, kind: str) -> list[EntityKey]:
        return sorted(self._written[kind], key=str)

    def upserts(self) -> tuple[Entity, ...]:
        """Written entities, by kind and key, except those that are unchanged."""
        return tuple([each for each in self.written() if self._committed[KIND_OF[type(each)]].get(each.id) != each])

    def deletes(self) -> tuple[tuple[str, EntityKey], ...]:
        return tuple([(kind, key) for kind, key in self.written_keys() if self._written[kind][key] is _GONE])

    def outbox_added(self) -> tuple[Effect, ...]:
        return tuple(effect for _, effect in sorted(self._effects.items()) if effect is not None)

    def outbox_removed(self) -> tuple[str, ...]:
        return tuple(sorted(key for key, effect in self._effects.items() if effect is None))
