"""A trial with checkpoints in a directory, and the part of the master that removes their files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from resolute.storage.directory import DirectoryStorage
from resolute.storage.manifest import FileEntry, Manifest, describe_file, resources
from resolute_master.api.submission.host_paths import rules_of
from resolute_master.domain.trial import Trial
from resolute_master.engine.checkpoint_files import CheckpointRemoval
from resolute_master.engine.checkpoint_storage import StorageAccess
from support.api import World
from support.engines import AgentByHand

UUIDS = [f"00000000-0000-4000-8000-00000000000{i}" for i in range(10)]
FILES = {"model/weights.pt": b"w" * 100, "model/optimizer.pt": b"o" * 50, "state.json": b"{}"}


@asynccontextmanager
async def removing(world: World) -> AsyncIterator[None]:
    """Runs the part of the master that executes removals."""
    access = StorageAccess(rules=rules_of(world.context.config))
    removal = CheckpointRemoval(world.engine, world.context.store, access, cluster_id=world.context.cluster_id)
    task = asyncio.create_task(removal.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def written(root: Path, uuid: str, steps: int) -> dict[str, str]:
    """Publishes a checkpoint as the harness does, and returns its reported resources."""
    storage = DirectoryStorage(root)
    staged = storage.stage(uuid, "0")
    entries: dict[str, FileEntry] = {}
    for name, content in FILES.items():
        (staged / name).parent.mkdir(parents=True, exist_ok=True)
        (staged / name).write_bytes(content)
        entries[name] = describe_file(staged / name)
    manifest = Manifest(
        uuid=uuid,
        steps_completed=steps,
        trial_id=1,
        trial_run_id=1,
        world_size=1,
        created="",
        parent=None,
        files=entries,
    )
    storage.put(uuid, "0", FILES)
    storage.commit(uuid, manifest.to_bytes())
    return {name: str(size) for name, size in resources(manifest, manifest.to_bytes()).items()}


KEEP_ALL = {"save_trial_latest": 1000}


async def with_checkpoints(
    world: World, root: Path, count: int, *, counts: Mapping[str, int] = KEEP_ALL
) -> tuple[AgentByHand, Trial, str]:
    """A running trial with checkpoints at steps 1 to `count`, each a little better than the one before.

    `counts` are the `save_*` of its storage.
    """
    agent = await world.agent()
    trial, allocation, task = await world.started(agent, checkpoint_storage=dict(counts))
    for number in range(1, count + 1):
        values = {"trialId": trial.id, "trialRunId": 1, "stepsCompleted": number,
                  "metrics": {"avgMetrics": {"loss": 1.0 / number}}}  # fmt: skip
        await world.post(f"/api/v1/trials/{trial.id}/metrics", {"group": "validation", "metrics": values}, task=task)
        report = {
            "uuid": UUIDS[number],
            "allocationId": allocation.id,
            "resources": written(root, UUIDS[number], number),
            "metadata": {"steps_completed": number},
        }
        await world.post("/api/v1/checkpoints", report, task=task)
    return agent, trial, task


async def settled(world: World) -> None:
    """Waits until every order is executed."""
    with world.engine.watch("", "") as news:
        while world.engine.outstanding():
            assert await news.changed(20)


async def shown(world: World, number: int) -> dict[str, object]:
    answer = await world.get(f"/api/v1/checkpoints/{UUIDS[number]}")
    checkpoint: dict[str, object] = answer["checkpoint"]
    return checkpoint
