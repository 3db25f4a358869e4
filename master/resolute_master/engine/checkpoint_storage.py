"""How the master opens the checkpoint storage of an experiment.

Experiments name their storage and tasks write to it: below a directory that is named, no link is followed and no file of another
owner is read (`resolute.beneath`). The master's own files are no storage, whatever name leads to them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from resolute.beneath import Beneath, LeadsOut
from resolute.errors import FailedPrecondition, InvalidInput
from resolute.host_paths import HostPathRules
from resolute.storage import CheckpointStorage, storage_from_config


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageAccess:
    """What the master may open: its own files are no storage, whatever path leads to them."""

    rules: HostPathRules

    def storage(self, config: Mapping[str, Any]) -> CheckpointStorage:
        """The storage of a `checkpoint_storage`. Blocking, as its methods are: a client looks for the machine's identity.

        Raises `FailedPrecondition` for one that names no usable place; the storage's methods raise `LeadsOut` for a directory that
        is the master's own or leads through a link.
        """
        try:
            return storage_from_config(config, shared_fs_mount=None, one_owner=True, check=self._check)
        except InvalidInput as error:
            raise FailedPrecondition(str(error)) from None

    def _check(self, root: Beneath) -> None:
        """By the directory that is open, not by its name, which may mean another one by now."""
        if problem := self.rules.why_not_state(_real(root)):
            raise LeadsOut(f"checkpoint_storage: {problem}")


def _real(directory: Beneath) -> str:
    by_descriptor = f"/proc/self/fd/{directory.fileno()}"
    return os.readlink(by_descriptor) if os.path.lexists(by_descriptor) else os.path.realpath(directory.path)
