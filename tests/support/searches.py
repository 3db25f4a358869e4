"""A running search without a cluster, which is stored and reloaded before every event, as after a crash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resolute_master.domain.change import KIND_OF
from resolute_master.domain.ids import ExperimentId
from resolute_master.domain.search import Search, SearchTrial
from resolute_master.searcher import method as search_method
from resolute_master.searcher.events import (
    Create,
    ExitReason,
    OperationCompleted,
    ProgressReported,
    SearchAction,
    SearchEvent,
    Shutdown,
    Stop,
    TrialExited,
    ValidationCompleted,
)
from resolute_master.searcher.methods import make
from resolute_master.searcher.records import MemoryRecords
from resolute_master.store.encoding import decode_entity, encode_entity

SPACE: Mapping[str, Any] = {
    "lr": {"type": "log", "minval": -4, "maxval": -1, "base": 10},
    "layers": {"type": "int", "minval": 1, "maxval": 9},
}


class SearchRun:
    """With `reload` false the state stays in memory, which is faster for long searches."""

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        seed: int = 7,
        space: Mapping[str, Any] = SPACE,
        reload: bool = True,
    ) -> None:
        self.method = make(config, space)
        self.records = MemoryRecords(ExperimentId(1))
        self._reload = reload
        self.search, self.actions = search_method.start(self.method, ExperimentId(1), seed, self.records)
        self.created: list[str] = []
        self.points: dict[str, Mapping[str, Any]] = {}
        self.stopped: set[str] = set()
        self.ended: set[str] = set()
        self.shutdown: Shutdown | None = None
        self._note(self.actions)

    def _note(self, actions: tuple[SearchAction, ...]) -> None:
        for action in actions:
            if isinstance(action, Create):
                self.created.append(action.request_id)
                self.points[action.request_id] = action.hparams
            elif isinstance(action, Stop):
                self.stopped.add(action.request_id)
            elif isinstance(action, Shutdown):
                assert self.shutdown is None, "a search ends once"
                self.shutdown = action

    # -- state ---------------------------------------------------------------------------------------------------

    @property
    def open(self) -> list[str]:
        """Trials that have not ended, oldest first."""
        return [each for each in self.created if each not in self.ended]

    def row(self, request_id: str) -> SearchTrial:
        found = self.records.get(request_id)
        assert found is not None
        return found

    def number(self, number: int) -> str:
        return self.created[number]

    @property
    def progress(self) -> float:
        return self.method.progress(self.search, self.records)

    def state(self) -> bytes:
        """Its stored state."""
        rows = (self.records.rows[key] for key in sorted(self.records.rows))
        return b"\n".join([encode_entity(self.search), *map(encode_entity, rows)])

    def _restart(self) -> None:
        """Reloads it like a new process."""
        records = MemoryRecords(self.search.id)
        for row in self.records.rows.values():
            again = decode_entity(KIND_OF[SearchTrial], encode_entity(row))
            assert isinstance(again, SearchTrial)
            records.put(again)
        records.written.clear()
        self.records = records
        search = decode_entity("search", encode_entity(self.search))
        assert isinstance(search, Search)
        self.search = search

    # -- events --------------------------------------------------------------------------------------------------

    def tell(self, event: SearchEvent) -> tuple[SearchAction, ...]:
        if self._reload:
            self._restart()
        self.records.written.clear()
        self.search, self.actions = search_method.tell(self.method, self.search, self.records, event)
        self._note(self.actions)
        return self.actions

    def validate(self, request_id: str, metric: float | None, time: float | None = None) -> tuple[SearchAction, ...]:
        event = ValidationCompleted(request_id=request_id, metric=metric, steps_completed=1, time=time)
        return self.tell(event)

    def complete(self, request_id: str, metric: float) -> tuple[SearchAction, ...]:
        """The trial has trained to its length."""
        length = self.row(request_id).length
        assert length is not None
        return self.tell(OperationCompleted(request_id=request_id, length=length, metric=metric))

    def report(self, request_id: str, progress: float) -> tuple[SearchAction, ...]:
        return self.tell(ProgressReported(request_id=request_id, progress=progress))

    def end(self, request_id: str, reason: ExitReason | None = None) -> tuple[SearchAction, ...]:
        self.ended.add(request_id)
        return self.tell(TrialExited(request_id=request_id, reason=reason))
