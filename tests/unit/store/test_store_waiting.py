"""The master's own reads wait for a store that is away, and for nothing else: its engine goes on afterwards."""

from __future__ import annotations

import pytest

from resolute.errors import NotFound, Unavailable
from resolute_master.domain.change import Entity, Stored
from resolute_master.domain.commands import ActivateExperiment
from resolute_master.domain.ids import ExperimentId
from resolute_master.store.memory import MemoryStore
from resolute_master.store.waiting import waited_for
from support.agent_virtual import run_virtually
from support.engines import a_user, an_engine, running


class StoreAway(MemoryStore):
    """Refuses the next `refusals` reads of the engine."""

    refusals = 0

    def _refuse(self) -> None:
        if self.refusals:
            self.refusals -= 1
            raise Unavailable("the database does not answer")

    async def load(self) -> Stored:
        self._refuse()
        return await super().load()

    async def experiment_entities(self, id_: ExperimentId) -> tuple[Entity, ...]:
        self._refuse()
        return await super().experiment_entities(id_)


def test_an_engine_waits_for_its_store_at_the_start_and_for_what_has_ended() -> None:
    async def scenario() -> None:
        store = StoreAway()
        store.refusals = 3
        async with running(an_engine(store)) as engine:
            assert store.refusals == 0
            store.refusals = 2
            with pytest.raises(NotFound):
                await engine.submit(ActivateExperiment(experiment=ExperimentId(7)))
            assert store.refusals == 0
            await a_user(engine)

    run_virtually(scenario())


def test_other_errors_are_told_at_once() -> None:
    async def read() -> None:
        raise NotFound("experiment", 7)

    with pytest.raises(NotFound):
        run_virtually(waited_for(read))
