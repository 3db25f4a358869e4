"""A master's engine that deletes a workspace and kills itself with SIGKILL at one of its commits.

    python killed_deletion.py <folder> <commit>

In an empty folder it first creates the workspace `lab`, whose project has two experiments with checkpoints, metrics and log lines,
and orders the deletion. In any other folder it continues the deletion. It ends when the workspace is deleted.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from resolute.host_paths import HostPathRules
from resolute.wire.states import ExperimentState
from resolute_master.domain.administration import DeleteWorkspace
from resolute_master.domain.change import Change, Entity
from resolute_master.domain.experiment import written
from resolute_master.domain.ids import UserId
from resolute_master.domain.workspace import Project, Workspace
from resolute_master.engine.checkpoint_files import CheckpointRemoval
from resolute_master.engine.checkpoint_storage import StorageAccess
from resolute_master.engine.engine import Engine
from resolute_master.engine.project_contents import ProjectContents
from resolute_master.store.base import Store
from resolute_master.store.sql.store import SqlStore
from support.engines import an_engine, running
from support.stores import a_change, a_checkpoint, a_job, a_line, a_report, a_trial, an_experiment

EXPERIMENTS = (1, 2)
CHECKPOINTS = 3
"""Number of rows of each experiment."""
LAB = 2


def checkpoint_folders(folder: Path) -> list[Path]:
    return [folder / f"saved-{id_}-{number}" for id_ in EXPERIMENTS for number in range(CHECKPOINTS)]


async def _fill(store: Store, folder: Path) -> None:
    storage = {"type": "directory", "container_path": str(folder)}
    config = {"searcher": {"name": "single", "metric": "loss"}, "labels": [], "checkpoint_storage": storage}
    entities: list[Entity] = [
        Workspace(id=LAB, name="lab", owner=UserId(1)),
        Project(id=2, workspace_id=LAB, name="a", key="A", owner=UserId(1)),
    ]
    for id_ in EXPERIMENTS:
        place = {"workspace_id": LAB, "project_id": 2}
        over = {"state": ExperimentState.COMPLETED}
        made = an_experiment(id_, configuration=written(config), **place, **over)
        trial = a_trial(id_, id_, **over)
        saved = (a_checkpoint(f"saved-{id_}-{number}", id_, id_) for number in range(CHECKPOINTS))
        entities += [a_job(id_, ended=True, **place), made, trial, *saved]
    for path in checkpoint_folders(folder):
        path.mkdir()
        (path / "weights.pt").write_bytes(b"w")
    await store.commit(a_change(1, upserts=tuple(entities)))
    await store.append_logs([a_line(f"line-{id_}", task_id=a_trial(id_, id_).task_id) for id_ in EXPERIMENTS])
    await store.append_metrics([a_report(1, trial_id=id_) for id_ in EXPERIMENTS])


async def delete(folder: Path, die_at: int) -> None:
    """Kills the process at its commit `die_at`, counted from 1; 0 means never."""
    store = await SqlStore.open(f"sqlite:///{folder / 'master.db'}")
    fresh = not (await store.load()).sequence
    if fresh:
        await _fill(store, folder)
    commits = 0

    def count(_: Change) -> None:
        nonlocal commits
        commits += 1
        if commits == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    async with running(an_engine(store)) as engine:
        engine.on_commit(count)
        await _carry_out(engine, store, order=fresh)
    await store.close()


async def _carry_out(engine: Engine, store: Store, *, order: bool) -> None:
    access = StorageAccess(rules=HostPathRules(remedy=""))
    parts = (ProjectContents(engine, store), CheckpointRemoval(engine, store, access, cluster_id="cluster-1"))
    tasks = [asyncio.create_task(part.run()) for part in parts]
    if order:
        await engine.submit(DeleteWorkspace(workspace=LAB))
    with engine.watch("", "") as news:
        while engine.state.get(Workspace, LAB) is not None or engine.state.outbox:
            await news.changed(1)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(delete(Path(sys.argv[1]), int(sys.argv[2])))
