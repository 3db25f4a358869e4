"""Removal of many checkpoints by a real master, triggered by new checkpoint counts of their experiment.

The engine's commands store the experiment and its checkpoints, and the server creates the objects. For comparison, the vendor's
client removes objects from the same number of threads. Meanwhile the master exports the delays of its event loop's wake-ups.
"""

from __future__ import annotations

import asyncio
import os
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.cluster import Cluster
from benchmarks.load import fill
from benchmarks.report import Row, Spread
from benchmarks.storage_server import BUCKET, Server
from resolute.clock import SystemClock
from resolute.config import load_master_config
from resolute.ids import SystemIds
from resolute.storage import MANIFEST_NAME
from resolute_master.app import open_store
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.commands import ReportCheckpoint
from resolute_master.domain.ids import PoolName
from resolute_master.engine.checkpoint_files import REMOVALS_AT_ONCE
from resolute_master.engine.engine import Engine
from resolute_master.pools.policies import pool_policies
from support.engines import AgentByHand, running

COUNT = int(os.environ.get("RESOLUTE_BENCH_CHECKPOINTS", "2000"))
"""Ten thousand take five times as long at the same rate: the local S3 answers about two hundred requests per second."""

BARE = 500
FILES = ("weights", "optimizer", "metadata.json", MANIFEST_NAME)
EXPERIMENT = "{name: removed, entrypoint: 'true', searcher: {name: single, metric: loss}}"
LAG = "resolute_event_loop_lag_seconds"


def rows(store: Server, directory: Path) -> list[Row]:
    place = directory / "removal"
    place.mkdir()
    cluster = Cluster(
        place,
        slots=0,
        checkpoint_storage={**store.config("removal"), "save_trial_latest": 2 * COUNT},
        resource_pools=[{"pool_name": "default"}],
    )
    uuids = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(COUNT)]
    asyncio.run(_reported(cluster.configured(), uuids))
    store.make([f"removal/{uuid}/{name}" for uuid in uuids for name in FILES])
    store.make([f"bare/{uuid}/{name}" for uuid in uuids[:BARE] for name in FILES])
    cluster.start()
    try:
        idle = _lag(cluster)
        begun, requests = time.monotonic(), store.requests()
        counts = {"saveExperimentBest": 0, "saveTrialBest": 0, "saveTrialLatest": 0}
        cluster.client().call("PATCH", "/api/v1/experiments/1", {"checkpointStorage": counts})
        while next(_left(store), None) is not None:
            time.sleep(1.0)
        took, asked = time.monotonic() - begun, store.requests() - requests
        busy = _since(idle, _lag(cluster))
    finally:
        cluster.close()
    bare = _bare(store, uuids[:BARE])
    return [
        Row(
            name=f"removal of {COUNT:,} checkpoints of {len(FILES)} files",
            subject=Spread.one(asked / took, "requests/s"),
            bound_name=f"boto3 alone, {REMOVALS_AT_ONCE} threads",
            bound=Spread.one(bare, "requests/s"),
            result=COUNT / took,
            unit="checkpoints/s",
            notes=f"{asked / COUNT:.1f} requests each, {took:.0f} s; S3 by moto",
        ),
        Row(
            name="event loop of the master meanwhile: late by at most, in 99 % of its wake-ups",
            subject=Spread.one(1000 * _quantile(busy, 0.99), "ms"),
            bound_name="in half of them",
            bound=Spread.one(1000 * _quantile(busy, 0.5), "ms"),
            notes=f"{int(busy[-1][1])} wake-ups, {int(busy[-1][1] - _up_to(busy, 0.05))} later than 50 ms",
        ),
    ]


async def _reported(config_file: Path, uuids: list[str]) -> None:
    """An ended experiment of one trial, with these checkpoints."""
    await fill(config_file, 1, EXPERIMENT)
    config = load_master_config(config_file, {}, {})
    store = await open_store(config)
    engine = Engine(store=store, clock=SystemClock(), ids=SystemIds(), pools=pool_policies(config), version="bench")
    async with running(engine):
        agent = AgentByHand(engine, "by-hand", pool=PoolName("default"))
        await agent.register()
        (allocation,) = engine.state.all(Allocation)
        resources: dict[str, int] = dict.fromkeys(FILES, 1)
        for first in range(0, len(uuids), 500):
            await asyncio.gather(
                *(
                    engine.submit(
                        ReportCheckpoint(
                            uuid=uuid,
                            allocation=allocation.id,
                            steps_completed=first + number,
                            resources=resources,
                            metadata={},
                        )
                    )
                    for number, uuid in enumerate(uuids[first : first + 500])
                )
            )
        await agent.run_all()
    await store.close()


def _left(store: Server) -> Iterator[Any]:
    """Objects of the checkpoints, and removal marks."""
    answer = store.client().list_objects_v2(Bucket=BUCKET, Prefix="removal/", MaxKeys=1)
    yield from answer.get("Contents", ())


def _bare(store: Server, uuids: list[str]) -> float:
    """Requests per second of the listing, the mark and the deletions of a removal, without a master."""
    client = store.client()

    def remove(uuid: str) -> None:
        above = f"bare/{uuid}/"
        found = [each["Key"] for each in client.list_objects_v2(Bucket=BUCKET, Prefix=above)["Contents"]]
        client.put_object(Bucket=BUCKET, Key=f"bare/.mark/{uuid}", Body=b"")
        client.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in found], "Quiet": True})
        client.delete_object(Bucket=BUCKET, Key=f"bare/.mark/{uuid}")

    begun, requests = time.monotonic(), store.requests()
    with ThreadPoolExecutor(REMOVALS_AT_ONCE) as threads:
        list(threads.map(remove, uuids))
    return (store.requests() - requests) / (time.monotonic() - begun)


# ------------------------------------------------------------------------------------------------------- event loop

Buckets = list[tuple[float, float]]
"""Histogram of (upper limit of the delay in seconds, wake-ups), up to infinity."""


def _lag(cluster: Cluster) -> Buckets:
    request = urllib.request.Request(
        f"http://127.0.0.1:{cluster.port}/metrics", headers={"Authorization": f"Bearer {cluster.token}"}
    )
    with urllib.request.urlopen(request) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return sorted(
            (float(sample.labels["le"]), sample.value)
            for family in families
            for sample in family.samples
            if sample.name == f"{LAG}_bucket"
        )


def _since(before: Buckets, after: Buckets) -> Buckets:
    return [(limit, count - earlier) for (limit, count), (_, earlier) in zip(after, before, strict=True)]


def _quantile(buckets: Buckets, share: float) -> float:
    """The smallest limit that contains the given number."""
    return next(limit for limit, count in buckets if count >= share * buckets[-1][1])


def _up_to(buckets: Buckets, seconds: float) -> float:
    return max(count for limit, count in buckets if limit <= seconds)
