"""The deletion of a workspace, killed again and again in its middle, comes to its end and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from resolute_master.domain.ids import ExperimentId, TaskId, TrialId
from resolute_master.domain.workspace import Deletion, Project, Workspace
from resolute_master.store.base import CheckpointQuery, LogQuery
from resolute_master.store.sql.store import SqlStore
from support import killed_deletion
from support.killed_deletion import EXPERIMENTS, checkpoint_folders
from support.stores import a_trial

PROGRAM = Path(killed_deletion.__file__)
LIMIT_S = 120.0


def run(folder: Path, die_at: int) -> int:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PROGRAM.parent.parent), *sys.path])}
    command = [sys.executable, str(PROGRAM), str(folder), str(die_at)]
    return subprocess.run(command, env=environment, timeout=LIMIT_S, check=False).returncode


async def test_a_deletion_that_is_killed_at_its_commits_is_completed(tmp_path: Path) -> None:
    path = f"sqlite:///{tmp_path / 'master.db'}"
    assert run(tmp_path, 1) == -signal.SIGKILL, "once the order is stored"
    store = await SqlStore.open(path)
    stored = (await store.load()).entities
    states = {type(one): one.deletion for one in stored if isinstance(one, Workspace | Project)}
    assert states == {Workspace: Deletion.DELETING, Project: Deletion.DELETING}
    assert all(folder.exists() for folder in checkpoint_folders(tmp_path))
    await store.close()

    kills = 1
    while (code := run(tmp_path, 3)) == -signal.SIGKILL:
        kills += 1
        assert kills < 20
    assert code == 0 and kills > 1

    assert not any(folder.exists() for folder in checkpoint_folders(tmp_path))
    store = await SqlStore.open(path)
    loaded = await store.load()
    assert loaded.outbox == ()
    assert not [one for one in loaded.entities if isinstance(one, Workspace | Project)]
    for id_ in EXPERIMENTS:
        assert await store.experiment(ExperimentId(id_)) is None
        assert await store.checkpoints(CheckpointQuery(experiment_id=ExperimentId(id_))) == ()
        assert await store.metrics(TrialId(id_)) == ()
        task: TaskId = a_trial(id_, id_).task_id
        assert not await store.logs(LogQuery(task_ids=(task,)))
    await store.close()
