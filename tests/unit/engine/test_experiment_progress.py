"""The progress that is shown of an experiment: what was done, however it ended."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from resolute.wire.states import ExperimentState
from resolute_master.domain.commands import CancelExperiment, Command, KillExperiment, ReportProgress
from resolute_master.domain.ids import ExperimentId
from resolute_master.domain.trial import Trial
from resolute_master.store.memory import MemoryStore
from support.engines import AgentByHand, a_config, a_user, an_engine, an_experiment, running

ENDS: dict[str, tuple[int, Callable[[ExperimentId], Command] | None, ExperimentState]] = {
    "completed": (0, None, ExperimentState.COMPLETED),
    "failed": (1, None, ExperimentState.ERROR),
    "canceled": (0, lambda id_: CancelExperiment(experiment=id_), ExperimentState.CANCELED),
    "killed": (137, lambda id_: KillExperiment(experiment=id_), ExperimentState.CANCELED),
}


@pytest.mark.parametrize(
    ("end", "trials", "progress"),
    [
        ("completed", 1, 1.0),
        ("completed", 2, 1.0),
        ("failed", 1, 0.5),
        ("failed", 2, 0.75),  # the search went on after the first, which is over
        ("canceled", 1, 0.5),
        ("canceled", 2, 0.5),
        ("killed", 2, 0.5),
    ],
)
async def test_only_what_completed_is_shown_as_whole(end: str, trials: int, progress: float) -> None:
    code, stop, state = ENDS[end]
    store = MemoryStore()
    async with running(an_engine(store)) as engine:
        agent = AgentByHand(engine)
        await agent.register()
        id_ = await an_experiment(engine, await a_user(engine), a_config(trials=trials))
        for trial in engine.state.find(Trial, "trials_of_experiment", id_):
            await engine.submit(ReportProgress(trial=trial.id, progress=0.5))
        if stop is not None:
            await engine.submit(stop(id_))
        assert await agent.run_all(code) == trials
        found = await store.experiment(id_)
        assert found is not None and (found.state, found.progress) == (state, progress)
