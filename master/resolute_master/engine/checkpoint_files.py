"""Carries out the removal of checkpoints' files, and says so when they are gone.

For storage that this host can reach (shared file systems and directories). The manifest goes first: from then on the
checkpoint does not exist for anybody, however far the rest of the removal gets.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resolute.errors import ResoluteError
from resolute_master.domain.change import Change
from resolute_master.domain.commands import SetCheckpointResources
from resolute_master.domain.effects import RemoveCheckpoint
from resolute_master.domain.experiment import Experiment
from resolute_master.engine.engine import Engine
from resolute_master.store.base import Store

log = logging.getLogger(__name__)

RETRY_S = 30.0
"""A removal that failed is tried again after so long."""


def checkpoint_directory(config: Mapping[str, Any], uuid: str) -> Path | None:
    """Where the files of a checkpoint lie on this host; None for storage that is not a file system."""
    storage = config.get("checkpoint_storage") or {}
    match storage.get("type"):
        case "shared_fs":
            base = Path(storage["host_path"])
            inside = storage.get("storage_path") or ""
            return base / inside / uuid
        case "directory":
            return Path(storage["container_path"]) / uuid
        case _:
            return None


class CheckpointRemoval:
    """One removal at a time; what the outbox holds at the start is done first."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine = engine
        self._store = store
        self._wanted: asyncio.Queue[RemoveCheckpoint] = asyncio.Queue()
        engine.on_commit(self._take)

    def _take(self, change: Change) -> None:
        for effect in change.outbox_added:
            if isinstance(effect, RemoveCheckpoint):
                self._wanted.put_nowait(effect)

    async def run(self) -> None:
        for effect in self._engine.outstanding():
            if isinstance(effect, RemoveCheckpoint):
                self._wanted.put_nowait(effect)
        while True:
            effect = await self._wanted.get()
            if effect.key not in self._engine.state.outbox:
                continue  # it was ordered twice, and is done
            try:
                await self._remove(effect)
            except (OSError, ResoluteError) as error:
                log.warning("checkpoint %s is not removed yet: %s", effect.uuid, error)
                asyncio.get_running_loop().call_later(RETRY_S, self._wanted.put_nowait, effect)

    async def _remove(self, effect: RemoveCheckpoint) -> None:
        experiment = self._engine.state.get(Experiment, effect.experiment) or await self._store.experiment(
            effect.experiment
        )
        directory = checkpoint_directory(experiment.config, effect.uuid) if experiment is not None else None
        if directory is not None:
            await asyncio.to_thread(_remove_tree, directory)
        await self._engine.submit(SetCheckpointResources(uuid=effect.uuid, resources={}))


def _remove_tree(directory: Path) -> None:
    if not directory.is_dir():
        return
    for manifest in sorted(directory.glob("manifest*.json")):
        manifest.unlink(missing_ok=True)
    shutil.rmtree(directory)
