"""A trial that its search promotes between the end of its operations and the end of its task trains on in its next run."""

from __future__ import annotations

from resolute.wire.states import ContainerState
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.commands import AcknowledgePreemption, CompleteOperation
from resolute_master.domain.search import SearchTrial
from resolute_master.domain.trial import Trial
from resolute_master.store.memory import MemoryStore
from support.engines import AgentByHand, a_config, a_user, an_engine, an_experiment, running

SEARCHER = {
    "name": "async_halving",
    "metric": "loss",
    "num_rungs": 2,
    "divisor": 3,
    "max_trials": 3,
    "max_concurrent_trials": 3,
    "max_length": 9,
}


async def test_a_trial_that_is_promoted_while_its_task_ends_trains_on() -> None:
    async with running(an_engine(MemoryStore())) as engine:
        agent, owner = AgentByHand(engine, slots=3), await a_user(engine)
        await agent.register()
        await an_experiment(engine, owner, {**a_config(), "searcher": SEARCHER})
        for container in agent.containers():
            await agent.report(container, ContainerState.RUNNING)
        best, *others = engine.state.all(Trial)

        def row() -> SearchTrial:
            found = engine.state.get(SearchTrial, best.task_id)
            assert found is not None
            return found

        await engine.submit(CompleteOperation(trial=best.id, length=3, metric=0.1))
        assert row().idle, "its task asks for an operation now, and there is none"
        for number, trial in enumerate(others):
            await engine.submit(CompleteOperation(trial=trial.id, length=3, metric=0.5 + number))
        promoted = row()
        assert (promoted.idle, promoted.length) == (False, 9)

        (first,) = (each for each in engine.state.all(Allocation) if each.trial_id == best.id)
        await engine.submit(AcknowledgePreemption(allocation=first.id))
        await agent.end(next(each for each in agent.containers() if each.id == first.containers[0].id))
        assert row().open, "it has not ended"
        again = engine.state.get(Trial, best.id)
        assert again is not None and again.run_id == 2
