"""The engine's incremental pool snapshot equals one built anew after every commit, at a cost that hardly grows with the pool."""

from __future__ import annotations

import pytest

from resolute.clock import FixedClock
from resolute.wire.agent_link import Exit
from resolute.wire.states import ContainerState
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import PoolName
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine.cycle import Cycle
from resolute_master.engine.engine import Engine
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_master.scheduler.sorted_map import Meter
from resolute_master.store.memory import MemoryStore
from resolute_sim.simulation import simulate
from support.cluster import at
from support.effort import repeated
from support.engines import DEFAULT, AgentByHand, a_config, a_user, an_engine, an_experiment, running


@pytest.mark.parametrize("seed", range(500, 500 + repeated(push=4, night=12)))
def test_it_equals_one_built_anew_after_every_commit(seed: int) -> None:
    """Over whole worlds: placements, preemptions, losses, restarts, closed slots, moves between pools."""
    outcome = simulate(seed, snapshot_every=1)
    assert not outcome.violations, outcome.violations[0]
    assert outcome.commits > 20


def test_an_entity_that_is_not_carried_over_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    move = Cycle._move

    def forgetful(self: Cycle, before: object, after: object) -> None:
        if not (isinstance(after, Allocation) and after.state == "RUNNING"):
            move(self, before, after)  # type: ignore[arg-type]

    monkeypatch.setattr(Cycle, "_move", forgetful)
    outcomes = (simulate(seed, snapshot_every=1) for seed in range(5))
    assert any(v.rule == "reference: the snapshot equals its source" for o in outcomes for v in o.violations)


def metered(engine: Engine, meter: Meter, pool: PoolName = DEFAULT) -> None:
    """Count what the engine touches of its snapshot of the pool from now on."""
    state = engine.state
    engine.memory.snapshots[pool] = PoolSnapshot.build(
        engine.memory.pools[pool],
        state.all(Agent),
        state.all(Job),
        state.all(Allocation),
        now=at(0),
        meter=meter,
    )
    meter.touched = 0


async def touched(agents: int) -> dict[str, int]:
    """Entries touched by one event of each kind, in a pool of so many busy agents."""
    meter, found = Meter(), dict[str, int]()
    async with running(an_engine(MemoryStore(), clock=FixedClock(at(0)))) as engine:
        owner = await a_user(engine)
        machines = [AgentByHand(engine, f"agent-{number:04d}", slots=2) for number in range(agents)]
        for machine in machines:
            await machine.register()
            await an_experiment(engine, owner, a_config(slots=2))
        first = machines[0]
        (container,) = first.containers()
        metered(engine, meter)
        for name, state, end in (
            ("runs", ContainerState.RUNNING, None),
            ("ends", ContainerState.TERMINATED, Exit(code=0)),
        ):
            await first.report(container, state, end)
            found[name], meter.touched = meter.touched, 0
        await an_experiment(engine, owner, a_config(slots=2))
        found["is submitted and placed"] = meter.touched
    return found


async def test_the_work_of_an_event_hardly_grows_with_the_pool() -> None:
    small, large = await touched(10), await touched(160)
    assert all(count > 0 for count in small.values())
    for event, count in large.items():
        # Sixteen times the agents: four more levels of a balanced tree, not sixteen times the entries.
        assert count <= 2.5 * small[event] + 40, f"a task that {event}: {small[event]} entries, then {count}"


async def test_the_work_of_an_event_touches_nothing_of_another_pool() -> None:
    """Also where work waits in both, so that a pass over the other one would read it."""
    other = PoolName("other")
    pools = {name: PoolPolicy(name=name) for name in (DEFAULT, other)}
    meters = {name: Meter() for name in pools}

    def counted() -> tuple[int, int]:
        counts = (meters[DEFAULT].touched, meters[other].touched)
        for meter in meters.values():
            meter.touched = 0
        return counts

    async with running(an_engine(MemoryStore(), clock=FixedClock(at(0)), pools=pools)) as engine:
        owner = await a_user(engine)
        machines = {name: AgentByHand(engine, f"agent-{name}", slots=2, pool=name) for name in pools}
        for name, machine in machines.items():
            await machine.register()
            for _ in range(2):
                await an_experiment(engine, owner, a_config(slots=2), pool=name)
        for name, meter in meters.items():
            metered(engine, meter, name)
        machine = machines[DEFAULT]
        (container,) = machine.containers()
        for state, end in ((ContainerState.RUNNING, None), (ContainerState.TERMINATED, Exit(code=0))):
            await machine.report(container, state, end)
            touched_here, touched_there = counted()
            assert touched_here > 0 == touched_there, state
        await an_experiment(engine, owner, a_config(slots=2))
        touched_here, touched_there = counted()
        assert touched_here > 0 == touched_there
        await an_experiment(engine, owner, a_config(slots=2), pool=other)
        assert counted()[1] > 0, "what happens there is counted there"
