"""The contract of checkpoint storage."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Protocol

from resolute.errors import ResoluteError


class StorageUnavailable(ResoluteError):
    """The storage cannot be used; the text names the place and what to do."""


class CheckpointStorage(Protocol):
    """Keeps checkpoints, each a set of files under a uuid that appears all at once or not at all.

    Life of a checkpoint: `stage` gives a directory to write to; `put` hands over staged files (from any process that
    sees the same storage); `commit` publishes with the manifest. A process killed anywhere before the end of
    `commit` leaves nothing that `manifest`, `restore` or `list` show. Files are durable when `commit` returns.
    """

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
        """Publish. A second commit of the same uuid raises `AlreadyExists`."""
        ...

    def abort(self, uuid: str) -> None:
        """Drop everything that was staged or put. Nothing there is success."""
        ...

    def manifest(self, uuid: str) -> bytes:
        """The manifest of a committed checkpoint. Raises `NotFound`."""
        ...

    def restore(self, uuid: str) -> AbstractContextManager[Path]:
        """The files, to be read and not changed, while the context is open. Raises `NotFound`."""
        ...

    def delete(self, uuid: str) -> None:
        """Remove a checkpoint, its manifest first. Already gone is success."""
        ...

    def list(self) -> tuple[str, ...]:
        """The uuids of all committed checkpoints, sorted."""
        ...

    def unreported(self) -> tuple[str, ...]:
        """Sorted uuids of those whose `commit` was begun and of which nobody has said `reported`.

        Their writers may live, or have died between the files and the word to the master.
        """
        ...

    def reported(self, uuid: str) -> None:
        """The master knows the checkpoint. Unknown, or known already, is success."""
        ...

    def sweep(self, older_than: datetime) -> tuple[str, ...]:
        """Remove unfinished checkpoints last touched before that time, and name them."""
        ...
