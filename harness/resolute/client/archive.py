"""Unpacking archives from the network: nothing outside the target, no links, no devices, all or nothing."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from resolute.errors import InvalidInput, ResoluteError

_GZIP = b"\x1f\x8b"


class DamagedArchive(ResoluteError):
    """The received archive differs from the announced one. Fetch it again."""


def extract(archive: IO[bytes], target: Path, *, expected: Mapping[str, int] | None = None) -> None:
    """Unpacks a tar, compressed with gzip or not, into the new directory `target`.

    `expected` maps the path of each file to its size; names that end in `/` are directories and are not checked.
    Until everything is there and checked the files are in a neighbour of `target`. Raises `InvalidInput` when `target`
    has contents already and `DamagedArchive` when the archive is not whole or not safe.
    """
    refuse_occupied(target)
    with whole_directory(target) as partial:
        partial.mkdir()
        _unpack(archive, partial)
        if expected is not None:
            check_files(partial, expected)


@contextmanager
def whole_directory(target: Path) -> Iterator[Path]:
    """A path beside `target`, not there yet, that becomes `target` at the end of the block, or vanishes with its error."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        yield partial
        if target.is_dir():
            target.rmdir()
        partial.rename(target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def refuse_occupied(target: Path) -> None:
    """Raises `InvalidInput` if `target` exists. An empty directory does not count."""
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise InvalidInput(f"{str(target)!r} already exists; remove it or name another directory")


def check_files(directory: Path, expected: Mapping[str, int]) -> None:
    """Raises `DamagedArchive` unless each expected file is there with its size."""
    for name in sorted(expected):
        if name.endswith("/"):
            continue
        path = directory / _inside(name)
        size = path.stat().st_size if path.is_file() else None
        if size != expected[name]:
            found = "is missing" if size is None else f"has {size} bytes"
            raise DamagedArchive(f"{name!r} {found}, expected {expected[name]} bytes; fetch it again")


def _unpack(archive: IO[bytes], directory: Path) -> None:
    try:
        with _plain(archive) as plain, tarfile.open(fileobj=plain, mode="r:") as tar:
            for member in tar:
                path = directory / _inside(member.name)
                if member.isdir():
                    path.mkdir(parents=True, exist_ok=True)
                elif member.isreg():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    source = tar.extractfile(member)
                    assert source is not None, "a regular member has contents"
                    with source, open(path, "wb") as file:
                        shutil.copyfileobj(source, file)
                    path.chmod(0o644 | (member.mode & 0o111))
                else:
                    raise DamagedArchive(f"{member.name!r} is neither a file nor a directory; it will not be unpacked")
            while plain.read(1 << 20):  # the checksum follows the end of the tar
                pass
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise InvalidInput(f"cannot write to {str(directory.parent)!r}: {error.strerror}") from None
        raise DamagedArchive(f"the archive is damaged ({error}); fetch it again") from None


@contextmanager
def _plain(archive: IO[bytes]) -> Iterator[IO[bytes]]:
    """The tar itself. `archive` can be rewound."""
    compressed = archive.read(len(_GZIP)) == _GZIP
    archive.seek(0)
    if not compressed:
        yield archive
        return
    with gzip.GzipFile(fileobj=archive) as plain:
        yield plain  # type: ignore[misc]


def _inside(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\x00" in name:
        raise DamagedArchive(f"{name!r} points outside of the target; it will not be unpacked")
    return path
