"""Machines that are gone without a word, and machines that are told: how soon the production engine acts, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime

from resolute_master.domain.change import Decision
from resolute_provisioner.model import Observed
from resolute_sim.fault_plan import NO_FAULTS
from resolute_sim.loop import run_virtually
from resolute_sim.simulation import quiet
from resolute_sim.world import HEARTBEAT_S, World
from support.sim_gangs import workload

FOUND_S = 4 * HEARTBEAT_S
"""Silence is noticed within three heartbeats, and then the cloud is asked."""
LISTED_S = 5.0
"""A link that ends is news by itself: the cloud is asked at once."""


def after(fate: Callable[[World], Awaitable[None]], *, wait_s: float) -> list[Decision]:
    """Decisions of the time from the fate of a world in which two machines work, each on one trial, until `wait_s` after."""

    async def live() -> list[Decision]:
        work = workload(1, steps=1000)
        world = World(seed=1, workload=work, fault_plan=NO_FAULTS)
        try:
            await world.start_master()
            await world.set_up()
            for _ in range(2):
                await world.submit(work.submissions[0].command())
            await asyncio.sleep(300.0)
            assert len(world.event_log.live) == 2
            before = len(world.tables.decisions)
            await fate(world)
            await asyncio.sleep(wait_s)
            assert not world.checks.violations
            return world.tables.decisions[before:]
        finally:
            await world.close()

    with quiet():
        return run_virtually(live())


def victim(world: World) -> str:
    running = [each for each in world.cloud.living() if each.observed is Observed.RUNNING]
    return running[0].provider_id


def at(decisions: list[Decision], kind: str) -> datetime:
    return next(each.at for each in decisions if each.kind == kind)


def test_a_machine_that_vanishes_is_found_and_replaced_in_seconds() -> None:
    """Far from the ten minutes after which an agent that is out of contact would be given up."""
    vanished: list[datetime] = []

    async def vanish(world: World) -> None:
        vanished.append(world.clock.now())
        world.cloud.interrupt(victim(world), notice_s=None)

    found = after(vanish, wait_s=120.0)
    assert (at(found, "lost") - vanished[0]).total_seconds() <= FOUND_S + LISTED_S
    assert (at(found, "launch") - at(found, "lost")).total_seconds() < 1.0


def test_a_notice_starts_the_replacement_before_the_machine_is_gone() -> None:
    told: list[datetime] = []

    async def notice(world: World) -> None:
        told.append(world.clock.now())
        world.cloud.interrupt(victim(world), notice_s=120.0)

    found = after(notice, wait_s=100.0)
    assert (at(found, "launch") - told[0]).total_seconds() < 1.0
    assert not [each for each in found if each.kind == "lost"]


def test_when_all_are_out_of_contact_and_the_cloud_still_lists_them_none_is_given_back() -> None:
    async def split(world: World) -> None:
        for machine in world.machines.values():
            machine.partitioned = True
            if machine.link is not None:
                machine.link.cut(agent_sees=False, master_sees=False)

    found = after(split, wait_s=700.0)
    assert not [each for each in found if each.kind == "terminate"]
