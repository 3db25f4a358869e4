"""Checkpoints and their files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from resolute.client.archive import DamagedArchive, check_files, extract, refuse_occupied
from resolute.client.paging import segment
from resolute.client.resumed import fetch_archive
from resolute.client.session import Progress, Session
from resolute.errors import FailedPrecondition, InvalidInput, NotFound
from resolute.storage import (
    CheckpointStorage,
    FileKind,
    OpenCheckpoint,
    StorageUnavailable,
    StoredFile,
    storage_from_config,
)
from resolute.storage.manifest import checked_path
from resolute.storage.retries import Retries
from resolute.storage.verified import Verified, verified
from resolute.wire.rest.checkpoints import (
    Checkpoint,
    CheckpointsRemoveFilesRequest,
    DeleteCheckpointsRequest,
    GetCheckpointResponse,
)
from resolute.wire.rest.empty import Empty
from resolute.wire.rest.enums import WireCheckpointState

Mode = Literal["auto", "direct", "master"]

MASK = "********"
"""The value that the master shows instead of a secret."""

RETRY_LIMIT_S = 20.0
"""Retries while a store does not answer. They are few, because a user waits."""

_PIECE = 1024 * 1024

_DOWNLOADABLE = (WireCheckpointState.COMPLETED, WireCheckpointState.PARTIALLY_DELETED)


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Calls about checkpoints."""

    session: Session

    def get(self, uuid: str) -> Checkpoint:
        return self.session.get(f"api/v1/checkpoints/{segment(uuid)}", GetCheckpointResponse).checkpoint

    def delete(self, uuids: tuple[str, ...]) -> None:
        """Begins the deletion; it continues after the answer."""
        self.session.delete("api/v1/checkpoints", Empty, DeleteCheckpointsRequest(checkpoint_uuids=uuids))

    def remove_files(self, uuids: tuple[str, ...], globs: tuple[str, ...]) -> None:
        """Begins the removal of the files that match; without patterns, only the list of files is read again."""
        request = CheckpointsRemoveFilesRequest(checkpoint_uuids=uuids, checkpoint_globs=globs)
        self.session.post("api/v1/checkpoints/rm", Empty, request)

    def download(self, uuid: str, target: Path, *, mode: Mode = "auto", progress: Progress | None = None) -> Path:
        """Fetches the files of a checkpoint into the new directory `target`, complete or not at all.

        `direct` copies from the storage, where this machine can see it; `master` requests an archive from the master; `auto`
        tries the first and falls back to the second. `progress` is called with the received bytes. After a lost connection or a
        kill, the next call continues.
        """
        checkpoint = self.get(uuid)
        if checkpoint.state not in _DOWNLOADABLE:
            state = checkpoint.state.value.removeprefix("STATE_")
            raise FailedPrecondition(f"checkpoint '{uuid}' is {state}; only a COMPLETED one can be downloaded")
        refuse_occupied(target)
        if mode != "master" and self._copied(checkpoint, target, mode, progress):
            return target
        archive = fetch_archive(self.session, f"checkpoints/{segment(uuid)}", target, progress)
        try:
            with open(archive, "rb") as file:
                extract(file, target, expected=checkpoint.resources)
        except DamagedArchive:
            archive.unlink()
            raise
        archive.unlink()
        return target

    def verify(self, uuid: str, *, progress: Progress | None = None) -> Verified:
        """Compares the files of a checkpoint, where this machine can see them, with what was saved.

        Raises `CorruptCheckpoint` naming the first difference, `InvalidInput` where the storage cannot be seen from here.
        """
        checkpoint = self.get(uuid)
        if checkpoint.state not in _DOWNLOADABLE:
            state = checkpoint.state.value.removeprefix("STATE_")
            raise FailedPrecondition(f"checkpoint '{uuid}' is {state}; only a COMPLETED one has files to verify")
        try:
            return verified(storage_of(checkpoint), uuid, checkpoint.resources, progress)
        except StorageUnavailable as error:
            raise InvalidInput(f"checkpoint '{uuid}' cannot be verified from this machine: {error}") from None

    def _copied(self, checkpoint: Checkpoint, target: Path, mode: Mode, progress: Progress | None) -> bool:
        """Whether the storage can be read from this machine. False if it cannot and `mode` leaves the choice."""
        try:
            stored = storage_of(checkpoint).open(checkpoint.uuid)
        except (StorageUnavailable, NotFound, InvalidInput, OSError) as error:
            if mode == "direct":
                raise InvalidInput(
                    f"checkpoint '{checkpoint.uuid}' is in a storage that this machine cannot see ({error}); use --mode master"
                ) from None
            return False
        with stored:
            copy(stored, target, checkpoint.resources, progress)
        return True


def storage_of(checkpoint: Checkpoint) -> CheckpointStorage:
    """The storage of the checkpoint on this machine. For keys that the master does not show, the machine's own identity is used."""
    config = (checkpoint.training.experiment_config or {}).get("checkpoint_storage") or {}
    shown = {key: value for key, value in config.items() if value != MASK}
    return storage_from_config(shown, shared_fs_mount=None, retries=Retries(total_s=RETRY_LIMIT_S))


def copy(stored: OpenCheckpoint, target: Path, expected: Mapping[str, int], progress: Progress | None) -> None:
    """The files of a checkpoint into the new directory `target`, complete or not at all.

    After an error, the received part stays beside `target`, and the next call continues from there. Raises
    `DamagedArchive` when a file is not as long as `expected` says (path -> bytes).
    """
    total, done = sum(expected.values()), 0
    partial = target.with_name(f".{target.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    for file in stored.files():
        here = partial / checked_path(file.path)
        if file.kind is FileKind.DIRECTORY:
            here.mkdir(parents=True, exist_ok=True)
        elif file.kind is FileKind.FILE:
            here.parent.mkdir(parents=True, exist_ok=True)
            for written in _written(stored, file, here):
                done += written
                if progress is not None:
                    progress(min(done, total), total)
    check_files(partial, expected)
    if target.is_dir():
        target.rmdir()
    partial.rename(target)


def _written(stored: OpenCheckpoint, file: StoredFile, here: Path) -> Iterator[int]:
    """Copies files; yields the number of bytes of each piece. A file that exists and is as old as the stored one is skipped."""
    if here.is_file() and (here.stat().st_size, here.stat().st_mtime) == (file.size, file.modified):
        yield file.size
        return
    arriving = here.with_name(f"{here.name}.arriving")
    stream, _ = stored.open(file)
    with stream, open(arriving, "wb") as out:
        while piece := stream.read(_PIECE):
            yield out.write(piece)
    os.utime(arriving, (file.modified, file.modified))
    arriving.replace(here)
