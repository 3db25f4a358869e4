"""Carries out the removal of files of checkpoints and of TensorBoard, and says what is left when it is done.

For storage that this host can reach (shared file systems and directories). The manifest goes first, or is written anew
without what will be gone: a checkpoint never promises more than there is, however far the rest of the removal gets.
"""

from __future__ import annotations

import asyncio
import logging
import stat
from collections.abc import Iterable, Mapping
from typing import Any

from resolute.storage.beneath import Beneath, LeadsOut, TooDeep, readable
from resolute.storage.manifest import MANIFEST_NAME, CorruptCheckpoint, Manifest, read_manifest
from resolute_master.domain.change import Change
from resolute_master.domain.commands import RecordRemovedTensorboards, SetCheckpointResources
from resolute_master.domain.copies import replace
from resolute_master.domain.effects import RemoveCheckpoint, RemoveFiles, RemoveTensorboardFiles
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.globs import matcher
from resolute_master.domain.ids import ExperimentId
from resolute_master.engine.checkpoint_storage import StorageAccess
from resolute_master.engine.engine import Engine
from resolute_master.store.base import Store

log = logging.getLogger(__name__)

RETRY_S = 30.0
"""A removal that failed is tried again after so long."""

Removal = RemoveCheckpoint | RemoveFiles | RemoveTensorboardFiles


class CheckpointRemoval:
    """One removal at a time; what the outbox holds at the start is done first.

    `cluster_id` is part of the paths that trials write their TensorBoard files to.
    """

    def __init__(self, engine: Engine, store: Store, access: StorageAccess, *, cluster_id: str) -> None:
        self._engine = engine
        self._store = store
        self._access = access
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
            except Exception as error:  # the files are a task's: nothing in them may end the master
                log.warning("%s is not done yet: %s: %s", effect.key, type(error).__name__, error)
                asyncio.get_running_loop().call_later(RETRY_S, self._wanted.put_nowait, effect)

    async def _obey(self, effect: Removal) -> None:
        match effect:
            case RemoveCheckpoint():
                storage = await self._storage(effect.experiment)
                await asyncio.to_thread(self._remove, storage, effect.uuid)
                await self._engine.submit(SetCheckpointResources(uuid=effect.uuid, resources={}))
            case RemoveFiles():
                await self._remove_files(effect)
            case RemoveTensorboardFiles():
                written = f"{self._cluster_id}/tensorboard/experiment/{effect.experiment}"
                await asyncio.to_thread(self._remove, effect.storage, written)
                await self._engine.submit(RecordRemovedTensorboards(removed_from=effect.experiment))

    async def _remove_files(self, effect: RemoveFiles) -> None:
        left = await asyncio.to_thread(self._matching, await self._storage(effect.experiment), effect)
        if left is None:
            log.warning("files of checkpoint %s lie in storage that this master cannot change", effect.uuid)
            found = await self._store.checkpoint(effect.uuid)
            left = dict(found.resources) if found is not None else {}
        await self._engine.submit(SetCheckpointResources(uuid=effect.uuid, resources=left, obeyed=effect.key))

    async def _storage(self, experiment: ExperimentId) -> Mapping[str, Any]:
        found = self._engine.state.get(Experiment, experiment) or await self._store.experiment(experiment)
        return (found.config.get("checkpoint_storage") or {}) if found is not None else {}

    def _remove(self, storage: Mapping[str, Any], path: str) -> None:
        """A storage that is not there has nothing to remove."""
        try:
            opened = self._access.open(storage)
        except FileNotFoundError:
            return
        if opened is not None:
            with opened:
                remove_whole(opened, path)

    def _matching(self, storage: Mapping[str, Any], effect: RemoveFiles) -> dict[str, int] | None:
        """None where nothing can be removed from here."""
        opened = self._access.open(storage)
        if opened is None:
            return None
        with opened:
            return remove_matching(opened, effect.uuid, effect.globs)


def remove_whole(storage: Beneath, path: str) -> None:
    """A directory of the storage, its manifests first. A link in its place is removed itself; behind one there is nothing of ours.

    Raises `TooDeep`.
    """
    try:
        with storage.directory(path) as directory:
            for name in directory.names():
                if name.startswith("manifest") and name.endswith(".json"):
                    directory.remove_tree(name)
    except FileNotFoundError:
        return
    except LeadsOut as error:
        log.warning("nothing is removed behind it: %s", error)
    try:
        storage.remove_tree(path)
    except TooDeep:
        raise
    except LeadsOut:
        return


def remove_matching(storage: Beneath, uuid: str, globs: Iterable[str]) -> dict[str, int]:
    """Remove the files that match a pattern, and give what is left: path -> bytes, directories with a slash and 0."""
    matchers = [matcher(glob) for glob in globs]
    try:
        directory = storage.directory(uuid)
    except FileNotFoundError:
        return {}
    except LeadsOut:
        remove_whole(storage, uuid)
        return {}
    with directory:
        manifest = _manifest(uuid, directory)
        matched = {
            found.path: found.is_directory
            for found in directory.walk()
            if any(matches(readable(found.path)) for matches in matchers)
        }
        files = [path for path, is_directory in matched.items() if not is_directory]
        if manifest is not None:
            files = [path for path in files if path != MANIFEST_NAME]
            _forget_in_manifest(directory, manifest, set(files))
        for path in files:
            directory.unlink(path)
        for path in sorted((path for path, is_directory in matched.items() if is_directory), reverse=True):
            directory.remove_if_empty(path)
        left = _listed(directory)
    if not left or (manifest is not None and set(left) == {MANIFEST_NAME}):
        remove_whole(storage, uuid)
        return {}
    return left


def _manifest(uuid: str, directory: Beneath) -> Manifest | None:
    """None where a harness that writes none has saved; a file of the user's may have the same name there."""
    try:
        return Manifest.from_bytes(uuid, read_manifest(directory))
    except (FileNotFoundError, LeadsOut, CorruptCheckpoint):
        return None


def _forget_in_manifest(directory: Beneath, manifest: Manifest, names: set[str]) -> None:
    """A reader checks every file that the manifest names: one that was removed on purpose must not look like damage."""
    if names.isdisjoint(manifest.files):
        return
    kept = {name: entry for name, entry in manifest.files.items() if name not in names}
    directory.replace_file(MANIFEST_NAME, replace(manifest, files=kept).to_bytes())


def _listed(directory: Beneath) -> dict[str, int]:
    """Links, devices and the like are listed by their names: a user sees what is in the way of an empty directory."""
    found: dict[str, int] = {}
    for each in directory.walk():
        name = readable(each.path)
        if each.is_directory:
            found[f"{name}/"] = 0
        else:
            found[name] = each.status.st_size if stat.S_ISREG(each.status.st_mode) else 0
    return found
