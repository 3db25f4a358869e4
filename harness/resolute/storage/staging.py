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

_LOCK = "in-use"


class Staging:
    """One directory of this process below `base`, made when it is first needed, locked for as long as the process lives.

    `base` defaults to a directory of this user in the directory for temporary files (`TMPDIR`).
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
                own = Path(tempfile.mkdtemp(dir=self._base))
                self._lock = os.open(own / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                self._own = own
            return self._own

    def fresh(self) -> Path:
        """A new empty directory in it."""
        return Path(tempfile.mkdtemp(dir=self.directory()))

    def close(self) -> None:
        """Remove this process's own. Again is harmless."""
        with self._guard:
            if self._own is not None and self._lock is not None:
                shutil.rmtree(self._own, ignore_errors=True)
                os.close(self._lock)
                self._own = self._lock = None

    def sweep(self) -> None:
        """Remove the directories of processes that have ended."""
        if not self._base.is_dir():
            return
        for found in self._base.iterdir():
            with suppress(OSError):
                self._remove_if_left(found)

    def _remove_if_left(self, found: Path) -> None:
        try:
            lock = os.open(found / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return  # its process is just making it
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(found, ignore_errors=True)
        finally:
            os.close(lock)


def _refuse_another_users(base: Path) -> None:
    """The name can be foreseen: another user may have taken it, to read what is put there."""
    status = base.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise StorageUnavailable(
            f"{base} does not belong to the user {os.getuid()} and is not used for files on their way to a checkpoint storage; "
            "remove it, or name another directory for temporary files in TMPDIR"
        )
