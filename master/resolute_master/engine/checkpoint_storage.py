"""Where this machine finds the files of an experiment, and the one way in which the master opens them.

Experiments name their storage and tasks write to it: below the directory that is named, no link is followed and no file of another
owner is read (`resolute.storage.beneath`). The master's own files are no storage, whatever name leads to them.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resolute.errors import FailedPrecondition, InvalidInput
from resolute.host_paths import HostPathRules
from resolute.storage.beneath import Beneath, LeadsOut, parts_of


@dataclass(frozen=True, slots=True, kw_only=True)
class StoragePlace:
    """A storage on this machine: the directory that is named, and the path below it (relative, may be empty)."""

    root: Path
    below: str

    @property
    def path(self) -> Path:
        """For messages."""
        return self.root / self.below


def storage_place(storage: Mapping[str, Any]) -> StoragePlace | None:
    """None for storage that is not a file system. Raises `InvalidInput` for a path that leads out of its root."""
    match storage.get("type"):
        case "directory":
            return StoragePlace(root=Path(str(storage["container_path"])), below="")
        case "shared_fs":
            host = posixpath.normpath(str(storage["host_path"]))
            below = posixpath.normpath(str(storage.get("storage_path") or "."))
            if below.startswith("/"):
                below = posixpath.relpath(below, host)
            return StoragePlace(root=Path(host), below="/".join(parts_of(below)))
        case _:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageAccess:
    """What the master may open: its own files are no storage, whatever path leads to them."""

    rules: HostPathRules

    def open(self, storage: Mapping[str, Any]) -> Beneath | None:
        """The storage's directory; None when it is not a file system. Blocking; the caller closes it.

        Raises `FileNotFoundError` when it is not there, `LeadsOut` when it is the master's own or leads through a link.
        """
        place = storage_place(storage)
        if place is None:
            return None
        with Beneath.at(place.root, one_owner=True) as root:
            self._check(root)
            return root.directory(place.below)

    def _check(self, root: Beneath) -> None:
        """By the directory that is open, not by its name, which may mean another one by now."""
        if problem := self.rules.why_not_state(_real(root)):
            raise LeadsOut(f"checkpoint_storage: {problem}")


def _real(directory: Beneath) -> str:
    by_descriptor = f"/proc/self/fd/{directory.fileno()}"
    return os.readlink(by_descriptor) if os.path.lexists(by_descriptor) else os.path.realpath(directory.path)


def reachable(storage: Mapping[str, Any]) -> StoragePlace:
    """The place of a storage that is to be read here. Raises `FailedPrecondition` for another kind."""
    try:
        place = storage_place(storage)
    except InvalidInput as error:
        raise FailedPrecondition(f"checkpoint_storage: {error}") from None
    if place is None:
        raise FailedPrecondition(
            f"checkpoint storage of type {storage['type']} cannot be downloaded through the master yet"
        )
    return place
