"""Removes files of checkpoints and of TensorBoard, and reports the remaining ones.

The manifest is removed first, or rewritten without the files to remove: a manifest never lists missing files, even if the removal
is interrupted. Several removals run concurrently, those of one checkpoint in order. Requests to an unavailable storage are retried
until it answers, without delaying the removals of other experiments.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from resolute.errors import ResoluteError
from resolute.storage import NotMounted, StorageUnavailable
from resolute_master.domain.change import Change
from resolute_master.domain.commands import RecordRemovedTensorboards, ReportRemovalWaits, SetCheckpointResources
from resolute_master.domain.effects import RemoveCheckpoint, RemoveFiles, RemoveTensorboardFiles, ReviewCheckpoints
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.globs import matcher
from resolute_master.domain.ids import ExperimentId
from resolute_master.engine.checkpoint_keeping import REVIEW_S, CheckpointKeeping
from resolute_master.engine.checkpoint_storage import KeptStorages, StorageAccess
from resolute_master.engine.engine import Engine
from resolute_master.store.base import Store

log = logging.getLogger(__name__)

RETRY_S = 30.0
"""Time after which a failed removal is retried."""

REMOVALS_AT_ONCE = 8
"""Concurrent removals. A removal waits for the storage nearly all of its time. More threads would take the interpreter from the
event loop."""

Removal = RemoveCheckpoint | RemoveFiles | RemoveTensorboardFiles | ReviewCheckpoints


class CheckpointRemoval:
    """At most `REMOVALS_AT_ONCE` removals at a time; what the outbox holds at the start is done first.

    `blocking` calls what waits for a storage; by default in threads that do nothing else. `cluster_id` is part of the paths that
    trials write their TensorBoard files to.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        access: StorageAccess,
        *,
        cluster_id: str,
        blocking: Callable[..., Awaitable[Any]] | None = None,
    ) -> None:
        self._engine = engine
        self._store = store
        self._storages = KeptStorages(access)
        self._cluster_id = cluster_id
        self._threads = ThreadPoolExecutor(REMOVALS_AT_ONCE, thread_name_prefix="removal")
        self._blocking = blocking or self._in_thread
        self._lanes: tuple[asyncio.Queue[Removal], ...] = tuple(asyncio.Queue() for _ in range(REMOVALS_AT_ONCE))
        self._away_until: dict[ExperimentId, float] = {}
        self._reported_away: set[ExperimentId] = set()
        self._keeping = CheckpointKeeping(engine, store)
        engine.on_commit(self._take)

    def _take(self, change: Change) -> None:
        for effect in change.outbox_added:
            if isinstance(effect, Removal):
                self._lane_of(effect).put_nowait(effect)

    def _lane_of(self, effect: Removal) -> asyncio.Queue[Removal]:
        """Removals from one checkpoint are in one lane, and so in their order."""
        about = effect.uuid if isinstance(effect, RemoveCheckpoint | RemoveFiles) else effect.key
        return self._lanes[zlib.crc32(about.encode()) % len(self._lanes)]

    async def run(self) -> None:
        for effect in self._engine.outstanding():
            if isinstance(effect, Removal):
                self._lane_of(effect).put_nowait(effect)
        try:
            async with asyncio.TaskGroup() as all_of_them:
                for lane in self._lanes:
                    all_of_them.create_task(self._remove_in_order(lane))
                all_of_them.create_task(self._review_running())
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, action: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, action, *args)

    async def _review_running(self) -> None:
        while True:
            await asyncio.sleep(REVIEW_S)
            try:
                await self._keeping.review_new()
            except Exception as error:  # the next checkpoint has it looked at again
                log.warning("checkpoints are not reviewed: %s: %s", type(error).__name__, error)

    async def _remove_in_order(self, lane: asyncio.Queue[Removal]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            effect = await lane.get()
            if effect.key not in self._engine.state.outbox:
                continue  # it was ordered twice, and is done
            away_until = self._away_until.get(effect.experiment, 0.0)
            if loop.time() < away_until:
                loop.call_at(away_until, lane.put_nowait, effect)
                continue
            try:
                await self._carry_out(effect)
            except Exception as error:  # the files are a task's: nothing in them may end the master
                log.warning("%s is not done yet: %s: %s", effect.key, type(error).__name__, error)
                # Away, or denied to the master: the others of the experiment would fail as well, and fill the log. They come
                # before this one then, so that a single object that cannot be removed does not keep them for ever.
                if isinstance(error, StorageUnavailable):
                    self._away_until[effect.experiment] = loop.time() + RETRY_S
                    await self._report_unavailable(effect, error)
                loop.call_later(RETRY_S, lane.put_nowait, effect)
            else:
                self._away_until.pop(effect.experiment, None)
                self._reported_away.discard(effect.experiment)

    async def _report_unavailable(self, effect: Removal, error: StorageUnavailable) -> None:
        """Reports an unavailable storage in the trial's log, once until the storage of the experiment is available again."""
        if not isinstance(effect, RemoveCheckpoint | RemoveFiles) or effect.experiment in self._reported_away:
            return
        self._reported_away.add(effect.experiment)
        problem = f"{error} It is tried again every {RETRY_S:g} s."
        try:
            await self._engine.submit(ReportRemovalWaits(uuid=effect.uuid, problem=problem))
        except ResoluteError as refused:
            log.warning("the log of the trial does not have it: %s", refused)

    async def _carry_out(self, effect: Removal) -> None:
        match effect:
            case RemoveCheckpoint():
                await self._blocking(self._delete, await self._storage(effect.experiment), effect.uuid)
                await self._engine.submit(SetCheckpointResources(uuid=effect.uuid, resources={}))
            case RemoveFiles():
                storage = await self._storage(effect.experiment)
                left = await self._blocking(self._remove_matching, storage, effect)
                await self._engine.submit(SetCheckpointResources(uuid=effect.uuid, resources=left, order=effect.key))
            case RemoveTensorboardFiles():
                written = f"{self._cluster_id}/tensorboard/experiment/{effect.experiment}"
                try:
                    await self._blocking(self._remove_below, effect.storage, written)
                except NotMounted:
                    if effect.has_saved:
                        raise
                await self._engine.submit(RecordRemovedTensorboards(removed_from=effect.experiment))
            case ReviewCheckpoints():
                await self._keeping.carry_out(effect)

    async def _storage(self, experiment: ExperimentId) -> Mapping[str, Any] | None:
        """The storage of an experiment; None for an experiment that the store does not contain any more."""
        found = self._engine.state.get(Experiment, experiment) or await self._store.experiment(experiment)
        return None if found is None else found.config.get("checkpoint_storage")

    def _delete(self, storage: Mapping[str, Any] | None, uuid: str) -> None:
        if storage:
            self._storages.storage(storage).delete(uuid)

    def _remove_below(self, storage: Mapping[str, Any], path: str) -> None:
        if storage:
            self._storages.storage(storage).remove_below(path)

    def _remove_matching(self, storage: Mapping[str, Any] | None, effect: RemoveFiles) -> dict[str, int]:
        if not storage:
            return {}
        matchers = [matcher(glob) for glob in effect.globs]
        return self._storages.storage(storage).remove_files(
            effect.uuid, lambda path: any(matches(path) for matches in matchers)
        )
