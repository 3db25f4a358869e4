"""Directories of this machine for files on their way to or from a store. What a killed process leaves is found and removed."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from resolute.storage.base import StorageUnavailable

_LOCK = ".in-use"


class Staging:
    """One directory of this process below `base`, made when it is first needed, locked for as long as the process lives.

    `base` defaults to a directory of this user in the directory for temporary files (`TMPDIR`). The lock is a file beside the
    directory, made before it and removed after it: a process that is killed at any moment leaves no directory without a lock.
    """

    def __init__(self, base: Path | None = None) -> None:
        self._base = base or Path(tempfile.gettempdir()) / f"resolute-checkpoints-{os.getuid()}"
        self._own: Path | None = None
        self._lock: int | None = None
        self._guard = threading.Lock()

    def directory(self) -> Path:
        """This process's own."""
        with self._guard:
            if self._own is None:
                self._base.mkdir(mode=0o700, parents=True, exist_ok=True)
                _refuse_another_users(self._base)
                self._lock, own = self._locked()
                own.mkdir(mode=0o700)
                self._own = own
            return self._own

    def _locked(self) -> tuple[int, Path]:
        """A lock of this process, and the name of its directory, which is not there yet."""
        while True:
            lock, name = tempfile.mkstemp(suffix=_LOCK, dir=self._base)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.fstat(lock).st_nlink:
                return lock, Path(name.removesuffix(_LOCK))
            os.close(lock)  # a sweep has removed the file before it was locked

    def fresh(self) -> Path:
        """A new empty directory in it."""
        return Path(tempfile.mkdtemp(dir=self.directory()))

    def close(self) -> None:
        """Remove this process's own. Again is harmless."""
        with self._guard:
            if self._own is not None and self._lock is not None:
                _remove(self._own)
                os.close(self._lock)
                self._own = self._lock = None

    def sweep(self) -> None:
        """Remove the directories of processes that have ended."""
        for lock in self._base.glob(f"*{_LOCK}"):
            with suppress(OSError):
                _remove_if_left(lock)


def _remove_if_left(name: Path) -> None:
    lock = os.open(name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(name.with_name(name.name.removesuffix(_LOCK)))
    finally:
        os.close(lock)


def _remove(directory: Path) -> None:
    """The directory and then its lock, which the caller holds."""
    shutil.rmtree(directory, ignore_errors=True)
    if not directory.exists():
        directory.with_name(directory.name + _LOCK).unlink(missing_ok=True)


def _refuse_another_users(base: Path) -> None:
    """The name can be foreseen: another user may have taken it, to read what is put there."""
    status = base.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise StorageUnavailable(
            f"{base} does not belong to the user {os.getuid()} and is not used for files on their way to a checkpoint storage; "
            "remove it, or name another directory for temporary files in TMPDIR"
        )
