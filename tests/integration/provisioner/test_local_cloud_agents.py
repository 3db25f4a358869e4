"""The local cloud with the real machine process, and under the real reconciler."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from resolute.clock import SystemClock
from resolute_provisioner.clouds.base import LaunchRequest
from resolute_provisioner.clouds.local.cloud import MACHINE_COMMAND
from resolute_provisioner.clouds.local.files import MachineFiles
from resolute_provisioner.clouds.records import read_json
from resolute_provisioner.model import Observed, RefusalKind
from resolute_provisioner.reconcile import Reconciler
from support.ports import free_port
from support.provisioner import a_request
from support.provisioner_ledger import MemoryLedger
from support.provisioner_worlds import LocalWorld, processes_of, until


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    world = LocalWorld(tmp_path / "cloud", machine_command=MACHINE_COMMAND, boot_delay_s=0.1)
    yield world
    world.close()
    assert not processes_of(world.root)


@pytest.fixture
def name(tmp_path: Path) -> str:
    """Name of a machine, which ends every process of this computer with its name. So it differs from those of concurrent tests."""
    return f"i-{os.getpid()}-{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:8]}"


def request_without_master(name: str, *, master_timeout_s: float) -> LaunchRequest:
    request = a_request(name)
    url = f"http://127.0.0.1:{free_port()}"
    return replace(request, boot=replace(request.boot, master_url=url, master_timeout_s=master_timeout_s))


async def observed(world: LocalWorld, name: str) -> Observed:
    return next(each.observed for each in await world.cloud.list("cluster-1") if each.instance_id == name)


async def test_a_machine_that_cannot_reach_its_master_ends_itself(world: LocalWorld, name: str) -> None:
    await world.cloud.launch(request_without_master(name, master_timeout_s=2.0))

    async def is_gone() -> bool:
        return await observed(world, name) is Observed.GONE

    await until(is_gone, what="the machine ends itself")
    files = MachineFiles(world.root / "instances" / name)
    assert "ended with code 0" in (read_json(files.gone) or {})["reason"]


async def test_the_real_machine_accepts_what_it_is_told_and_ends_when_told(world: LocalWorld, name: str) -> None:
    await world.cloud.launch(request_without_master(name, master_timeout_s=600.0))
    files = MachineFiles(world.root / "instances" / name)

    async def agent_is_up() -> bool:
        return (files.directory / "state" / "lock").exists()

    await until(agent_is_up, what="its agent holds its state directory")
    assert (read_json(files.directory / "machine.json") or {})["instance_id"] == name
    await world.cloud.terminate([name])

    async def is_gone() -> bool:
        return await observed(world, name) is Observed.GONE

    await until(is_gone, what="the machine has ended")
    assert not processes_of(world.root)


async def test_the_reconciler_runs_a_pool_up_and_down_over_a_refusal(tmp_path: Path) -> None:
    clock = SystemClock()
    world = LocalWorld(tmp_path / "cloud", refusals=(RefusalKind.NO_CAPACITY,))
    ledger = MemoryLedger(clock)
    reconciler = Reconciler(cloud=world.cloud, cluster="cluster-1", ledger=ledger, clock=clock, rng=random.Random(1))
    service = asyncio.create_task(reconciler.run())
    try:
        ledger.record(a_request("i-1"))
        reconciler.wake()

        async def refused() -> bool:
            return bool(ledger.refusals)

        await until(refused, what="the first launch is refused")
        assert ledger.refusals == [("i-1", RefusalKind.NO_CAPACITY)] and not ledger.rows
        for name in ("i-2", "i-3"):
            ledger.record(a_request(name))
        reconciler.wake()

        async def both_run() -> bool:
            return [row.observed for row in ledger.rows.values()] == [Observed.RUNNING] * 2

        await until(both_run, what="two machines run")
        for name in ("i-2", "i-3"):
            ledger.want_stopped(name)
        reconciler.wake()

        async def none_left() -> bool:
            return not ledger.rows

        await until(none_left, what="the pool is at zero")
        assert all(start is not None and end is not None and start <= end for start, end in ledger.paid.values())
        assert not processes_of(world.root)
    finally:
        reconciler.stop()
        await service
        world.close()
