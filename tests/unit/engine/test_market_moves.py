"""The engine gives work with a deadline its markets, moves what runs on the wrong one, and all of it replays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from resolute.clock import FixedClock
from resolute.wire.agent_link import Exit
from resolute.wire.states import ContainerState, NoticeKind
from resolute_master.decision.markets import sentences
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.commands import (
    AcknowledgePreemption,
    Reconsider,
    RecordObservation,
    RecordRefusal,
    RecordReports,
    ReportCheckpoint,
    ReportNotice,
    StoredReport,
)
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy
from resolute_master.domain.trial import Trial
from resolute_master.engine.engine import Engine
from resolute_master.engine.replay import replay
from resolute_master.store.memory import MemoryStore
from resolute_provisioner.model import Market, Observed, Offer, PoolScaling, RefusalKind
from resolute_provisioner.planning.markets import MOVE_PREFIX, SETTLE_S
from support.cluster import T0
from support.engines import DEFAULT, AgentByHand, a_config, a_user, an_engine, an_experiment, joined, launched, running

HOUR = 3600.0
SPOT = Offer(offer_id="spot", instance_type="t", zone="z", market=Market.SPOT, slots=1, price_per_hour=0.3)
FIRM = replace(SPOT, offer_id="firm", market=Market.ON_DEMAND, price_per_hour=1.0)
POOLS = {DEFAULT: PoolPolicy(name=DEFAULT, scaling=PoolScaling(pool="default", offers=(SPOT, FIRM), max_instances=3))}
BATCHES = 1000


def a_deadline(hours: float, *, estimate: str | None = "1h") -> dict[str, Any]:
    """An experiment of a thousand batches that is to be done so many hours after the beginning."""
    resources = {"deadline": (T0 + timedelta(hours=hours)).isoformat()}
    config = a_config(**resources, **({"estimated_duration": estimate} if estimate else {}))
    return config | {"searcher": {**config["searcher"], "max_length": {"batches": BATCHES}}}


class Cloud:
    """Grants, refuses and boots by hand."""

    def __init__(self, engine: Engine, clock: FixedClock) -> None:
        self.engine = engine
        self.clock = clock

    def asked(self) -> dict[str, Instance]:
        """Machines that are wanted, by their offer."""
        wanted = [i for i in self.engine.state.all(Instance) if not i.over and not i.stop_reason]
        return {instance.offer_id: instance for instance in wanted}

    async def later(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.engine.submit(Reconsider())

    async def refuse(self, offer: str) -> None:
        instance = self.asked()[offer]
        await self.engine.submit(
            RecordRefusal(instance=instance.id, kind=RefusalKind.NO_CAPACITY, message="none of these")
        )

    async def boot(self, offer: str) -> AgentByHand:
        instance = self.asked()[offer]
        await launched(self.engine, instance, self.clock.now())
        return await joined(self.engine, instance)

    async def trains(self, steps: int) -> None:
        (trial,) = self.engine.state.all(Trial)
        report = StoredReport(
            trial=trial.id,
            run_id=trial.run_id,
            steps_completed=steps,
            validation=None,
            reported_at=self.clock.now(),
        )
        await self.engine.submit(RecordReports(reports=(report,)))

    def why(self) -> str:
        (job,) = self.engine.state.all(Job)
        return " ".join(sentences(self.engine.view(job.pool, self.clock.now()), job.id))


@pytest.fixture
async def cloud() -> AsyncIterator[Cloud]:
    """What was decided is decided again by a replay of the journal."""
    store, clock = MemoryStore(), FixedClock(T0)
    async with running(an_engine(store, pools=POOLS, clock=clock)) as engine:
        yield Cloud(engine, clock)
        digest = engine.memory.digest
    snapshot = (await store.snapshots())[0]
    result = await replay(snapshot, store.journal(snapshot.sequence), POOLS)
    assert (result.divergence, result.digest) == (None, digest)


async def submit(cloud: Cloud, config: dict[str, Any]) -> None:
    await an_experiment(cloud.engine, await a_user(cloud.engine), config)


async def test_ahead_of_its_line_it_waits_for_spot_and_behind_it_buys_on_demand(cloud: Cloud) -> None:
    await submit(cloud, a_deadline(3))
    while cloud.clock.now() < T0 + timedelta(minutes=60):
        assert set(cloud.asked()) <= {"spot"}, "nothing is bought on demand while there is time"
        if cloud.asked():
            await cloud.refuse("spot")
        await cloud.later(60)
    assert "ahead of its line" in cloud.why()
    await cloud.later(HOUR)  # an hour of work, and less than an hour is left
    assert set(cloud.asked()) == {"firm"}
    assert "behind its line" in cloud.why()


async def test_what_nobody_knows_the_length_of_is_started_on_demand(cloud: Cloud) -> None:
    await submit(cloud, a_deadline(100, estimate=None))
    assert set(cloud.asked()) == {"firm"}
    assert "is not known yet: on demand" in cloud.why()


async def test_work_on_demand_returns_to_spot_when_a_machine_of_it_is_there(cloud: Cloud) -> None:
    await submit(cloud, a_deadline(100, estimate=None))
    firm = await cloud.boot("firm")
    (container,) = firm.containers()
    await firm.report(container, ContainerState.RUNNING)
    await cloud.trains(1)
    await cloud.later(100)
    await cloud.trains(11)  # 10 s a step: 9,890 s are left, and 100 hours
    await cloud.later(SETTLE_S)
    assert set(cloud.asked()) == {"firm"}, "what has saved nothing in this run is not moved to save money"
    assert "until it has committed a checkpoint" in cloud.why()
    await saved(cloud, 11)
    assert cloud.asked()["spot"].gangs == (f"{MOVE_PREFIX}{allocation(cloud).id}",)
    assert allocation(cloud).preempt is None, "it goes on until the new machine is there"

    spot = await cloud.boot("spot")
    assert allocation(cloud).preempt is not None
    assert "back to spot" in (allocation(cloud).preempt or pytest.fail()).reason
    await cloud.later(5)
    assert set(cloud.asked()) == {"firm", "spot"}, "the new machine is kept while the work saves"
    await cloud.engine.submit(AcknowledgePreemption(allocation=allocation(cloud).id))
    await saved(cloud, 71)
    await firm.report(container, ContainerState.TERMINATED, Exit(code=0))

    (moved,) = spot.containers()
    await spot.report(moved, ContainerState.RUNNING)
    assert allocation(cloud).resumed_steps == 71
    await cloud.later(1)
    assert set(cloud.asked()) == {"spot"}, "the machine on demand is given back"
    assert "is for spot" in cloud.why()


async def test_a_refused_return_costs_nothing(cloud: Cloud) -> None:
    await submit(cloud, a_deadline(100, estimate=None))
    firm = await cloud.boot("firm")
    (container,) = firm.containers()
    await firm.report(container, ContainerState.RUNNING)
    await cloud.trains(1)
    await saved(cloud, 1)
    await cloud.later(SETTLE_S)
    await cloud.trains(61)
    await cloud.later(1)
    await cloud.refuse("spot")
    await cloud.later(1)
    assert (set(cloud.asked()), allocation(cloud).preempt) == ({"firm"}, None)


async def test_work_on_spot_that_can_pay_for_no_interruption_moves_to_a_machine_on_demand(cloud: Cloud) -> None:
    await submit(cloud, a_deadline(3))
    spot = await cloud.boot("spot")
    (container,) = spot.containers()
    await spot.report(container, ContainerState.RUNNING)
    await cloud.trains(1)
    await cloud.later(100)
    await cloud.trains(11)
    await cloud.later(1)
    # At 10 s a step it takes 2.75 hours more, and 2.97 are left: enough for a restart, until it turns out to be slower.
    assert set(cloud.asked()) == {"spot"}
    await cloud.later(1000)
    await cloud.trains(60)
    await cloud.later(1)
    assert set(cloud.asked()) == {"spot", "firm"}
    await cloud.boot("firm")
    assert "would cost the deadline" in (allocation(cloud).preempt or pytest.fail()).reason


async def test_a_machine_that_is_taken_away_on_the_way_to_spot_changes_nothing_for_the_work(cloud: Cloud) -> None:
    await submit(cloud, a_deadline(100, estimate=None))
    firm = await cloud.boot("firm")
    (container,) = firm.containers()
    await firm.report(container, ContainerState.RUNNING)
    await cloud.trains(1)
    await saved(cloud, 1)
    await cloud.later(SETTLE_S)
    await cloud.trains(61)
    await cloud.later(1)
    coming = cloud.asked()["spot"]
    gone = RecordObservation(
        instance=coming.id, provider_id=coming.id, observed=Observed.GONE, paid_from=None, paid_until=None
    )
    await cloud.engine.submit(gone)
    await cloud.later(1)
    assert allocation(cloud).preempt is None


async def test_a_machine_at_risk_is_left_when_its_replacement_has_joined(cloud: Cloud) -> None:
    await submit(cloud, a_deadline(100))
    risky = await cloud.boot("spot")
    (container,) = risky.containers()
    await risky.report(container, ContainerState.RUNNING)
    await cloud.engine.submit(
        ReportNotice(
            agent=risky.id, incarnation="first", kind=NoticeKind.REBALANCE, deadline=None, reason="elevated risk"
        )
    )
    assert allocation(cloud).preempt is None, "nothing is certain"
    fresh = await cloud.boot("spot")  # the newest that was asked for
    assert fresh.id != risky.id
    assert "replaces it" in (allocation(cloud).preempt or pytest.fail()).reason
    await cloud.engine.submit(AcknowledgePreemption(allocation=allocation(cloud).id))
    await risky.report(container, ContainerState.TERMINATED, Exit(code=0))
    assert len(fresh.containers()) == 1
    await cloud.later(1)
    assert [instance.id for instance in cloud.asked().values()] == [fresh.id]


async def test_a_sure_end_asks_for_a_save_with_its_deadline_and_for_a_replacement_in_the_same_commit(
    cloud: Cloud,
) -> None:
    await submit(cloud, a_deadline(100))
    ending = await cloud.boot("spot")
    (container,) = ending.containers()
    await ending.report(container, ContainerState.RUNNING)
    deadline, before = cloud.clock.now() + timedelta(minutes=2), cloud.engine.cycles
    await cloud.engine.submit(
        ReportNotice(
            agent=ending.id, incarnation="first", kind=NoticeKind.INTERRUPTION, deadline=deadline, reason="reclaimed"
        )
    )
    assert cloud.engine.cycles == before + 1
    asked = allocation(cloud).preempt or pytest.fail()
    assert (asked.deadline, asked.notice) == (deadline, NoticeKind.INTERRUPTION)
    replacements = [i for i in cloud.engine.state.all(Instance) if i.id != ending.id]
    assert [(i.offer_id, i.requested_at) for i in replacements] == [("spot", cloud.clock.now())]


@pytest.mark.parametrize("machine_dies", [False, True])
async def test_work_that_restarts_while_its_replacement_boots_waits_for_that_and_buys_no_second_machine(
    cloud: Cloud, machine_dies: bool
) -> None:
    """Spot was taken both times because nothing on demand could be asked for; when the work waits again, it could."""
    await submit(cloud, a_deadline(100, estimate=None))
    await cloud.refuse("firm")
    ending = await cloud.boot("spot")
    (container,), first = ending.containers(), cloud.asked()["spot"]
    await ending.report(container, ContainerState.RUNNING)
    deadline = cloud.clock.now() + timedelta(minutes=2)
    await cloud.engine.submit(
        ReportNotice(
            agent=ending.id, incarnation="first", kind=NoticeKind.INTERRUPTION, deadline=deadline, reason="reclaimed"
        )
    )
    replacement = cloud.asked()["spot"]  # the newest that was asked for
    assert replacement.id != first.id
    await cloud.later(60)
    before = allocation(cloud).id
    if machine_dies:
        await cloud.engine.submit(
            RecordObservation(
                instance=first.id,
                provider_id=first.provider_id,
                observed=Observed.GONE,
                paid_from=first.paid_from,
                paid_until=cloud.clock.now(),
            )
        )
    else:
        await cloud.engine.submit(AcknowledgePreemption(allocation=before))
        await ending.report(container, ContainerState.TERMINATED, Exit(code=0))
    await cloud.later(1)
    assert allocation(cloud).id != before and allocation(cloud).assigned_at is None
    assert cloud.asked() == {"spot": replace(replacement, gangs=(*replacement.gangs, allocation(cloud).id))}
    assert "a machine on spot is on its way for it" in cloud.why()


async def test_work_that_fails_while_its_way_to_another_market_boots_keeps_to_it(cloud: Cloud) -> None:
    await submit(cloud, a_deadline(3) | {"max_restarts": 1})
    spot = await cloud.boot("spot")
    (container,) = spot.containers()
    await spot.report(container, ContainerState.RUNNING)
    await cloud.trains(1)
    await cloud.later(1100)
    await cloud.trains(60)
    await cloud.later(1)
    coming, before = cloud.asked()["firm"], allocation(cloud).id
    assert coming.gangs == (MOVE_PREFIX + before,)
    await spot.report(container, ContainerState.TERMINATED, Exit(code=1))
    assert cloud.asked()["firm"].gangs == (MOVE_PREFIX + before, allocation(cloud).id)


def allocation(cloud: Cloud) -> Allocation:
    (found,) = cloud.engine.state.all(Allocation)
    return found


async def saved(cloud: Cloud, steps: int) -> None:
    await cloud.engine.submit(
        ReportCheckpoint(
            uuid=f"00000000-0000-4000-8000-{steps:012d}",
            allocation=allocation(cloud).id,
            steps_completed=steps,
            resources={},
            metadata={},
            storage_id=None,
        )
    )
