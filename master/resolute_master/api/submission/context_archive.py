"""Context directories: from uploaded files to a safe archive, the same bytes for the same files."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Sequence
from pathlib import PurePosixPath

from resolute.errors import InvalidInput, LimitExceeded
from resolute.wire.rest.experiment_changes import File
from resolute_master.api.http.limits import MAX_FILES, MAX_PATH_BYTES

MAX_CONTEXT_BYTES = 95 * 1024 * 1024
"""Sum of the files' contents, as the contract's clients count it."""

REGULAR_FILE = 48
DIRECTORY = 53
PERMISSIONS = 0o7777
MAX_MTIME = 2**33 - 1
"""Largest number in the time field of a tar header."""


def check_files(files: Sequence[File]) -> None:
    """Raises `InvalidInput` for a path that leads out, occurs twice or is below a file, and for other kinds of
    entries than files and directories; `LimitExceeded` when it is too much.
    """
    total = sum(len(file.content) for file in files)
    if total > MAX_CONTEXT_BYTES:
        raise LimitExceeded(
            f"modelDefinition: the files have {total} bytes, over the limit of {MAX_CONTEXT_BYTES} (95 MiB); "
            "leave large files out of the context directory (.detignore)"
        )
    if len(files) > MAX_FILES:
        raise LimitExceeded(
            f"modelDefinition: {len(files)} files are over the limit of {MAX_FILES}; leave data and environments out of "
            "the context directory (.detignore)"
        )
    kinds: dict[PurePosixPath, int] = {}
    for index, file in enumerate(files):
        where = f"modelDefinition[{index}]"
        path = _relative_path(file.path, where)
        if path in kinds:
            raise InvalidInput(f"{where}.path: '{file.path}' occurs twice; send it once")
        if file.type not in (REGULAR_FILE, DIRECTORY):
            raise InvalidInput(f"{where}.type: {file.type} is neither a file (48) nor a directory (53)")
        if file.type == DIRECTORY and file.content:
            raise InvalidInput(
                f"{where}.content: a directory has no content; '{file.path}' has {len(file.content)} bytes"
            )
        if not 0 <= file.mtime <= MAX_MTIME:
            raise InvalidInput(f"{where}.mtime: {file.mtime} is no time in seconds since 1970")
        kinds[path] = file.type
    for path in kinds:
        for parent in path.parents:
            if kinds.get(parent) == REGULAR_FILE:
                raise InvalidInput(f"modelDefinition: '{path}' is below '{parent}', which is a file")


def _relative_path(text: str, where: str) -> PurePosixPath:
    if len(text.encode()) > MAX_PATH_BYTES:
        raise InvalidInput(f"{where}.path: '{text[:80]}...' has more than {MAX_PATH_BYTES} bytes; shorten it")
    path = PurePosixPath(text)
    if not text or "\0" in text or path.is_absolute() or ".." in path.parts or path == PurePosixPath("."):
        raise InvalidInput(f"{where}.path: {text!r} must be a relative path inside of the context directory")
    return path


def pack(files: Sequence[File]) -> bytes:
    """A gzip tar of checked files, in their order. Its bytes depend on the files only."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(filename="", fileobj=buffer, mode="wb", mtime=0, compresslevel=6) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for file in files:
            member = tarfile.TarInfo(str(PurePosixPath(file.path)))
            member.mode = file.mode & PERMISSIONS
            member.mtime = file.mtime
            if file.type == DIRECTORY:
                member.type = tarfile.DIRTYPE
                archive.addfile(member)
            else:
                member.size = len(file.content)
                archive.addfile(member, io.BytesIO(file.content))
    return buffer.getvalue()


def digest_of(archive: bytes) -> str:
    """The hash under which an archive is stored."""
    return hashlib.sha256(archive).hexdigest()
