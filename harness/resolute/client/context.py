"""Packing a directory for upload: included and excluded files, and limits.

A `.detignore` at the root of a packed directory has the syntax of `.gitignore` and adds to `BUILT_IN_RULES`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from resolute.errors import InvalidInput, LimitExceeded
from resolute.ignored_files import BUILT_IN_PATTERN, BUILT_IN_RULES, IGNORE_FILE
from resolute.wire.rest.experiment_changes import File

MAX_BYTES = 95 * 1024 * 1024
"""Limit on the bytes of all files of an upload: in base64 they must fit a request of 128 MiB."""

_Matches = Callable[[str], bool]

_FILE_TYPE, _DIRECTORY_TYPE = ord("0"), ord("5")  # type flags of tar


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Files ready to send, parents before children. `skipped` lists unreadable files, with the reason."""

    files: tuple[File, ...]
    total_bytes: int
    skipped: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class _Packing:
    files: list[File] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    total_bytes: int = 0
    paths: set[str] = field(default_factory=set)


def pack(directory: Path | None, includes: Sequence[Path] = ()) -> Context:
    """The contents of `directory` at the root, and each of `includes` under its own name.

    Raises `InvalidInput` for a path that is missing or taken twice, `LimitExceeded` past `MAX_BYTES`.
    """
    packing = _Packing()
    if directory is not None:
        if not directory.is_dir():
            raise InvalidInput(f"{str(directory)!r} is not a directory; name the directory that holds the model code")
        _pack_directory(packing, directory, "")
    for included in includes:
        name = included.resolve().name
        if not included.exists():
            raise InvalidInput(f"{str(included)!r} does not exist; name a file or directory to include")
        _claim(packing, name, included)
        if included.is_dir():
            _add_directory(packing, included, name)
            _pack_directory(packing, included, name + "/")
        else:
            _add_file(packing, included, name)
    return Context(files=tuple(packing.files), total_bytes=packing.total_bytes, skipped=tuple(packing.skipped))


def _pack_directory(packing: _Packing, root: Path, prefix: str) -> None:
    for path, relative, is_directory in _walk(root, _matcher(_own_rules(packing, root)), packing):
        if not prefix and "/" not in relative:
            _claim(packing, relative, path)
        if is_directory:
            _add_directory(packing, path, prefix + relative)
        else:
            _add_file(packing, path, prefix + relative)


def _matcher(own_rules: Sequence[str]) -> _Matches:
    """Whether a path below the root is excluded; directories end with a slash."""
    if not own_rules:
        return lambda path: BUILT_IN_PATTERN.fullmatch(path) is not None
    import pathspec  # not for a directory without rules: see `BUILT_IN_PATTERN`

    return pathspec.GitIgnoreSpec.from_lines([*BUILT_IN_RULES, *own_rules]).match_file


def _walk(root: Path, left_out: _Matches, packing: _Packing) -> Iterator[tuple[Path, str, bool]]:
    """(path, path below the root, is a directory), sorted, parents first. Links to directories are not entered."""

    def unreadable(error: OSError) -> None:
        packing.skipped.append(f"{error.filename}: {error.strerror}")

    for parent, directories, files in os.walk(root, onerror=unreadable):
        below = Path(parent).relative_to(root).as_posix()
        start = "" if below == "." else below + "/"
        directories[:] = sorted(name for name in directories if not _ignored(left_out, start + name, directory=True))
        for name in directories:
            yield Path(parent, name), start + name, True
        for name in sorted(files):
            if name != IGNORE_FILE and not _ignored(left_out, start + name, directory=False):
                yield Path(parent, name), start + name, False


def _ignored(left_out: _Matches, relative: str, *, directory: bool) -> bool:
    return left_out(relative) or (directory and left_out(relative + "/"))


def _own_rules(packing: _Packing, root: Path) -> list[str]:
    path = root / IGNORE_FILE
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot read {str(path)!r} ({error}); without its rules too much might be sent") from None


def _claim(packing: _Packing, name: str, path: Path) -> None:
    if name in packing.paths:
        raise InvalidInput(
            f"duplicate path detected: {name!r} is already part of the upload, so {str(path)!r} cannot be"
        )
    packing.paths.add(name)


def _add_directory(packing: _Packing, path: Path, name: str) -> None:
    try:
        status = path.stat()
    except OSError as error:
        packing.skipped.append(f"{path}: {error.strerror}")
        return
    packing.files.append(_entry(name, _DIRECTORY_TYPE, status, b""))


def _add_file(packing: _Packing, path: Path, name: str) -> None:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            packing.skipped.append(f"{path}: neither a file nor a directory")
            return
        _check_size(packing.total_bytes + status.st_size)
        content = path.read_bytes()
    except OSError as error:
        packing.skipped.append(f"{path}: {error.strerror}")
        return
    packing.total_bytes += len(content)
    _check_size(packing.total_bytes)
    packing.files.append(_entry(name, _FILE_TYPE, status, content))


def _check_size(total: int) -> None:
    if total > MAX_BYTES:
        raise LimitExceeded(
            f"the files to send are larger than the limit of {MAX_BYTES} bytes (95 MiB); leave out data and results "
            f"with a {IGNORE_FILE} file, and let the task fetch its data"
        )


def _entry(name: str, kind: int, status: os.stat_result, content: bytes) -> File:
    return File(path=name, type=kind, content=content, mtime=int(status.st_mtime), mode=status.st_mode, uid=0, gid=0)
