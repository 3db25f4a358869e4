"""Checkpoints and their files."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from resolute.client.archive import check_files, extract, refuse_occupied, whole_directory
from resolute.client.paging import segment
from resolute.client.session import Progress, Session
from resolute.errors import FailedPrecondition, InvalidInput
from resolute.wire.rest.checkpoints import Checkpoint, DeleteCheckpointsRequest, GetCheckpointResponse
from resolute.wire.rest.empty import Empty
from resolute.wire.rest.enums import WireCheckpointState

Mode = Literal["auto", "direct", "master"]

_DOWNLOADABLE = (WireCheckpointState.COMPLETED, WireCheckpointState.PARTIALLY_DELETED)


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Calls about checkpoints."""

    session: Session

    def get(self, uuid: str) -> Checkpoint:
        return self.session.get(f"api/v1/checkpoints/{segment(uuid)}", GetCheckpointResponse).checkpoint

    def delete(self, uuids: tuple[str, ...]) -> None:
        """Begins the deletion; it goes on after the answer."""
        self.session.delete("api/v1/checkpoints", Empty, DeleteCheckpointsRequest(checkpoint_uuids=uuids))

    def download(self, uuid: str, target: Path, *, mode: Mode = "auto", progress: Progress | None = None) -> Path:
        """Fetches the files of a checkpoint into the new directory `target`, complete or not at all.

        `direct` copies from the storage, where this machine can see it; `master` asks the master for an archive; `auto`
        tries the first and falls back to the second. `progress` hears of the bytes that arrived from the master.
        """
        checkpoint = self.get(uuid)
        if checkpoint.state not in _DOWNLOADABLE:
            state = checkpoint.state.value.removeprefix("STATE_")
            raise FailedPrecondition(f"checkpoint '{uuid}' is {state}; only a COMPLETED one can be downloaded")
        refuse_occupied(target)
        stored = stored_at(checkpoint)
        if mode == "direct" and stored is None:
            raise InvalidInput(f"checkpoint '{uuid}' is in a storage that this machine cannot see; use --mode master")
        if stored is not None and mode != "master":
            _copy(stored, target, checkpoint.resources)
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=target.parent) as archive:
            self.session.download(f"checkpoints/{segment(uuid)}", archive.write, progress)
            archive.seek(0)
            extract(archive, target, expected=checkpoint.resources)
        return target


def stored_at(checkpoint: Checkpoint) -> Path | None:
    """The directory of the checkpoint in a shared storage, when it is visible here."""
    config = checkpoint.training.experiment_config or {}
    storage = config.get("checkpoint_storage") or {}
    if storage.get("type") == "shared_fs" and storage.get("host_path"):
        base = Path(storage["host_path"], storage.get("storage_path") or "")
    elif storage.get("type") == "directory" and storage.get("container_path"):
        base = Path(storage["container_path"])
    else:
        return None
    directory = base / checkpoint.uuid
    return directory if directory.is_dir() else None


def _no_files(directory: str, names: Iterable[str]) -> set[str]:
    """Links and what is no file: the master's archive leaves them out as well."""
    modes = {name: os.stat(os.path.join(directory, name), follow_symlinks=False).st_mode for name in names}
    return {name for name, mode in modes.items() if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))}


def _copy(stored: Path, target: Path, expected: Mapping[str, int]) -> None:
    with whole_directory(target) as partial:
        shutil.copytree(stored, partial, ignore=_no_files)
        check_files(partial, expected)
