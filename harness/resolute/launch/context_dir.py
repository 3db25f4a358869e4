"""The user's model code: fetched from the master and unpacked, without trusting the archive."""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import shutil
import tarfile
from pathlib import Path, PurePosixPath

from resolute.errors import InvalidInput

MAX_UNPACKED_BYTES = 4 * 1024**3
"""Limit on the unpacked size. Packed contexts have at most 95 MiB; far more than that unpacked is not model code."""


def unpack(b64_tgz: str, directories: tuple[Path, ...]) -> int:
    """Unpack a base64 gzip tar into each directory; an empty text is an empty context. Returns the number of files.

    Only plain files and directories below the target are accepted. Raises `InvalidInput` for anything else, before
    anything is written.
    """
    if not b64_tgz:
        return 0
    try:
        data = gzip.decompress(base64.b64decode(b64_tgz, validate=True))
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            members = archive.getmembers()
            _check(members)
            for directory in directories:
                _write(archive, members, directory)
    except (binascii.Error, tarfile.TarError, gzip.BadGzipFile, EOFError) as error:
        raise InvalidInput(f"the context directory sent by the master cannot be unpacked: {error}") from None
    return sum(member.isfile() for member in members)


def _check(members: list[tarfile.TarInfo]) -> None:
    total = 0
    for member in members:
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts:
            raise InvalidInput(f"the context directory contains {member.name!r}, which leads out of it")
        if not (member.isfile() or member.isdir()):
            raise InvalidInput(f"the context directory contains {member.name!r}, which is neither file nor directory")
        total += member.size
    if total > MAX_UNPACKED_BYTES:
        raise InvalidInput(f"the context directory has {total} bytes unpacked, over the limit of {MAX_UNPACKED_BYTES}")


def _write(archive: tarfile.TarFile, members: list[tarfile.TarInfo], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for member in members:
        target = directory / member.name
        if member.isdir():
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        source = archive.extractfile(member)
        if source is None:
            raise InvalidInput(f"the file {member.name!r} of the context directory has no content")
        with source, open(target, "wb") as file:
            shutil.copyfileobj(source, file)
        # Owner may always read and write: a read-only file would break the next unpacking and the user's edits.
        target.chmod((member.mode & 0o777) | 0o600)
