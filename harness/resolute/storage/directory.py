"""Checkpoints in a directory of a file system that all machines of a job share."""

from __future__ import annotations

import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Self

from resolute.beneath import Beneath, Found, LeadsOut, TooDeep, readable
from resolute.errors import AlreadyExists, InvalidInput, NotFound
from resolute.storage.base import FileKind, NotMounted, Selector, StorageUnavailable, StoredFile
from resolute.storage.manifest import (
    MANIFEST_NAME,
    CorruptCheckpoint,
    Manifest,
    checked_path,
    only_about,
    read_manifest,
)

logger = logging.getLogger("resolute.storage")

PARTIAL = ".partial"
UNREPORTED = ".unreported"
_PARTS = ".parts"

IN_USE = ".resolute-storage"
"""An empty file beside the checkpoints, made before one is removed. A directory with nothing in it is the place of a file system
that is not mounted; with this file, it is a storage whose last checkpoint was removed.
"""


class DirectoryStorage:
    """`<root>/<uuid>/` holds a checkpoint; `<root>/<uuid>.partial/` one that is being written; while `<root>/<uuid>.unreported` is
    there, the master may not know of it.

    Files and directories are flushed to disk before the rename that publishes them. What is read or removed is opened below
    the root step by step (`beneath`): others may write there as well.
    """

    def __init__(
        self,
        root: Path,
        *,
        below: str = "",
        one_owner: bool = False,
        check: Callable[[Beneath], None] | None = None,
    ) -> None:
        """The directory `below` (relative, in POSIX form) of `root`.

        Links on the way to `root` are followed, those below it are not. `one_owner` is that of `Beneath.at`; `check` looks at the
        open directory `root` and raises where it must not be read.
        """
        self.root = root / below
        self._named = root
        self._below = below
        self._one_owner = one_owner
        self._check = check

    direct = True

    @property
    def place(self) -> str:
        return str(self.root)

    def _opened(self) -> Beneath:
        with Beneath.at(self._named, one_owner=self._one_owner) as named:
            if self._check is not None:
                self._check(named)
            return named.directory(self._below)

    def _mounted(self) -> Beneath:
        """The open directory of the storage. Raises `NotMounted`."""
        try:
            return self._opened()
        except (FileNotFoundError, NotADirectoryError):
            raise self._not_mounted("there is no such directory") from None

    def _check_mounted(self, root: Beneath) -> None:
        """Checks the storage when no part of a checkpoint was found. Raises `NotMounted`."""
        if not root.names():
            raise self._not_mounted("that directory is empty")

    def _not_mounted(self, why: str) -> NotMounted:
        return NotMounted(
            f"the checkpoint storage {self.place} is not mounted on this machine: {why}. Mount its file system; if everything in "
            f"it is gone for good, make an empty file {self.root / IN_USE}."
        )

    def check_writable(self) -> None:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            # A name of its own: ranks of a gang try at the same moment, and in PID namespaces all of them have the same number.
            with tempfile.NamedTemporaryFile(prefix=".writable-", dir=self.root, buffering=0) as probe:
                probe.write(b"resolute")
                if Path(probe.name).read_bytes() != b"resolute":
                    raise OSError("a file that was just written reads back differently")
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
            with self._opened() as root, root.directory(_plain(uuid)) as directory:
                return read_manifest(directory)
        except FileNotFoundError:
            raise NotFound("checkpoint", uuid) from None

    @contextmanager
    def restore(self, uuid: str, *, wanted: Selector | None = None, without_manifest: bool = False) -> Iterator[Path]:
        if without_manifest:
            self.open(uuid).close()
        else:
            self.manifest(uuid)
        yield self._final(uuid)

    def open(self, uuid: str) -> OpenDirectory:
        try:
            root = self._opened()
        except (FileNotFoundError, NotADirectoryError):
            raise StorageUnavailable(
                f"there is no directory {self.place} on this machine: it cannot reach this checkpoint storage; "
                "read the files on a machine that can"
            ) from None
        with root:
            try:
                return OpenDirectory(root.directory(_plain(uuid)))
            except FileNotFoundError:
                raise NotFound("checkpoint", uuid, f"there is no directory {self._final(uuid)}") from None

    def delete(self, uuid: str) -> None:
        """Raises `TooDeep`."""
        final, partial = _plain(uuid), self._partial(uuid).name
        with self._mounted() as root:
            if root.exists(final):
                root.touch(IN_USE)
            try:
                root.rename(final, partial)  # a process that dies now leaves an unfinished one, which the sweep removes
            except FileNotFoundError:
                self._check_mounted(root)
            except OSError:  # there is an unfinished one of that name already
                _remove_whole(root, final)
            _remove_whole(root, partial)
            root.unlink(f"{final}{UNREPORTED}")

    def remove_below(self, path: str) -> None:
        with self._mounted() as root:
            self._check_mounted(root)
            _remove_whole(root, path)

    def remove_files(self, uuid: str, matches: Selector) -> dict[str, int]:
        with self._mounted() as root:
            try:
                directory = root.directory(_plain(uuid))
            except FileNotFoundError:
                self._check_mounted(root)
                return {}
            except LeadsOut:
                root.touch(IN_USE)
                _remove_whole(root, uuid)
                return {}
            with directory:
                left, manifest = _remove_matching(directory, uuid, matches)
            if not left or (manifest and set(left) == {MANIFEST_NAME}):
                root.touch(IN_USE)
                _remove_whole(root, uuid)
                return {}
            return left

    def list(self) -> tuple[str, ...]:
        try:
            with self._opened() as root:
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
        """Removes a checkpoint as far as possible. The rest is not a checkpoint any more, and a later sweep removes it."""
        with suppress(OSError, LeadsOut), self._opened() as root:
            root.remove_tree(path)

    def _partial(self, uuid: str) -> Path:
        return self.root / f"{_plain(uuid)}{PARTIAL}"

    def _unreported(self, uuid: str) -> Path:
        return self.root / f"{_plain(uuid)}{UNREPORTED}"

    def _final(self, uuid: str) -> Path:
        return self.root / _plain(uuid)


class OpenDirectory:
    """A checkpoint's directory, held open."""

    def __init__(self, directory: Beneath) -> None:
        """Takes ownership of the open directory."""
        self._directory = directory

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._directory.close()

    def files(self) -> Iterator[StoredFile]:
        """Paths that are not UTF-8 hold surrogates, as those of `os`."""
        return (_stored(found) for found in self._directory.walk())

    def open(self, file: StoredFile) -> tuple[BinaryIO, int]:
        """Raises `LeadsOut` when it is no regular file (any more), `FileNotFoundError` when it does not exist."""
        assert isinstance(file.source, Found)
        stream = file.source.open()
        return stream, os.fstat(stream.fileno()).st_size

    def check(self) -> None:
        """Raises `LeadsOut` for a file of another owner, where one owner is demanded, and `TooDeep`."""
        for found in self._directory.walk():
            if found.is_file:
                found.parent.check_owner(found.name, found.status)


def _stored(found: Found) -> StoredFile:
    kind = FileKind.DIRECTORY if found.is_directory else FileKind.FILE if found.is_file else FileKind.OTHER
    return StoredFile(
        path=found.path,
        kind=kind,
        size=found.status.st_size if kind is FileKind.FILE else 0,
        modified=found.status.st_mtime,
        mode=stat.S_IMODE(found.status.st_mode),
        source=found,
    )


def _remove_whole(storage: Beneath, path: str) -> None:
    """A directory of the storage, its manifests first. A link in its place is removed itself; behind one there is nothing of ours.

    Raises `TooDeep`.
    """
    try:
        with storage.directory(path) as directory:
            for name in directory.names():
                if name.startswith("manifest") and name.endswith(".json"):
                    directory.remove_tree(name)
    except FileNotFoundError:
        return
    except LeadsOut as error:
        logger.warning("its contents are not removed: %s", error)
    try:
        storage.remove_tree(path)
    except TooDeep:
        raise
    except LeadsOut:
        return


def _remove_matching(directory: Beneath, uuid: str, matches: Selector) -> tuple[dict[str, int], bool]:
    """The remaining files, and whether there is a manifest of this format."""
    manifest = _manifest(uuid, directory)
    matched = {found.path: found.is_directory for found in directory.walk() if matches(readable(found.path))}
    files = [path for path, is_directory in matched.items() if not is_directory]
    if manifest is not None:
        files = [path for path in files if path != MANIFEST_NAME]
        if not manifest.files.keys().isdisjoint(files):
            # A reader checks every file that the manifest names: one that was removed on purpose must not look like damage.
            directory.replace_file(MANIFEST_NAME, only_about(manifest, lambda name: name not in set(files)).to_bytes())
    for path in files:
        directory.unlink(path)
    for path in sorted((path for path, is_directory in matched.items() if is_directory), reverse=True):
        directory.remove_if_empty(path)
    return _listed(directory), manifest is not None


def _manifest(uuid: str, directory: Beneath) -> Manifest | None:
    """The manifest; None if the harness that saved writes none. A file of the user's may have the same name there."""
    try:
        return Manifest.from_bytes(uuid, read_manifest(directory))
    except (FileNotFoundError, LeadsOut, CorruptCheckpoint):
        return None


def _listed(directory: Beneath) -> dict[str, int]:
    """Names and sizes of all entries. Links, devices and the like are listed as well, so that a user sees why a directory is not
    empty."""
    return {
        f"{readable(found.path)}/" if found.is_directory else readable(found.path): _stored(found).size
        for found in directory.walk()
    }


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
