"""Checkpoints in a directory of a file system that all machines of a job share."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from resolute.errors import AlreadyExists, InvalidInput, NotFound
from resolute.storage.base import StorageUnavailable
from resolute.storage.beneath import Beneath, LeadsOut
from resolute.storage.manifest import MANIFEST_NAME, checked_path, read_manifest

PARTIAL = ".partial"
UNREPORTED = ".unreported"
_PARTS = ".parts"


class DirectoryStorage:
    """`<root>/<uuid>/` holds a checkpoint; `<root>/<uuid>.partial/` one that is being written; while `<root>/<uuid>.unreported` is
    there, the master may not know of it.

    Files and directories are flushed to disk before the rename that publishes them. What is read or removed is opened below
    the root step by step (`beneath`): others may write there as well.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def check_writable(self) -> None:
        probe = self.root / f".writable-{os.getpid()}"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            probe.write_bytes(b"resolute")
            if probe.read_bytes() != b"resolute":
                raise OSError("a file that was just written reads back differently")
            probe.unlink()
        except OSError as error:
            raise StorageUnavailable(
                f"checkpoints cannot be stored in {self.root}: {error}. Make the directory writable for the user that "
                "tasks run as, or name another place in checkpoint_storage of the experiment configuration."
            ) from error

    def stage(self, uuid: str, part: str) -> Path:
        directory = self._partial(uuid) / _PARTS / _plain(part)
        try:
            directory.mkdir(parents=True, exist_ok=False)
        except FileExistsError:
            raise AlreadyExists(f"part {part} of checkpoint {uuid} is already being written") from None
        except OSError as error:
            raise StorageUnavailable(f"checkpoint {uuid} cannot be written below {self.root}: {error}") from error
        return directory

    def put(self, uuid: str, part: str, names: Iterable[str]) -> None:
        partial = self._partial(uuid)
        source = partial / _PARTS / _plain(part)
        for name in sorted(names):
            target = partial / checked_path(name)
            target.parent.mkdir(parents=True, exist_ok=True)
            staged = source / name
            if staged.is_symlink():  # what it points to may be gone when the checkpoint is read
                shutil.copyfile(staged, target)
            else:
                os.replace(staged, target)
            _flush(target)
        shutil.rmtree(source)

    def commit(self, uuid: str, manifest: bytes) -> None:
        partial, final = self._partial(uuid), self._final(uuid)
        if final.exists():
            raise AlreadyExists(f"checkpoint {uuid} is already stored")
        partial.mkdir(parents=True, exist_ok=True)
        self._drop(f"{partial.name}/{_PARTS}")
        written = partial / f"{MANIFEST_NAME}.new"
        written.write_bytes(manifest)
        _flush(written)
        for directory, _, _ in os.walk(partial):
            _flush(Path(directory))
        os.replace(written, partial / MANIFEST_NAME)
        _flush(partial)
        self._unreported(uuid).touch()  # before the name: a writer that dies in between leaves a trace to follow
        os.rename(partial, final)
        _flush(self.root)

    def abort(self, uuid: str) -> None:
        self._drop(self._partial(uuid).name)

    def manifest(self, uuid: str) -> bytes:
        try:
            with Beneath.at(self.root) as root, root.directory(_plain(uuid)) as directory:
                return read_manifest(directory)
        except FileNotFoundError:
            raise NotFound("checkpoint", uuid) from None

    @contextmanager
    def restore(self, uuid: str) -> Iterator[Path]:
        self.manifest(uuid)
        yield self._final(uuid)

    def delete(self, uuid: str) -> None:
        final, partial = self._final(uuid), self._partial(uuid)
        try:
            os.rename(final, partial)  # whoever dies now leaves an unfinished one, which the sweep takes
        except FileNotFoundError:
            pass
        except OSError:  # there is an unfinished one of that name already
            self._drop(f"{final.name}/{MANIFEST_NAME}")
            self._drop(final.name)
        else:
            self._drop(partial.name)
        self.reported(uuid)

    def list(self) -> tuple[str, ...]:
        try:
            with Beneath.at(self.root) as root:
                return tuple(name for name in root.names() if not name.endswith(PARTIAL) and _has_manifest(root, name))
        except FileNotFoundError:
            return ()

    def unreported(self) -> tuple[str, ...]:
        return tuple(sorted(path.name.removesuffix(UNREPORTED) for path in self.root.glob(f"*{UNREPORTED}")))

    def reported(self, uuid: str) -> None:
        self._unreported(uuid).unlink(missing_ok=True)

    def sweep(self, older_than: datetime) -> tuple[str, ...]:
        removed = []
        for path in sorted(self.root.glob(f"*{PARTIAL}")):
            try:
                touched = datetime.fromtimestamp(path.lstat().st_mtime, UTC)
            except FileNotFoundError:
                continue  # its writer has just finished
            if touched < older_than:
                self._drop(path.name)
                removed.append(path.name.removesuffix(PARTIAL))
                self.reported(removed[-1])
        return tuple(removed)

    def _drop(self, path: str) -> None:
        """As far as it can be removed; what stays is no checkpoint any more, and the sweep comes by again."""
        with suppress(OSError, LeadsOut), Beneath.at(self.root) as root:
            root.remove_tree(path)

    def _partial(self, uuid: str) -> Path:
        return self.root / f"{_plain(uuid)}{PARTIAL}"

    def _unreported(self, uuid: str) -> Path:
        return self.root / f"{_plain(uuid)}{UNREPORTED}"

    def _final(self, uuid: str) -> Path:
        return self.root / _plain(uuid)


def _has_manifest(root: Beneath, name: str) -> bool:
    try:
        return stat.S_ISREG(root.status(f"{name}/{MANIFEST_NAME}").st_mode)
    except (OSError, LeadsOut):
        return False


def _plain(name: str) -> str:
    if not name or "/" in name or name in (".", "..") or "\0" in name:
        raise InvalidInput(f"{name!r} cannot name a checkpoint or a part of one")
    return name


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
