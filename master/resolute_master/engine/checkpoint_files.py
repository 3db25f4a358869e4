"""Carries out the removal of files of checkpoints and of TensorBoard, and says what is left when it is done.

For storage that this host can reach (shared file systems and directories). The manifest goes first, or is written anew
without what will be gone: a checkpoint never promises more than there is, however far the rest of the removal gets.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from resolute.errors import ResoluteError
from resolute.storage.manifest import MANIFEST_NAME, CorruptCheckpoint, Manifest
from resolute_master.domain.change import Change
from resolute_master.domain.commands import RecordRemovedTensorboards, SetCheckpointResources
from resolute_master.domain.copies import replace
from resolute_master.domain.effects import RemoveCheckpoint, RemoveFiles, RemoveTensorboardFiles
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import ExperimentId
from resolute_master.engine.engine import Engine
from resolute_master.store.base import Store

log = logging.getLogger(__name__)

RETRY_S = 30.0
"""A removal that failed is tried again after so long."""

Removal = RemoveCheckpoint | RemoveFiles | RemoveTensorboardFiles


def storage_directory(storage: Mapping[str, Any]) -> Path | None:
    """Where the storage lies on this host; None for storage that is not a file system."""
    match storage.get("type"):
        case "shared_fs":
            return Path(storage["host_path"]) / (storage.get("storage_path") or "")
        case "directory":
            return Path(storage["container_path"])
        case _:
            return None


def checkpoint_directory(config: Mapping[str, Any], uuid: str) -> Path | None:
    """Where the files of a checkpoint lie on this host; None for storage that is not a file system."""
    base = storage_directory(config.get("checkpoint_storage") or {})
    return None if base is None else base / uuid


class CheckpointRemoval:
    """One removal at a time; what the outbox holds at the start is done first.

    `cluster_id` is part of the paths that trials write their TensorBoard files to.
    """

    def __init__(self, engine: Engine, store: Store, *, cluster_id: str) -> None:
        self._engine = engine
        self._store = store
        self._cluster_id = cluster_id
        self._wanted: asyncio.Queue[Removal] = asyncio.Queue()
        engine.on_commit(self._take)

    def _take(self, change: Change) -> None:
        for effect in change.outbox_added:
            if isinstance(effect, Removal):
                self._wanted.put_nowait(effect)

    async def run(self) -> None:
        for effect in self._engine.outstanding():
            if isinstance(effect, Removal):
                self._wanted.put_nowait(effect)
        while True:
            effect = await self._wanted.get()
            if effect.key not in self._engine.state.outbox:
                continue  # it was ordered twice, and is done
            try:
                await self._obey(effect)
            except (OSError, ResoluteError) as error:
                log.warning("%s is not done yet: %s", effect.key, error)
                asyncio.get_running_loop().call_later(RETRY_S, self._wanted.put_nowait, effect)

    async def _obey(self, effect: Removal) -> None:
        match effect:
            case RemoveCheckpoint():
                directory = await self._directory(effect.experiment, effect.uuid)
                if directory is not None:
                    await asyncio.to_thread(_remove_tree, directory)
                await self._engine.submit(SetCheckpointResources(uuid=effect.uuid, resources={}))
            case RemoveFiles():
                await self._remove_files(effect)
            case RemoveTensorboardFiles():
                base = storage_directory(effect.storage)
                if base is not None:
                    written = base / self._cluster_id / "tensorboard" / "experiment" / str(effect.experiment)
                    await asyncio.to_thread(_remove_tree, written)
                await self._engine.submit(RecordRemovedTensorboards(removed_from=effect.experiment))

    async def _remove_files(self, effect: RemoveFiles) -> None:
        directory = await self._directory(effect.experiment, effect.uuid)
        if directory is None:
            log.warning("files of checkpoint %s lie in storage that this master cannot change", effect.uuid)
            found = await self._store.checkpoint(effect.uuid)
            left = dict(found.resources) if found is not None else {}
        else:
            left = await asyncio.to_thread(remove_matching, directory, effect.globs)
        await self._engine.submit(SetCheckpointResources(uuid=effect.uuid, resources=left, obeyed=effect.key))

    async def _directory(self, experiment: ExperimentId, uuid: str) -> Path | None:
        found = self._engine.state.get(Experiment, experiment) or await self._store.experiment(experiment)
        return checkpoint_directory(found.config, uuid) if found is not None else None


def _remove_tree(directory: Path) -> None:
    if not directory.is_dir():
        return
    for manifest in sorted(directory.glob("manifest*.json")):
        manifest.unlink(missing_ok=True)
    shutil.rmtree(directory)


def remove_matching(directory: Path, globs: Iterable[str]) -> dict[str, int]:
    """Remove the files that match a pattern, and give what is left: path -> bytes, directories with a slash and 0."""
    if not directory.parent.is_dir():
        # A file system that is not mounted now: nothing is known about what is in it.
        raise FileNotFoundError(f"the checkpoint storage {directory.parent} is not there")
    manifest = _manifest(directory)
    matched = {path for glob in globs for path in directory.glob(glob)}
    files = {path for path in matched if path.is_symlink() or not path.is_dir()}
    if manifest is not None:
        files.discard(directory / MANIFEST_NAME)
        _forget_in_manifest(directory, manifest, {path.relative_to(directory).as_posix() for path in files})
    for path in sorted(files):
        path.unlink(missing_ok=True)
    for path in sorted(matched - files, reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    left = _listed(directory)
    if not left or (manifest is not None and set(left) == {MANIFEST_NAME}):
        _remove_tree(directory)
        return {}
    return left


def _manifest(directory: Path) -> Manifest | None:
    """None where a harness that writes none has saved; a file of the user's may have the same name there."""
    try:
        return Manifest.from_bytes(directory.name, (directory / MANIFEST_NAME).read_bytes())
    except (FileNotFoundError, CorruptCheckpoint):
        return None


def _forget_in_manifest(directory: Path, manifest: Manifest, names: set[str]) -> None:
    """A reader checks every file that the manifest names: one that was removed on purpose must not look like damage."""
    if names.isdisjoint(manifest.files):
        return
    kept = {name: entry for name, entry in manifest.files.items() if name not in names}
    written = directory / f"{MANIFEST_NAME}.new"
    with written.open("wb") as file:
        file.write(replace(manifest, files=kept).to_bytes())
        file.flush()
        os.fsync(file.fileno())
    os.replace(written, directory / MANIFEST_NAME)


def _listed(directory: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if path.is_dir() and not path.is_symlink():
            found[f"{name}/"] = 0
        else:
            found[name] = path.lstat().st_size
    return found
