"""The contract of checkpoint storage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Protocol

from resolute.errors import ResoluteError

Selector = Callable[[str], bool]
"""Whether a path below a checkpoint is wanted."""


class StorageUnavailable(ResoluteError):
    """The storage cannot be used; the text names the place and what to do."""


class StorageAway(StorageUnavailable):
    """The storage does not answer, or asks for a later retry: the same request may succeed then."""


class NotMounted(StorageAway):
    """The directory of a storage is missing, or is as empty as one where a file system is mounted later."""


class FileKind(StrEnum):
    """The kind of a name in a storage."""

    FILE = "file"
    DIRECTORY = "directory"
    OTHER = "other"
    """A link, a device or the like. It is listed and removed, and never opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A name in a checkpoint. `path` is relative, in POSIX form; `size` is in bytes, 0 for all but files; `modified` is in seconds
    since 1970; `mode` are permission bits.
    """

    path: str
    kind: FileKind
    size: int
    modified: float
    mode: int
    source: object = None
    """Data that the storage needs to open the file."""


class OpenCheckpoint(Protocol):
    """The files of one stored checkpoint, open to be read. Close it, or use it as a context."""

    def files(self) -> Iterator[StoredFile]:
        """Everything in the checkpoint, a directory before what is in it."""
        ...

    def open(self, file: StoredFile) -> tuple[BinaryIO, int]:
        """Open a file of `files` as a stream, with its size in bytes. Only while the iteration is at that file."""
        ...

    def check(self) -> None:
        """Find what `open` would refuse, before anything is read. Raises `FailedPrecondition`."""
        ...

    def close(self) -> None:
        """Close the checkpoint. Repeated calls are harmless."""
        ...

    def __enter__(self) -> OpenCheckpoint: ...

    def __exit__(self, *exc: object) -> None: ...


class CheckpointStorage(Protocol):
    """Keeps checkpoints, each a set of files under a uuid that appears all at once or not at all.

    Life of a checkpoint: `stage` gives a directory to write to; `put` hands over staged files (from any process that
    sees the same storage); `commit` publishes with the manifest. A process killed anywhere before the end of
    `commit` leaves nothing that `manifest`, `restore` or `list` show. Files are durable when `commit` returns.

    Checkpoints of a harness that writes no manifests are in the same place. Their whole names are known to the master alone, so
    `open`, `remove_files`, `delete` and, where it is requested, `restore` find them; `list` and `sweep` pass them by.

    Each call blocks. Every one may raise `StorageUnavailable`.
    """

    @property
    def place(self) -> str:
        """The place of the storage, for messages: a path or an address."""
        ...

    @property
    def direct(self) -> bool:
        """Whether `restore` gives the stored files themselves, and not a copy on this machine."""
        ...

    def check_writable(self) -> None:
        """Prove that files can be written, read back and deleted. Raises `StorageUnavailable`."""
        ...

    def stage(self, uuid: str, part: str) -> Path:
        """A new empty directory for one process's files; `part` differs between the processes of a job."""
        ...

    def put(self, uuid: str, part: str, names: Iterable[str]) -> None:
        """Take these files of the staged part into the checkpoint; the others of the part are dropped."""
        ...

    def commit(self, uuid: str, manifest: bytes) -> None:
        """Publish the checkpoint. A second commit of the same uuid raises `AlreadyExists`."""
        ...

    def abort(self, uuid: str) -> None:
        """Drop everything that was staged or put. If there is nothing, it is success."""
        ...

    def manifest(self, uuid: str) -> bytes:
        """The manifest of a committed checkpoint. Raises `NotFound`."""
        ...

    def restore(
        self, uuid: str, *, wanted: Selector | None = None, without_manifest: bool = False
    ) -> AbstractContextManager[Path]:
        """The files, to be read and not changed, while the context is open. Raises `NotFound`.

        `wanted` selects files: a storage that has to download them omits the others. `without_manifest` finds
        checkpoints that have none as well: for callers that have verified that they are complete.
        """
        ...

    def open(self, uuid: str) -> OpenCheckpoint:
        """A checkpoint to be read as streams, with a manifest or without. Raises `NotFound`."""
        ...

    def delete(self, uuid: str) -> None:
        """Remove a checkpoint, its manifest first. A missing one is success. Killed in the middle, it is finished by the sweep.

        Raises `NotMounted` if the whole storage is missing, since its checkpoints still exist.
        """
        ...

    def remove_files(self, uuid: str, matches: Selector) -> dict[str, int]:
        """Remove the files that match, and return the rest: path -> bytes, directories with a slash and 0.

        The manifest is rewritten first, without those files: it never lists a missing file. If no other file is left, the
        manifest is removed too. Raises `NotMounted` as `delete` does.
        """
        ...

    def remove_below(self, path: str) -> None:
        """Remove everything below a path of the storage that holds no checkpoints. Nothing there is success.

        Raises `NotMounted` as `delete` does.
        """
        ...

    def list(self) -> tuple[str, ...]:
        """The uuids of all committed checkpoints, sorted."""
        ...

    def unreported(self) -> tuple[str, ...]:
        """Sorted uuids of those whose `commit` was started and that are not marked by `reported`.

        Their writers may still run, or may have died between the files and the report to the master.
        """
        ...

    def reported(self, uuid: str) -> None:
        """Record that the master has the checkpoint. An unknown one, or one that was recorded already, is success."""
        ...

    def sweep(self, older_than: datetime) -> tuple[str, ...]:
        """Remove unfinished checkpoints last touched before that time, and name them."""
        ...
