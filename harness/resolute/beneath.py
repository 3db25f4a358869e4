"""An open directory that no path below it leads out of.

A writer to a checkpoint storage chooses the names in it, and may replace them while they are read. So nothing here is looked
up by a path: each component is opened from the directory before it, a symbolic link is never followed, and what is decided is
decided about the open file. Devices, FIFOs and sockets are never opened.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import BinaryIO, Self

from resolute.errors import FailedPrecondition, InvalidInput

MAX_DEPTH = 200
"""Deepest nesting of directories. Each level takes an open file while the levels in it are read, and the system gives a process
some thousand."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NAME_ONLY: int | None = getattr(os, "O_PATH", None)
"""Flag that opens a name without opening the file, so that a device can be recognised without an effect on it. Linux supports
it."""


class LeadsOut(FailedPrecondition):
    """A path below a storage that is refused: a symbolic link, a device or the like, or a file of another user."""


class TooDeep(LeadsOut):
    """Directories inside each other, more than `MAX_DEPTH`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A name below a directory. `path` is relative, in POSIX form; `status` is of the name itself, also where it is a link."""

    path: str
    status: os.stat_result
    parent: Beneath
    """Opens the file while the walk is at this name."""

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.status.st_mode)

    def open(self) -> BinaryIO:
        """Opens the regular file. Raises `LeadsOut` if it is not one (any more), `FileNotFoundError` if it does not exist."""
        return self.parent.open_file(self.name)


class Beneath:
    """A directory held open; close it, or use it as a context."""

    def __init__(self, descriptor: int, shown: str, *, one_owner: bool, depth: int = 0) -> None:
        """Takes ownership of the descriptor; callers use `at`. `shown` is the path for messages."""
        self._descriptor = descriptor
        self._shown = shown
        self._one_owner = one_owner
        self._depth = depth

    @classmethod
    def at(cls, root: Path, *, one_owner: bool = False) -> Beneath:
        """The directory of that path. Links on the way *to* it are followed: its name comes from the configuration.

        `one_owner` refuses a file whose owner is not its directory's: it may be a second name (a hard link) of a file that only
        this process can read. Raises `FileNotFoundError`, `NotADirectoryError`.
        """
        return cls(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), str(root), one_owner=one_owner)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the directory. Repeated calls are harmless."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def fileno(self) -> int:
        return self._descriptor

    @property
    def path(self) -> str:
        """The path, for messages."""
        return self._shown

    # -- looking ---------------------------------------------------------------------------------------------------

    def directory(self, path: str) -> Beneath:
        """A directory below. Raises `LeadsOut`, `FileNotFoundError`, and `InvalidInput` for a path that is none."""
        at = Beneath(os.dup(self._descriptor), self._shown, one_owner=self._one_owner, depth=self._depth)
        try:
            for name in parts_of(path):
                inner = at._step(name)
                at.close()
                at = inner
        except BaseException:
            at.close()
            raise
        return at

    def open_file(self, path: str) -> BinaryIO:
        """A regular file below, to be read. Raises what `directory` raises."""
        *above, name = _named(path)
        if above:
            with self.directory("/".join(above)) as parent:
                return parent.open_file(name)
        descriptor = self._open_regular(name)
        try:
            self.check_owner(name, os.fstat(descriptor))
            return open(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise

    def check_owner(self, name: str, status: os.stat_result) -> None:
        """Raises `LeadsOut` where one owner is demanded and the file has another."""
        if self._one_owner and status.st_uid != os.fstat(self._descriptor).st_uid:
            raise LeadsOut(
                f"{self._shown}/{readable(name)} belongs to another user than its directory and is not read; give both one owner"
            )

    def status(self, path: str) -> os.stat_result:
        """Status of the name itself; a link is not followed."""
        *above, name = _named(path)
        with self.directory("/".join(above)) as parent:
            return os.stat(name, dir_fd=parent._descriptor, follow_symlinks=False)

    def exists(self, name: str) -> bool:
        """Whether the name, also that of a link, is directly in this directory."""
        (name,) = _named(name)
        try:
            os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def names(self) -> list[str]:
        """Names directly in this directory, sorted."""
        with os.scandir(self._descriptor) as entries:
            return sorted(entry.name for entry in entries)

    def walk(self, above: str = "") -> Iterator[Found]:
        """Everything below, sorted, a directory before what is in it. A name that vanishes meanwhile is left out.

        Raises `TooDeep`.
        """
        for name in self.names():
            try:
                status = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
                inner = self._step(name) if stat.S_ISDIR(status.st_mode) else None
            except TooDeep:
                raise
            except (FileNotFoundError, LeadsOut):
                continue
            path = f"{above}{name}"
            if inner is None:
                yield Found(path=path, status=status, parent=self)
                continue
            with inner:
                yield Found(path=path, status=os.fstat(inner._descriptor), parent=self)
                yield from inner.walk(f"{path}/")

    # -- removing --------------------------------------------------------------------------------------------------

    def unlink(self, path: str) -> None:
        """Remove a name that is no directory; of a link the link. A missing one is success."""
        *above, name = _named(path)
        try:
            with self.directory("/".join(above)) as parent:
                os.unlink(name, dir_fd=parent._descriptor)
        except FileNotFoundError:
            pass

    def remove_if_empty(self, path: str) -> None:
        """Remove an empty directory. A directory with entries stays, and a missing one is success."""
        *above, name = _named(path)
        try:
            with self.directory("/".join(above)) as parent:
                os.rmdir(name, dir_fd=parent._descriptor)
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise

    def remove_tree(self, path: str) -> None:
        """Remove a directory with everything in it; of a link, the link. A missing one is success. Raises `TooDeep`."""
        *above, name = _named(path)
        try:
            with self.directory("/".join(above)) as parent:
                parent._remove(name)
        except FileNotFoundError:
            pass

    def rename(self, name: str, new: str) -> None:
        """Rename a name directly in this directory; of a link, the link. Raises the errors of `os.rename`."""
        (name,), (new,) = _named(name), _named(new)
        os.rename(name, new, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def touch(self, name: str) -> None:
        """Create an empty file directly in this directory, unless the name exists."""
        (name,) = _named(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with suppress(FileExistsError):
            os.close(os.open(name, flags, 0o644, dir_fd=self._descriptor))

    def replace_file(self, name: str, content: bytes) -> None:
        """Write a file directly in this directory again, as a whole and durably, for the directory's owner.

        A process that cannot change owners and may write to this file overwrites it: an owner of its own would make it unreadable
        here.
        """
        (name,) = _named(name)
        fresh = f"{name}.new"
        self.unlink(fresh)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(fresh, flags, 0o644, dir_fd=self._descriptor), "wb") as file:
            owner = os.fstat(self._descriptor)
            os.fchmod(file.fileno(), 0o644)
            mine = os.fstat(file.fileno()).st_uid == owner.st_uid
            if not mine:
                try:
                    os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
                    mine = True
                except PermissionError:
                    pass
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if not mine:
            self.unlink(fresh)
            self._write_over(name, content)
            return
        os.replace(fresh, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def _write_over(self, name: str, content: bytes) -> None:
        descriptor = self._opened(name, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY, f"{self._shown}/{readable(name)}")
        with open(descriptor, "wb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise LeadsOut(
                    f"{self._shown}/{readable(name)} is {_kind(status.st_mode)}, not a file; it is not written"
                )
            self.check_owner(name, status)
            os.ftruncate(descriptor, 0)
            file.write(content)
            file.flush()
            os.fsync(descriptor)

    def _remove(self, name: str) -> None:
        if not stat.S_ISDIR(os.stat(name, dir_fd=self._descriptor, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=self._descriptor)
            return
        with self._step(name) as directory:
            for inner in directory.names():
                try:
                    directory._remove(inner)
                except FileNotFoundError:
                    continue
        os.rmdir(name, dir_fd=self._descriptor)

    # -- one step --------------------------------------------------------------------------------------------------

    def _step(self, name: str) -> Beneath:
        shown = f"{self._shown}/{readable(name)}"
        if self._depth >= MAX_DEPTH:
            raise TooDeep(f"{shown} is in more than {MAX_DEPTH} nested directories, which is the maximum; move it")
        try:
            descriptor = os.open(name, _DIRECTORY, dir_fd=self._descriptor)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
                status = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
                raise LeadsOut(
                    f"{shown} is {_kind(status.st_mode)}, not a directory; links in a storage are not followed"
                ) from None
            raise
        return Beneath(descriptor, shown, one_owner=self._one_owner, depth=self._depth + 1)

    def _open_regular(self, name: str) -> int:
        """Opens a name without any earlier open, where the system supports it."""
        shown = f"{self._shown}/{readable(name)}"
        if _NAME_ONLY is None:
            descriptor = self._opened(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY, shown)
        else:
            descriptor = self._opened(name, _NAME_ONLY, shown)
        try:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise LeadsOut(f"{shown} is {_kind(mode)}, not a file; it is not opened")
            if _NAME_ONLY is None:
                return descriptor
            opened = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return opened

    def _opened(self, name: str, flags: int, shown: str) -> int:
        try:
            return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._descriptor)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise LeadsOut(f"{shown} is a symbolic link; links in a storage are not followed") from None
            raise


def parts_of(path: str) -> list[str]:
    """The components of a relative path; none for an empty one. Raises `InvalidInput` for one that does not stay inside."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or "\0" in path:
        raise InvalidInput(f"the path {path!r} does not stay inside its storage")
    return parts


def readable(path: str) -> str:
    """A path as text that can be stored and shown: bytes that are not UTF-8 are written as escapes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _named(path: str) -> list[str]:
    parts = parts_of(path)
    if not parts:
        raise InvalidInput(f"the path {path!r} does not exist in the storage")
    return parts


_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISREG, "a file"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISCHR, "a device"),
)


def _kind(mode: int) -> str:
    return next((words for test, words in _KINDS if test(mode)), "something else")
