"""Gangs whose machines are scarce, through the production engine: what is paid for those that do not start.

Counted from the fake cloud's own bill. The bound: each attempt at a gang is paid for at most `gang_hold_s` and an order's time
for each member, and the attempts become rarer and rarer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pytest

from resolute_provisioner import risk
from resolute_provisioner.clouds.fake import BillLine
from resolute_sim.fault_plan import NO_FAULTS, RELIABLE_CLOUD
from resolute_sim.loop import run_virtually
from resolute_sim.simulation import quiet
from resolute_sim.workload import EPOCH
from resolute_sim.world import World
from support.sim_gangs import SCALING, workload

HOUR_S = 3600.0
ORDER_S = 15.0
"""From the decision to give a machine back until its bill stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of a world with one gang."""

    bill: tuple[BillLine, ...]
    paid_s: float
    started: bool
    stranded: int
    """Machines that were given back because the gang could not be completed."""
    attempts: int
    """Times at which such machines were given back."""
    refused_at: tuple[datetime, ...]
    launched_at: tuple[datetime, ...]


def run(*, capacity: Mapping[str, int], hours: float, then: Mapping[str, int] | None = None) -> Result:
    """Four machines are needed. `then` is the capacity of the hour after `hours`."""

    async def live() -> Result:
        fault_plan = replace(NO_FAULTS, cloud=replace(RELIABLE_CLOUD, capacity=capacity))
        work = workload(4)
        world = World(seed=1, workload=work, fault_plan=fault_plan)
        try:
            await world.start_master()
            await world.set_up()
            await world.submit(work.submissions[0].command())
            await asyncio.sleep(hours * HOUR_S)
            if then is not None:
                world.cloud.behaviour = replace(RELIABLE_CLOUD, capacity=then)
                await asyncio.sleep(HOUR_S)
            assert not world.checks.violations
            return _result(world)
        finally:
            await world.close()

    with quiet():
        return run_virtually(live())


def _result(world: World) -> Result:
    decisions = world.tables.decisions
    stranded = [
        each for each in decisions if each.kind == "terminate" and "of that gang are not available" in each.reason
    ]
    return Result(
        bill=tuple(world.cloud.bill.lines),
        paid_s=world.cloud.bill.seconds(world.clock.now()),
        started=any(each.kind == "place" for each in decisions),
        stranded=len(stranded),
        attempts=len({each.at for each in stranded}),
        refused_at=tuple(each.at for each in decisions if each.kind == "refused"),
        launched_at=tuple(each.at for each in decisions if each.kind == "launch"),
    )


def test_where_nothing_is_granted_nothing_is_paid() -> None:
    result = run(capacity={"cheap": 0, "dear": 0}, hours=3)
    assert not result.bill and not result.started
    # One wave to each offer, and then one request at a time, more and more rarely.
    assert sum(at < EPOCH + timedelta(seconds=20) for at in result.launched_at) <= 4 * 2 + 4 * 2
    rarest_s = risk.REFUSAL_BACKOFF_CAP_S * (1 - risk.JITTER)
    assert len(result.launched_at) <= 16 + 2 * (3 * HOUR_S / rarest_s + 8)


def test_a_gang_that_never_starts_costs_a_moment_of_its_members_now_and_then() -> None:
    result = run(capacity={"cheap": 3, "dear": 0}, hours=5)
    assert not result.started and result.stranded >= 3
    # 60 s, doubling to an hour: six in the first hour, then one an hour.
    assert 6 <= result.attempts <= 6 + 5
    for line in result.bill:
        assert line.paid_until is not None
        assert (line.paid_until - line.paid_from).total_seconds() <= SCALING.gang_hold_s + ORDER_S
    assert result.paid_s <= result.attempts * 3 * (SCALING.gang_hold_s + ORDER_S)
    assert result.paid_s < 0.03 * 3 * 5 * HOUR_S


@pytest.mark.parametrize("dear", [1, 4])
def test_the_next_offer_completes_the_gang_at_once(dear: int) -> None:
    result = run(capacity={"cheap": 3 if dear == 1 else 0, "dear": dear}, hours=1)
    assert result.started and not result.stranded
    assert len(result.bill) == 4
    first = result.refused_at[0]
    assert min(at for at in result.launched_at if at >= first) - first < timedelta(seconds=1)


def test_a_gang_starts_when_its_machines_can_be_had_again() -> None:
    result = run(capacity={"cheap": 3, "dear": 0}, hours=1, then={"cheap": 4, "dear": 0})
    assert result.started
