"""Carries out the removal of files of checkpoints and of TensorBoard, and says what is left when it is done.

The manifest goes first, or is written anew without what will be gone: a checkpoint never promises more than there is, however far
the rest of the removal gets. A storage that is away is asked again until it answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from resolute_master.domain.change import Change
from resolute_master.domain.commands import RecordRemovedTensorboards, SetCheckpointResources
from resolute_master.domain.effects import RemoveCheckpoint, RemoveFiles, RemoveTensorboardFiles, ReviewCheckpoints
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.globs import matcher
from resolute_master.domain.ids import ExperimentId
from resolute_master.engine.checkpoint_keeping import REVIEW_S, CheckpointKeeping
from resolute_master.engine.checkpoint_storage import StorageAccess
from resolute_master.engine.engine import Engine
from resolute_master.store.base import Store

log = logging.getLogger(__name__)

RETRY_S = 30.0
"""A removal that failed is tried again after so long."""

Removal = RemoveCheckpoint | RemoveFiles | RemoveTensorboardFiles | ReviewCheckpoints


class CheckpointRemoval:
    """One removal at a time; what the outbox holds at the start is done first.

    `blocking` calls what waits for a storage. `cluster_id` is part of the paths that trials write their TensorBoard files to.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        access: StorageAccess,
        *,
        cluster_id: str,
        blocking: Callable[..., Awaitable[Any]] = asyncio.to_thread,
    ) -> None:
        self._engine = engine
        self._store = store
        self._access = access
        self._cluster_id = cluster_id
        self._blocking = blocking
        self._wanted: asyncio.Queue[Removal] = asyncio.Queue()
        self._keeping = CheckpointKeeping(engine, store)
        engine.on_commit(self._take)

    def _take(self, change: Change) -> None:
        for effect in change.outbox_added:
            if isinstance(effect, Removal):
                self._wanted.put_nowait(effect)

    async def run(self) -> None:
        for effect in self._engine.outstanding():
            if isinstance(effect, Removal):
                self._wanted.put_nowait(effect)
        async with asyncio.TaskGroup() as both:
            both.create_task(self._remove_one_by_one())
            both.create_task(self._review_running())

    async def _review_running(self) -> None:
        while True:
            await asyncio.sleep(REVIEW_S)
            try:
                await self._keeping.review_new()
            except Exception as error:  # the next checkpoint has it looked at again
                log.warning("checkpoints are not reviewed: %s: %s", type(error).__name__, error)

    async def _remove_one_by_one(self) -> None:
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
                await self._blocking(self._delete, await self._storage(effect.experiment), effect.uuid)
                await self._engine.submit(SetCheckpointResources(uuid=effect.uuid, resources={}))
            case RemoveFiles():
                storage = await self._storage(effect.experiment)
                left = await self._blocking(self._remove_matching, storage, effect)
                await self._engine.submit(SetCheckpointResources(uuid=effect.uuid, resources=left, obeyed=effect.key))
            case RemoveTensorboardFiles():
                written = f"{self._cluster_id}/tensorboard/experiment/{effect.experiment}"
                await self._blocking(self._remove_below, effect.storage, written)
                await self._engine.submit(RecordRemovedTensorboards(removed_from=effect.experiment))
            case ReviewCheckpoints():
                await self._keeping.obey(effect)

    async def _storage(self, experiment: ExperimentId) -> Mapping[str, Any] | None:
        """None for an experiment that the store has forgotten."""
        found = self._engine.state.get(Experiment, experiment) or await self._store.experiment(experiment)
        return None if found is None else found.config.get("checkpoint_storage")

    def _delete(self, storage: Mapping[str, Any] | None, uuid: str) -> None:
        if storage:
            self._access.storage(storage).delete(uuid)

    def _remove_below(self, storage: Mapping[str, Any], path: str) -> None:
        if storage:
            self._access.storage(storage).remove_below(path)

    def _remove_matching(self, storage: Mapping[str, Any] | None, effect: RemoveFiles) -> dict[str, int]:
        if not storage:
            return {}
        matchers = [matcher(glob) for glob in effect.globs]
        return self._access.storage(storage).remove_files(
            effect.uuid, lambda path: any(matches(path) for matches in matchers)
        )
