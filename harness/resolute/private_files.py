"""Files private to the user that runs the program: the one place where permissions are set, checked and fixed.

Databases, keys, tokens, configurations with secrets, state and logs are 0600, in directories that are 0700. Standard library only.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

PRIVATE_UMASK = 0o077
"""Umask of a program that keeps secrets. Files that it creates, also through a library, are readable by its user only."""

FILE, DIRECTORY = 0o600, 0o700

_SHARED = frozenset(
    map(Path, ("/var/lib", "/var/tmp", "/var/log", "/var/cache", "/var/run", "/usr/local", "/run/user", "/dev/shm"))
)
"""Directories that many programs use: like those directly below the root, they are never made private."""


def keep_private() -> None:
    """From now on what this process makes is its user's alone, whatever the umask was that it was started with."""
    os.umask(PRIVATE_UMASK)


def mend(*, directories: Iterable[Path] = (), files: Iterable[Path] = ()) -> list[str]:
    """Remove other users' permissions on existing directories and files; returns a sentence for each that had some.

    A link is left as it is, and so is what belongs to another user: then the sentence has a remedy.
    """
    said = [_mended(path, os.O_DIRECTORY, DIRECTORY) for path in dict.fromkeys(directories)]
    said += [_mended(path, 0, FILE) for path in dict.fromkeys(files)]
    return [sentence for sentence in said if sentence]


def state_files(directory: Path) -> list[Path]:
    """The files directly in a program's own directory."""
    try:
        with os.scandir(directory) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_file(follow_symlinks=False))
    except OSError:
        return []


def _mended(path: Path, kind: int, wanted: int) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | kind)
    except OSError:
        return ""  # missing, a link, or unreadable: its reader reports it
    try:
        status = os.fstat(descriptor)
        mode = stat.S_IMODE(status.st_mode)
        if not kind and not stat.S_ISREG(status.st_mode):
            return ""
        if kind and _is_shared(path, mode):
            return (
                f"{path} is a directory of many programs, in which others may see and change names; use a dedicated one"
            )
        if status.st_uid != os.geteuid():
            return _of_another(path, mode, kind)
        if not mode & PRIVATE_UMASK:
            return ""
        os.fchmod(descriptor, mode & wanted)
        return f"{path} was open to other users (mode {mode:o}) and is private now (mode {mode & wanted:o})"
    except OSError as error:
        return (
            f"{path} is open to other users, and that cannot be changed ({error.strerror}); run chmod {wanted:o} {path}"
        )
    finally:
        os.close(descriptor)


def _of_another(path: Path, mode: int, kind: int) -> str:
    """A service may read its administrator's files by its group; world access, and group write access, are too wide."""
    if mode & (0o022 if kind else 0o027):
        return f"{path} belongs to another user and is open to others (mode {mode:o}); run chmod go-w,o-rwx {path}"
    return ""


def _is_shared(path: Path, mode: int) -> bool:
    whole = path.absolute()
    return (
        bool(mode & stat.S_ISVTX) or whole in _SHARED or len(whole.parts) <= 2 or whole == Path(os.path.expanduser("~"))
    )
