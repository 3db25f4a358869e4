"""Opens the checkpoint storage of an experiment for the master.

Experiments name their storage and tasks write to it. Below the named directory, the master follows no link and reads no file of
another owner (`resolute.beneath`). The master's own files are never a storage, whatever name leads to them.
"""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from resolute.beneath import Beneath, LeadsOut
from resolute.errors import FailedPrecondition, InvalidInput
from resolute.host_paths import HostPathRules
from resolute.storage import CheckpointStorage, storage_from_config
from resolute.storage.retries import Retries

RETRY_LIMIT_S = 20.0
"""Time for which requests to an unavailable storage are retried, for a caller that retries later."""

KEPT_STORAGES = 32
"""Storages that stay open, each with its connections. Experiments of a cluster name few storages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageAccess:
    """Opens storages for the master. Its own files are no storage, whatever path leads to them."""

    rules: HostPathRules

    def storage(self, config: Mapping[str, Any], *, retries: Retries | None = None) -> CheckpointStorage:
        """The storage of a `checkpoint_storage`. Blocking, as its methods are: a client looks for the machine's identity.

        Raises `FailedPrecondition` for one that names no usable place; the storage's methods raise `LeadsOut` for a directory that
        is the master's own or leads through a link.
        """
        try:
            return storage_from_config(config, shared_fs_mount=None, one_owner=True, check=self._check, retries=retries)
        except InvalidInput as error:
            raise FailedPrecondition(str(error)) from None

    def _check(self, root: Beneath) -> None:
        """Checks the directory that is open. Its name may mean another directory by now."""
        if problem := self.rules.why_not_state(_real(root)):
            raise LeadsOut(f"checkpoint_storage: {problem}")


class KeptStorages:
    """Storages that stay open, for a caller that uses the same ones again and again and repeats what fails: a client of an object
    store takes as long to make as some removals. Its methods may be called from several threads.
    """

    def __init__(self, access: StorageAccess) -> None:
        self._access = access
        self._kept: OrderedDict[str, CheckpointStorage] = OrderedDict()
        self._guard = threading.Lock()

    def storage(self, config: Mapping[str, Any]) -> CheckpointStorage:
        """As `StorageAccess.storage`."""
        place = json.dumps(
            {key: value for key, value in config.items() if not key.startswith("save_")}, sort_keys=True, default=str
        )
        with self._guard:
            if place not in self._kept:
                self._kept[place] = self._access.storage(config, retries=Retries(total_s=RETRY_LIMIT_S))
                if len(self._kept) > KEPT_STORAGES:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(place)
            return self._kept[place]


def _real(directory: Beneath) -> str:
    by_descriptor = f"/proc/self/fd/{directory.fileno()}"
    return os.readlink(by_descriptor) if os.path.lexists(by_descriptor) else os.path.realpath(directory.path)
