"""An experiment that an older release has created keeps all of its checkpoints, until it is given counts."""

from __future__ import annotations

import msgspec
import pytest

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.commands import KeepCheckpoints, ReportCheckpoint, SetCheckpointPolicy
from resolute_master.domain.effects import RemoveCheckpoint, ReviewCheckpoints
from resolute_master.domain.experiment import Experiment
from resolute_master.engine.checkpoint_keeping import CheckpointKeeping
from resolute_master.engine.engine import Engine
from resolute_master.store.memory import MemoryStore, MemoryTables
from support.engines import AgentByHand, a_config, a_user, an_engine, an_experiment, running

COUNTS = {"save_experiment_best": 0, "save_trial_best": 0, "save_trial_latest": 1}


async def saved(engine: Engine, first: int, last: int) -> None:
    (allocation,) = engine.state.all(Allocation)
    for step in range(first, last + 1):
        await engine.submit(
            ReportCheckpoint(
                uuid=f"c{step}", allocation=allocation.id, steps_completed=step, resources={"a": 1}, metadata={}
            )
        )


def as_the_older_release_wrote_it(tables: MemoryTables) -> None:
    rows = tables.entities["experiment"]
    for key, row in rows.items():
        body = msgspec.json.decode(row)
        body.pop("removes_checkpoints", None)
        rows[key] = msgspec.json.encode(body)


def ordered(engine: Engine) -> list[str]:
    return sorted(each.uuid for each in engine.outstanding() if isinstance(each, RemoveCheckpoint))


@pytest.mark.parametrize("older", [True, False])
async def test_only_what_this_release_has_created_is_removed_by_itself(older: bool) -> None:
    store = MemoryStore()
    config = {**a_config(), "checkpoint_storage": {"type": "directory", "container_path": "/c", **COUNTS}}
    async with running(an_engine(store)) as engine:
        agent, owner = AgentByHand(engine), await a_user(engine)
        await agent.register()
        await an_experiment(engine, owner, config)
        await saved(engine, 1, 3)
    if older:
        as_the_older_release_wrote_it(store.tables)
    store = MemoryStore(store.tables)
    async with running(an_engine(store, seed=2)) as engine:
        agent = await agent.returns_to(engine)
        keeping = CheckpointKeeping(engine, store)
        await saved(engine, 4, 4)
        await keeping.review_new()
        assert ordered(engine) == ([] if older else ["c1", "c2"]), "while it runs"
        (experiment,) = engine.state.all(Experiment)
        await agent.run_all()
        end = ReviewCheckpoints(experiment=experiment.id)
        assert (end in engine.outstanding()) != older
        metrics: dict[str, float | None] = dict.fromkeys(["c1", "c2", "c3", "c4"])
        await engine.submit(KeepCheckpoints(experiment=experiment.id, metrics=metrics, order=end.key))
        assert ordered(engine) == ([] if older else ["c1", "c2", "c3"]), "at its end"
        await engine.submit(
            SetCheckpointPolicy(
                experiment=experiment.id, experiment_best=0, trial_best=0, trial_latest=2, metrics=metrics
            )
        )
        assert ordered(engine) == (["c1", "c2"] if older else ["c1", "c2", "c3"])
