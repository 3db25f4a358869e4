"""A checkpoint makes its run cheap to evict: through the engine, written down, and so also after a restart."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from resolute.clock import FixedClock
from resolute.wire.states import ContainerState
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.commands import ReportCheckpoint
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine.engine import Engine
from resolute_master.engine.replay import replay
from resolute_master.store.sql import open_store, sqlite_url
from support.engines import DEFAULT, AgentByHand, a_user, an_engine, an_experiment, running

POOLS = {DEFAULT: PoolPolicy(name=DEFAULT, preemption=True)}


def asked_to_leave(engine: Engine) -> list[int | None]:
    return [allocation.trial_id for allocation in engine.state.all(Allocation) if allocation.preempt is not None]


async def test_work_with_the_newest_checkpoint_is_preempted_first_also_after_a_restart(tmp_path: Path) -> None:
    clock = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
    store = await open_store(sqlite_url(tmp_path / "master.db"))
    try:
        async with running(an_engine(store, clock=clock, pools=POOLS)) as engine:
            agent, owner = AgentByHand(engine), await a_user(engine)
            await agent.register()
            for _ in range(2):
                await an_experiment(engine, owner, priority=50)
                clock.advance(100)
                await agent.report(agent.containers()[-1], ContainerState.RUNNING)
                clock.advance(500)
            older, newer = sorted(engine.state.all(Allocation), key=lambda each: each.requested_at)
            assert older.wasted_since < newer.wasted_since
            await engine.submit(
                ReportCheckpoint(uuid="c1", allocation=older.id, steps_completed=12, resources={}, metadata={})
            )
            kept = engine.state.get(Allocation, older.id)
            assert kept is not None and kept.saved_at == clock.now() and kept.ready_at is not None
            assert (clock.now() - kept.wasted_since).total_seconds() == 100, "what its start took"
        async with running(an_engine(store, clock=clock, pools=POOLS, seed=2)) as engine:
            await agent.returns_to(engine)
            assert engine.state.get(Allocation, older.id) == kept
            await an_experiment(engine, owner, priority=1)
            assert asked_to_leave(engine) == [older.trial_id]
            digest = engine.memory.digest
        for snapshot in await store.snapshots():
            result = await replay(snapshot, store.journal(snapshot.sequence), POOLS)
            assert (result.divergence, result.digest) == (None, digest)
    finally:
        await store.close()
