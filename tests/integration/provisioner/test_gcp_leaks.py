"""Nothing is left on Google Cloud and nothing is bought twice, whatever is refused, lost or cut off: counted from the cloud's own
machines, not from our ledger."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from resolute.clock import SystemClock
from resolute_provisioner.clouds.base import CloudError
from resolute_provisioner.clouds.gcp.fake import gcp_cloud
from resolute_provisioner.clouds.gcp.fake_compute_engine import (
    LOST,
    FailedOperation,
    FakeComputeEngine,
    HttpError,
    Times,
    compute_engine,
)
from resolute_provisioner.reconcile import Reconciler, ReconcileSettings
from support.provisioner import a_request
from support.provisioner_ledger import MemoryLedger

if TYPE_CHECKING:  # Google's client takes seconds to import, in each worker that collects tests
    from resolute_provisioner.clouds.gcp.cloud import GcpCloud

LOOK_S = 0.05
HANGS_S = 200.0
"""Many times what the slowest computer takes, to say what hangs."""
MACHINES = 12
RESTARTS = 6
BAD_INSERTS = (
    LOST,
    LOST,
    HttpError(status=503),
    HttpError(status=403, reason="rateLimitExceeded"),
    HttpError(status=403, reason="quotaExceeded"),
    FailedOperation(code="ZONE_RESOURCE_POOL_EXHAUSTED"),
    FailedOperation(code="INTERNAL_ERROR", status=500),
)
BAD_ORDERS = (LOST, HttpError(status=503), HttpError(status=429))
SETTINGS = ReconcileSettings(
    retry_delay_s=0.02,
    retry_delay_cap_s=0.05,
    throttled_pause_s=0.02,
    throttled_pause_cap_s=0.05,
    terminate_again_s=0.2,
    vanish_after_s=0.3,
)


def spoil(engine: FakeComputeEngine, rng: random.Random) -> None:
    """Half of all calls go wrong in some way."""
    for queue, faults in (
        (engine.scripts.inserts, BAD_INSERTS),
        (engine.scripts.deletes, BAD_ORDERS),
        (engine.scripts.lists, BAD_ORDERS),
    ):
        queue.extend(rng.choice(faults) if rng.random() < 0.5 else None for _ in range(3 * MACHINES))


async def look(reconciler: Reconciler) -> None:
    try:
        await reconciler.observe()
    except CloudError:
        await asyncio.sleep(0.01)


async def cut_off(reconciler: Reconciler, after_s: float) -> None:
    """A process that is killed in the middle of something. What it had asked for goes on without it."""
    task = asyncio.create_task(look(reconciler))
    await asyncio.sleep(after_s)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def until_all_has_ended(reconciler: Reconciler, ledger: MemoryLedger, engine: FakeComputeEngine) -> None:
    """How many looks it takes depends on the computer: what is missing counts as gone only when lists can lag no more."""
    try:
        async with asyncio.timeout(HANGS_S):
            while ledger.rows or engine.there():
                await look(reconciler)
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        rows = {name: (row.provider_id, row.observed, row.launched_at) for name, row in ledger.rows.items()}
        states = {path: status for path, (status, _) in engine.there().items()}
        raise AssertionError(f"left in the ledger: {rows}; at the cloud: {states}; {ledger.failures[-3:]}") from None


@pytest.mark.parametrize("seed", range(2))
async def test_nothing_is_left_and_nothing_is_bought_twice(seed: int) -> None:
    rng = random.Random(seed)
    with compute_engine(times=Times(operation_s=0.1, staging_s=0.1, deleting_s=0.05)) as engine:
        ledger = MemoryLedger(SystemClock())
        clouds: list[GcpCloud] = []
        reconcilers: list[Reconciler] = []

        def started() -> Reconciler:
            clouds.append(gcp_cloud(engine))
            reconcilers.append(
                Reconciler(
                    cloud=clouds[-1],
                    cluster="cluster-1",
                    ledger=ledger,
                    clock=SystemClock(),
                    rng=random.Random(rng.random()),
                    settings=SETTINGS,
                )
            )
            return reconcilers[-1]

        spoil(engine, rng)
        for number in range(MACHINES):
            ledger.record(a_request(f"i-{number}"))
        for _ in range(RESTARTS):
            await cut_off(started(), rng.uniform(0.0, 0.3))
            for name in [row for row in ledger.rows if rng.random() < 0.2]:
                ledger.want_stopped(name)
        engine.scripts.lists.clear()
        last = started()
        for name in list(ledger.rows):
            ledger.want_stopped(name)
        await until_all_has_ended(last, ledger, engine)
        for reconciler in reconcilers:
            await reconciler.settle()
        await until_all_has_ended(last, ledger, engine)  # what those that were cut off had still asked for
        for cloud in clouds:
            cloud.close()

        bought = Counter(name for name, _, _ in engine.ran())
        assert all(times == 1 for times in bought.values()), bought
        assert all(end is not None for _, _, end in engine.ran())
        assert set(ledger.finished) == {f"i-{number}" for number in range(MACHINES)}
