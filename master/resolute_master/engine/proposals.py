"""Queries a sampler for the points that searches wait for, and submits them to the engine. The rules never wait for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from resolute.errors import ResoluteError
from resolute_master.domain.change import Change
from resolute_master.domain.commands import ProposePoints
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import ExperimentId
from resolute_master.domain.search import Search, SearchTrial
from resolute_master.engine.engine import Engine
from resolute_master.lifecycle.searching import method_of
from resolute_master.searcher.method import PointRequest

log = logging.getLogger(__name__)

RETRY_S = 15.0
"""Time until the next attempt after a failure of the sampler, or while the engine cannot store."""


class EvaluatedPoint(Struct, frozen=True, kw_only=True):
    """A point in use. `metric` None: it has no result yet, or has failed."""

    request_id: str
    point: Mapping[str, Any]
    metric: float | None
    open: bool


class Sampler(Protocol):
    """Called in a thread, for one search at a time."""

    def propose(
        self, search: ExperimentId, seed: int, point_request: PointRequest, evaluated: Sequence[EvaluatedPoint]
    ) -> list[Mapping[str, Any]]:
        """The requested number of points. `evaluated` are all results so far, by number."""
        ...

    def forget(self, search: ExperimentId) -> None:
        """Drops the search, which has ended."""
        ...


class Proposals:
    """Queries samplers for all searches of a master."""

    def __init__(self, engine: Engine, sampler: Sampler) -> None:
        self._engine = engine
        self._sampler = sampler
        self._due: set[ExperimentId] = set()
        self._woken = asyncio.Event()
        engine.on_commit(self._look)

    def _look(self, change: Change) -> None:
        found = {entity.id for entity in change.upserts if isinstance(entity, Search)}
        if found:
            self._due |= found
            self._woken.set()

    async def run(self) -> None:
        self._due |= {search.id for search in self._engine.state.all(Search)}
        self._woken.set()
        while True:
            await self._woken.wait()
            self._woken.clear()
            for id_ in sorted(self._due):
                self._due.discard(id_)
                await self._serve(id_)

    async def _serve(self, id_: ExperimentId) -> None:
        try:
            await self.propose(id_)
        except ResoluteError as error:
            log.warning("points of search %d: %s", id_, error)
            self._again(id_)
        except Exception:  # a library's own: the search waits, and the master continues
            log.exception("points of search %d cannot be proposed", id_)
            self._again(id_)

    def _again(self, id_: ExperimentId) -> None:
        def wake() -> None:
            self._due.add(id_)
            self._woken.set()

        asyncio.get_running_loop().call_later(RETRY_S, wake)

    async def propose(self, id_: ExperimentId) -> None:
        """Proposes points once, if the search waits for them."""
        state = self._engine.state
        search, experiment = state.get(Search, id_), state.get(Experiment, id_)
        if search is None or experiment is None or search.over or experiment.state.stopping:
            self._sampler.forget(id_)
            return
        point_request = method_of(experiment).point_request(search)
        if point_request is None:
            return
        rows = sorted(state.find(SearchTrial, "trials_of_search", id_), key=lambda row: row.number)
        evaluated = [_evaluated(row) for row in rows]
        points = await asyncio.to_thread(self._sampler.propose, id_, search.generator[0], point_request, evaluated)
        await self._engine.submit(ProposePoints(experiment=id_, known=search.requested, points=tuple(points)))


def _evaluated(row: SearchTrial) -> EvaluatedPoint:
    metric = row.own["metric"]
    return EvaluatedPoint(
        request_id=row.request_id,
        point=row.own["point"],
        metric=None if metric is None else float(metric),
        open=row.open,
    )
