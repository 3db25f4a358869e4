"""Saving and restoring checkpoints: staged, hashed, published with a manifest, then reported to the master.

The order of a save is what makes it safe: metadata is checked before a byte is written, files are durable before the
manifest, the manifest before the name; the metrics reported so far are stored before the master gets the
checkpoint, because a run that resumes from it will not report them again.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from resolute.clock import Clock
from resolute.core.distributed import DistributedContext
from resolute.core.merge import Contribution, agree
from resolute.core.sender import monotonic
from resolute.core.session import MissingAtMaster, Session, StaleRun
from resolute.core.train import TrainContext
from resolute.core.values import encodable, rfc3339
from resolute.errors import FailedPrecondition, InvalidInput, NotFound, ResoluteError
from resolute.ids import IdSource
from resolute.storage.base import CheckpointStorage, Selector, StorageUnavailable
from resolute.storage.manifest import (
    MANIFEST_NAME,
    CorruptCheckpoint,
    FileEntry,
    Manifest,
    Verify,
    describe_file,
    files_below,
    only_about,
    resources,
    verify,
    verify_sizes,
)
from resolute.task_info import TaskInfo

logger = logging.getLogger("resolute.core.checkpoint")

METADATA_NAME = "metadata.json"
CODE_DIRECTORY = "code"
CONFIG_NAME = "trial_config.json"
RESERVED_NAMES = (MANIFEST_NAME, METADATA_NAME)
ABANDONED_AFTER = timedelta(hours=24)
"""Time after which an unchanged unfinished checkpoint counts as abandoned by its writer."""


class DownloadMode(Enum):
    """Whether the ranks of a job restore together."""

    LocalWorkersShareDownload = "LOCAL_WORKERS_SHARE_DOWNLOAD"
    """All ranks call in step; the chief checks the files for all ranks."""
    NoSharedDownload = "NO_SHARED_DOWNLOAD"
    """Each rank restores and checks for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Metadata of every checkpoint of a run: its writer, code and configuration."""

    trial_id: int | None = None
    trial_run_id: int | None = None
    code: Path | None = None
    config: Mapping[str, Any] | None = None


class Registry(Protocol):
    """A registry to which checkpoints are reported."""

    def report(self, manifest: Manifest, metadata: Mapping[str, Any], files: Mapping[str, int]) -> None: ...

    def knows(self, uuid: str) -> bool: ...

    def metadata(self, uuid: str) -> dict[str, Any]: ...

    def files(self, uuid: str) -> Mapping[str, int] | None:
        """Path -> bytes of a checkpoint that is whole; None for one that is not known."""
        ...

    def forget(self, uuid: str) -> None: ...

    def candidates(self) -> tuple[str, ...]: ...


class CheckpointContext:
    """Checkpoints of one run, on any storage, reported to any registry."""

    def __init__(
        self,
        *,
        storage: CheckpointStorage,
        registry: Registry,
        distributed: DistributedContext,
        train: TrainContext,
        clock: Clock,
        ids: IdSource,
        origin: Origin,
        parent: str | None = None,
        verify_mode: Verify = Verify.FULL,
    ) -> None:
        self.storage = storage
        self._registry = registry
        self._distributed = distributed
        self._train = train
        self._clock = clock
        self._ids = ids
        self._origin = origin
        self._parent = parent
        self._verify_mode = verify_mode

    def upload(
        self,
        ckpt_dir: str | Path | None,
        metadata: Mapping[str, Any] | None = None,
        *,
        shard: bool = False,
        selector: Selector | None = None,
    ) -> str:
        """Save the files of a directory and return the checkpoint's uuid.

        `metadata` must contain `steps_completed`. With `shard`, every rank calls with its own directory or None; without, only
        the chief does. `selector(relative path)` selects the files.
        """
        if selector is not None and ckpt_dir is None:
            raise InvalidInput("a selector needs a directory to select from")
        if ckpt_dir is not None and not Path(ckpt_dir).is_dir():
            raise InvalidInput(f"the checkpoint directory {str(ckpt_dir)!r} does not exist")
        self._check_none_or_all(ckpt_dir, shard)
        with self.store_path(metadata, shard=shard) as (path, uuid):
            if ckpt_dir is not None:
                _copy_selected(Path(ckpt_dir), path, selector)
        return uuid

    @contextmanager
    def store_path(
        self, metadata: Mapping[str, Any] | None = None, *, shard: bool = False
    ) -> Iterator[tuple[Path, str]]:
        """Yield (an empty directory to write to, the checkpoint's uuid); leaving the context saves and reports.

        With `shard`, every rank enters, writes files of its own into its own directory, and leaves; the files are
        merged. A name written by several ranks must have the same content. An exception inside saves nothing.
        """
        started = monotonic()
        wanted = _checked_metadata(metadata)
        if not shard and self._distributed.rank != 0:
            raise FailedPrecondition("without shard=True only the chief (rank 0) saves checkpoints")
        together = shard and self._distributed.size > 1
        uuid = self._distributed.broadcast(self._ids.uuid()) if together else self._ids.uuid()
        part = f"rank-{self._distributed.rank}"
        staged = self.storage.stage(uuid, part)
        try:
            yield staged, uuid
            self._save(uuid, part, staged, wanted, together)
        except BaseException:
            if not together:
                self.storage.abort(uuid)  # of a shared save, others may still be writing: the sweep removes it
            raise
        finally:
            self._train.add_blocked_by_save(monotonic() - started)

    @contextmanager
    def restore_path(
        self,
        storage_id: str,
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Selector | None = None,
    ) -> Iterator[Path]:
        """Yield a directory with the files of a checkpoint, verified; read them, do not change them.

        Raises `NotFound`, or `CorruptCheckpoint` naming what is wrong. `selector` limits what is verified.
        """
        if download_mode is DownloadMode.NoSharedDownload or self._distributed.size == 1:
            with self._restored(storage_id, selector, checking=True) as path:
                yield path
            return
        with ExitStack() as stack:
            here: str | None = None
            problem: dict[str, Any] | None = None
            if self._distributed.local_rank == 0:
                # A copy of a machine's own is checked there; the files themselves are the same for all machines.
                checking = self._distributed.rank == 0 or not self.storage.direct
                try:
                    here = str(stack.enter_context(self._restored(storage_id, selector, checking=checking)))
                except Exception as error:
                    problem = _error_fields(error)
            problems = [each for each in self._distributed.allgather(problem) if each is not None]
            if problems:
                raise _error_of(storage_id, problems[0])
            yield Path(self._distributed.broadcast_local(here))
            if not self.storage.direct:
                self._distributed.allgather_local(None)  # another rank may still read the copy

    def download(
        self,
        storage_id: str,
        ckpt_dir: str | Path,
        download_mode: DownloadMode = DownloadMode.LocalWorkersShareDownload,
        *,
        selector: Selector | None = None,
    ) -> None:
        """Copy a verified checkpoint's files into a directory."""
        with self.restore_path(storage_id, download_mode, selector=selector) as path:
            if download_mode is DownloadMode.NoSharedDownload or self._distributed.local_rank == 0:
                target = Path(ckpt_dir)
                target.mkdir(parents=True, exist_ok=True)
                _copy_selected(path, target, selector)
            if download_mode is DownloadMode.LocalWorkersShareDownload:
                self._distributed.barrier()

    def get_metadata(self, storage_id: str) -> dict[str, Any]:
        """The metadata with which the checkpoint was saved, from the master (off-cluster: from the storage)."""
        return self._registry.metadata(storage_id)

    def manifest(self, storage_id: str) -> Manifest:
        """What a stored checkpoint consists of. Raises `NotFound` or `CorruptCheckpoint`."""
        return Manifest.from_bytes(storage_id, self.storage.manifest(storage_id))

    def delete(self, storage_id: str) -> None:
        """Remove the files, then update the registry."""
        self.storage.delete(storage_id)
        self._registry.forget(storage_id)

    def earlier(self, storage_id: str) -> tuple[str, ...]:
        """Checkpoints of this trial to fall back on when `storage_id` is corrupt, the most advanced first."""
        known = self._registry.candidates()
        behind = known[known.index(storage_id) + 1 :] if storage_id in known else known
        return tuple(uuid for uuid in behind if uuid != storage_id)

    def sweep_abandoned(self) -> None:
        """Remove the remains of writers: unfinished checkpoints of writers that died long ago, and finished ones that were never
        reported to the master.
        """
        self._sweep_unreported()
        removed = self.storage.sweep(self._clock.now() - ABANDONED_AFTER)
        if removed:
            logger.info("removed %d unfinished checkpoints: %s", len(removed), ", ".join(removed))

    def _sweep_unreported(self) -> None:
        """Finished checkpoints of runs that have ended. The master either has them by now, or will never get them."""
        for uuid in self.storage.unreported():
            try:
                manifest = self.manifest(uuid)
            except (NotFound, CorruptCheckpoint):
                continue  # about to be published, or what is left of that: the sweep of unfinished ones takes it
            if not self._is_over(manifest):
                continue
            if self._registry.knows(uuid):
                self.storage.reported(uuid)
            else:
                logger.info(
                    "removing checkpoint %s of step %d: its run ended before it was reported",
                    uuid,
                    manifest.steps_completed,
                )
                self._delete_if_possible(uuid)

    def _delete_if_possible(self, uuid: str) -> None:
        """Removes one checkpoint. Files that stay are removed by a later sweep, or belong to another user."""
        try:
            self.storage.delete(uuid)
        except (OSError, FailedPrecondition, StorageUnavailable) as error:
            logger.warning("checkpoint %s is not removed: %s", uuid, error)

    def _is_over(self, manifest: Manifest) -> bool:
        """Whether its writer can report nothing any more: it was an earlier run of this trial, or one of long ago."""
        own, run = self._origin.trial_id, self._origin.trial_run_id
        if own is not None and run is not None and manifest.trial_id == own and manifest.trial_run_id is not None:
            return manifest.trial_run_id < run
        return datetime.fromisoformat(manifest.created) < self._clock.now() - ABANDONED_AFTER

    def started_from(self, storage_id: str) -> None:
        """Set the checkpoint that this run continues: the parent of the next one."""
        self._parent = storage_id

    # ------------------------------------------------------------------------------------------------- internals

    def _save(self, uuid: str, part: str, staged: Path, metadata: dict[str, Any], together: bool) -> None:
        chief = self._distributed.rank == 0
        contribution = self._contribution(staged, metadata)
        if together:
            outcome = agree(self._distributed, contribution)
            files, metadata, mine = outcome.files, outcome.metadata, outcome.mine
        else:
            files, mine = dict(contribution.files), tuple(contribution.files)
        error = _attempt(lambda: self.storage.put(uuid, part, mine))
        if together:
            errors = [text for text in self._distributed.allgather(None if error is None else str(error)) if text]
            if errors and error is None:
                error = ResoluteError(f"another rank could not store its part of checkpoint {uuid}: {errors[0]}")
        if error is not None:
            raise error
        if chief:
            error = _attempt(lambda: self._publish(uuid, files, metadata))
        if together:
            text = self._distributed.broadcast(None if error is None else str(error))
            if text and error is None:
                error = ResoluteError(f"the chief could not publish checkpoint {uuid}: {text}")
        if error is not None:
            raise error
        self._parent = uuid

    def _contribution(self, staged: Path, metadata: dict[str, Any]) -> Contribution:
        for name in RESERVED_NAMES:
            if (staged / name).exists():
                raise InvalidInput(f"a checkpoint must not contain a file named {name}")
        if self._distributed.rank == 0:
            self._add_origin(staged)
        files = {name: describe_file(path) for name, path in files_below(staged).items()}
        return Contribution(files=files, metadata=metadata)

    def _add_origin(self, staged: Path) -> None:
        code = self._origin.code
        if code is not None and code.is_dir() and not (staged / CODE_DIRECTORY).exists():
            shutil.copytree(code, staged / CODE_DIRECTORY, ignore=shutil.ignore_patterns("__pycache__"))
        if self._origin.config is not None and not (staged / CONFIG_NAME).exists():
            (staged / CONFIG_NAME).write_text(json.dumps(self._origin.config, indent=2))

    def _publish(self, uuid: str, files: dict[str, FileEntry], metadata: dict[str, Any]) -> None:
        staged = self.storage.stage(uuid, "metadata")
        path = staged / METADATA_NAME
        path.write_text(json.dumps(metadata, indent=2))
        files = {**files, METADATA_NAME: describe_file(path)}
        self.storage.put(uuid, "metadata", [METADATA_NAME])
        manifest = Manifest(
            uuid=uuid,
            steps_completed=metadata["steps_completed"],
            trial_id=self._origin.trial_id,
            trial_run_id=self._origin.trial_run_id,
            world_size=self._distributed.size,
            created=rfc3339(self._clock.now()),
            parent=self._parent,
            files=files,
        )
        self._train.flush()
        data = manifest.to_bytes()
        self.storage.commit(uuid, data)
        try:
            self._registry.report(manifest, metadata, resources(manifest, data))
            self.storage.reported(uuid)
        except StaleRun:
            self._delete_if_possible(uuid)  # refused for good: no run will ever resume from it
            raise

    def _check_none_or_all(self, ckpt_dir: str | Path | None, shard: bool) -> None:
        if not shard or self._distributed.size == 1:
            if ckpt_dir is None:
                raise InvalidInput("ckpt_dir is None; name the directory to save")
        elif not any(self._distributed.allgather(ckpt_dir is not None)):
            raise InvalidInput("ckpt_dir is None on every rank; at least one must have files to save")

    @contextmanager
    def _restored(self, uuid: str, selector: Selector | None, *, checking: bool) -> Iterator[Path]:
        """A checkpoint without a manifest was saved by a harness that writes none: the registry lists its files."""
        expected: Mapping[str, int] | None = None
        try:
            self.storage.manifest(uuid)
        except NotFound:
            expected = self._registry.files(uuid)
            if expected is None:
                raise
        with self.storage.restore(uuid, wanted=selector, without_manifest=expected is not None) as path:
            if checking and expected is None:
                manifest = self.manifest(uuid)
                verify(manifest if selector is None else only_about(manifest, selector), path, self._verify_mode)
            elif checking and expected is not None:
                wanted = {name: size for name, size in expected.items() if selector is None or selector(name)}
                verify_sizes(uuid, wanted, path, self._verify_mode)
            yield path


def _error_fields(error: Exception) -> dict[str, Any]:
    """Raises the error of the chief on the other ranks."""
    if isinstance(error, CorruptCheckpoint):
        return {"problem": error.problem, "parent": error.parent}
    return {"missing": isinstance(error, NotFound), "error": str(error)}


def _error_of(uuid: str, problem: Mapping[str, Any]) -> ResoluteError:
    if "problem" in problem:
        return CorruptCheckpoint(uuid, problem["problem"], parent=problem["parent"])
    return NotFound("checkpoint", uuid) if problem["missing"] else ResoluteError(problem["error"])


class MasterRegistry:
    """The registry of checkpoints in the master."""

    def __init__(self, *, session: Session, info: TaskInfo, storage_id: int | None, clock: Clock) -> None:
        self._session = session
        self._info = info
        self._storage_id = storage_id
        self._clock = clock

    def report(self, manifest: Manifest, metadata: Mapping[str, Any], files: Mapping[str, int]) -> None:
        body = {
            "uuid": manifest.uuid,
            "taskId": self._info.task_id,
            "allocationId": self._info.allocation_id,
            "reportTime": rfc3339(self._clock.now()),
            "resources": {path: str(size) for path, size in files.items()},
            "metadata": dict(metadata),
            "state": "STATE_COMPLETED",
            "storageId": self._storage_id,
            "training": {},
        }
        self._session.post("/api/v1/checkpoints", body)

    def knows(self, uuid: str) -> bool:
        try:
            self._session.get(f"/api/v1/checkpoints/{uuid}")
        except MissingAtMaster:
            return False
        return True

    def metadata(self, uuid: str) -> dict[str, Any]:
        return dict(self._session.get(f"/api/v1/checkpoints/{uuid}")["checkpoint"].get("metadata") or {})

    def files(self, uuid: str) -> Mapping[str, int] | None:
        try:
            found = self._session.get(f"/api/v1/checkpoints/{uuid}")["checkpoint"]
        except MissingAtMaster:
            return None
        if found.get("state") not in ("STATE_COMPLETED", "STATE_PARTIALLY_DELETED"):
            return None
        return {path: int(size) for path, size in (found.get("resources") or {}).items()}

    def forget(self, uuid: str) -> None:
        body = {"checkpoints": [{"uuid": uuid, "resources": {"resources": {}}}]}
        self._session.patch("/api/v1/checkpoints", body)

    def candidates(self) -> tuple[str, ...]:
        if self._info.trial is None:
            return ()
        try:
            answer = self._session.get(f"/api/v1/trials/{self._info.trial.trial_id}/checkpoints")
        except MissingAtMaster:
            return ()
        found = [
            (int((entry.get("metadata") or {}).get("steps_completed", 0)), str(entry["uuid"]))
            for entry in answer.get("checkpoints", [])
            if entry.get("state") == "STATE_COMPLETED"
        ]
        return tuple(uuid for _, uuid in sorted(found, reverse=True))


class StorageRegistry:
    """The variant without a master: it reads the storage itself."""

    def __init__(self, storage: CheckpointStorage) -> None:
        self._storage = storage

    def report(self, manifest: Manifest, metadata: Mapping[str, Any], files: Mapping[str, int]) -> None:
        logger.info("saved checkpoint %s at step %d", manifest.uuid, manifest.steps_completed)

    def knows(self, uuid: str) -> bool:
        return uuid in self._storage.list()

    def metadata(self, uuid: str) -> dict[str, Any]:
        with self._storage.restore(uuid, wanted=lambda name: name == METADATA_NAME) as path:
            body: dict[str, Any] = json.loads((path / METADATA_NAME).read_text())
        return body

    def files(self, uuid: str) -> Mapping[str, int] | None:
        return None  # without a manifest there is nothing to list

    def forget(self, uuid: str) -> None:
        """Nothing to do: the storage has already removed it."""

    def candidates(self) -> tuple[str, ...]:
        """All checkpoints of the storage, the most advanced first."""
        found = []
        for uuid in self._storage.list():
            try:
                manifest = Manifest.from_bytes(uuid, self._storage.manifest(uuid))
            except (CorruptCheckpoint, NotFound):
                continue
            found.append((manifest.steps_completed, manifest.created, uuid))
        return tuple(uuid for _, _, uuid in sorted(found, reverse=True))


def _attempt(action: Callable[[], None]) -> Exception | None:
    """Run and return the error, which the other ranks get before it is raised."""
    try:
        action()
    except Exception as error:
        return error
    return None


def _checked_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    kept = dict(metadata or {})
    steps = kept.get("steps_completed")
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise InvalidInput(
            f"metadata must contain steps_completed, a whole number of at least 0; it has {steps!r}. "
            "Nothing was written."
        )
    checked: dict[str, Any] = encodable(kept, "metadata")
    return checked


def _copy_selected(source: Path, target: Path, selector: Selector | None) -> None:
    for name, path in files_below(source).items():
        if name == MANIFEST_NAME or (selector is not None and not selector(name)):
            continue
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
