"""The port of object stores for checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """`size` in bytes, `modified` in seconds since 1970 by the store's clock."""

    key: str
    size: int
    modified: float


class Bucket(Protocol):
    """Objects under keys: no directories, no renames, each object there as a whole or not at all.

    May be called from several threads. Each call is one attempt: it raises `StorageAway` where the same call may succeed later and
    `StorageUnavailable` if an operator must act first, with the bucket, the identity and the missing permission.
    """

    place: str
    """Address for messages, such as `s3://bucket`."""

    deletes_at_once: int
    """Keys of one `delete`, at most."""

    def put(self, key: str, content: bytes, *, new: bool = False) -> None:
        """Store a small object. With `new`, raises `AlreadyExists` when there is one of that key, and stores nothing."""
        ...

    def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Bytes of an object; those behind its end are left out. Raises `NotFound`."""
        ...

    def upload(self, key: str, path: Path) -> None:
        """Store a file of any size, in parts where it is large."""
        ...

    def download(self, key: str, path: Path) -> None:
        """Fetch an object into a file. Raises `NotFound`."""
        ...

    def page(self, prefix: str, after: str | None = None) -> tuple[Sequence[StoredObject], str | None]:
        """Some of the objects whose keys begin with `prefix`, in the order of keys, and the value of `after` for the next page;
        None at the end."""
        ...

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects. A missing one is success."""
        ...

    def drop_unfinished(self, prefix: str) -> None:
        """Delete the parts of unfinished uploads, where the store does not do so by itself."""
        ...
