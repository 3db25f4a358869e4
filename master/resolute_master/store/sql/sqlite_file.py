"""The file of a SQLite database: whether it still is the one that was opened, and whether one must be there.

SQLite continues with a removed file: it commits into a file that can never be opened again. And it makes a new database where
there is none, so that a cluster whose file was lost would begin again with the first user and without its work.
"""

from __future__ import annotations

import ctypes
import logging
import os
from pathlib import Path

from resolute import private_files
from resolute.errors import FailedPrecondition
from resolute_master.store.base import StoreBroken

log = logging.getLogger(__name__)

CHECK_S = 0.3
"""Interval between checks of the file, which is also checked after each write: a master that writes nothing detects a change,
too."""

_MAGIC = b"SQLite format 3\x00"
_WAL_MAGIC = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")

_NOTE = """The database {name} beside this file holds a Resolute cluster. The master does not start while the database is missing
or empty. To start a new cluster in this place, remove this file as well.
"""


def marker_of(path: Path) -> Path:
    """The file that marks the database as a cluster's."""
    return path.with_name(path.name + ".cluster")


def check_before_opening(path: Path) -> None:
    """Raises `FailedPrecondition` where a cluster was, and its database is missing or empty."""
    marker = marker_of(path)
    if not marker.exists():
        return
    size = path.stat().st_size if path.exists() else None
    if size:
        return
    what = "is missing" if size is None else "is empty"
    raise FailedPrecondition(
        f"the store {path} {what}, and {marker} marks it as a cluster; restore the database, or restore a backup of "
        f"it; to start a new cluster in this place, remove {marker}"
    )


def keep_private(path: Path) -> None:
    """Make the database readable by the master's own user alone: its logs of writes take the mode of the file. Raises `OSError`."""
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    for sentence in private_files.mend(files=[path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm")]):
        log.warning("%s", sentence)


def mark(path: Path) -> None:
    """From now on the database must be there. Again is a no-op."""
    marker = marker_of(path)
    if marker.exists():
        return
    descriptor = os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, _NOTE.format(name=path.name).encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def leave_open(connection: object) -> None:
    """Keep a connection of the driver open to the end of the process: with the last one that is closed, SQLite writes what its log
    still has into the file, and makes a database of a file that was cut off which holds a part of the cluster and seems whole."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


class OpenFile:
    """The database file and its log of writes as they were opened.

    Both stay open here: SQLite's locks belong to the process, and the kernel releases all of them when any descriptor of the file
    is closed. Without the locks, another program that reads the database and closes it finds itself the last one, and removes the
    log.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = path.with_name(path.name + "-wal")
        self._held: dict[Path, int] = {}
        """The descriptor of each."""
        self._size = 0
        """Bytes of the largest file that was seen: nothing here runs VACUUM, so that the file only grows."""
        self.broken = False
        """A check has failed."""

    def check(self) -> None:
        """Raises `StoreBroken` when a file was removed, replaced or cut off. What was written since may be lost.

        The number of pages in the header is not compared with the size: a checkpoint that a reader limits writes the header and
        leaves the last page in the log, so that the file is shorter than its header says and nothing is lost.
        """
        magic, size = self._beginning(self._path)
        if magic != _MAGIC or size < self._size:
            raise self._broken(self._path, "was cut off or overwritten")
        self._size = size
        if self._log in self._held or self._log.exists():
            magic, _ = self._beginning(self._log)
            if magic and not magic.startswith(_WAL_MAGIC):
                raise self._broken(self._log, "was cut off or overwritten")

    def close(self) -> None:
        """Only after the last connection of the process is closed, and never when a check has failed: then one is left open."""
        while self._held:
            os.close(self._held.popitem()[1])

    def _beginning(self, path: Path) -> tuple[bytes, int]:
        """The first bytes of a file and its size in bytes. Raises `StoreBroken` unless it is the one that was opened first."""
        try:
            if path not in self._held:
                self._held[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            there, held = path.stat(), os.fstat(self._held[path])
            beginning = os.pread(self._held[path], len(_MAGIC), 0)
        except FileNotFoundError:
            raise self._broken(path, "was removed") from None
        except OSError as error:
            raise self._broken(path, f"cannot be accessed ({error.strerror})") from error
        if (there.st_dev, there.st_ino) != (held.st_dev, held.st_ino):
            raise self._broken(path, "was replaced by another file")
        return beginning, held.st_size

    def _broken(self, path: Path, what: str) -> StoreBroken:
        self.broken = True
        return StoreBroken(
            f"the store {self._path}: {path} {what} while the master runs, so that no change would be kept; "
            "the master ends: restore the file, or restore a backup, before the next start"
        )
