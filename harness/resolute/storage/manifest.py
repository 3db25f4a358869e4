"""The manifest of a checkpoint: written last, so that a checkpoint exists if and only if its manifest does."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from resolute.beneath import Beneath, LeadsOut
from resolute.errors import InvalidInput, ResoluteError

MANIFEST_NAME = "manifest.json"
MAX_MANIFEST_BYTES = 64 * 1024**2
"""Some hundred thousand files. A larger manifest is not read into memory."""
MANIFEST_VERSION = 1
_CHUNK_BYTES = 1 << 20


class CorruptCheckpoint(ResoluteError):
    """A stored checkpoint is not what was saved. `parent` is the one saved before it, where that is known."""

    def __init__(self, uuid: str, problem: str, *, parent: str | None = None) -> None:
        super().__init__(f"checkpoint {uuid} is corrupt: {problem}")
        self.uuid = uuid
        self.problem = problem
        self.parent = parent


class Verify(StrEnum):
    """How much of a checkpoint is checked before it is used."""

    OFF = "off"
    SIZES = "sizes"
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One file: its size in bytes and the hexadecimal SHA-256 of its content."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a checkpoint consists of and where it comes from. `files` maps POSIX paths below the checkpoint."""

    uuid: str
    steps_completed: int
    trial_id: int | None
    trial_run_id: int | None
    world_size: int
    created: str
    parent: str | None
    files: Mapping[str, FileEntry]

    def to_bytes(self) -> bytes:
        body = {
            "version": MANIFEST_VERSION,
            "uuid": self.uuid,
            "steps_completed": self.steps_completed,
            "trial_id": self.trial_id,
            "trial_run_id": self.trial_run_id,
            "world_size": self.world_size,
            "created": self.created,
            "parent": self.parent,
            "files": {path: {"size": entry.size, "sha256": entry.sha256} for path, entry in sorted(self.files.items())},
        }
        return json.dumps(body, indent=2).encode()

    @classmethod
    def from_bytes(cls, uuid: str, data: bytes) -> Manifest:
        """Raises `CorruptCheckpoint` when the bytes are no manifest of this checkpoint."""
        try:
            body = json.loads(data)
            if body["version"] != MANIFEST_VERSION:
                raise CorruptCheckpoint(
                    uuid, f"its manifest has version {body['version']}, known is {MANIFEST_VERSION}"
                )
            if body["uuid"] != uuid:
                raise CorruptCheckpoint(uuid, f"its manifest belongs to checkpoint {body['uuid']}")
            return cls(
                uuid=body["uuid"],
                steps_completed=int(body["steps_completed"]),
                trial_id=body["trial_id"],
                trial_run_id=body["trial_run_id"],
                world_size=int(body["world_size"]),
                created=str(body["created"]),
                parent=body["parent"],
                files={
                    checked_path(path): FileEntry(size=int(entry["size"]), sha256=str(entry["sha256"]))
                    for path, entry in body["files"].items()
                },
            )
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, InvalidInput) as error:
            raise CorruptCheckpoint(uuid, f"its manifest cannot be read ({error!r})") from None


def only_about(manifest: Manifest, wanted: Callable[[str], bool]) -> Manifest:
    """The same manifest with these files alone."""
    return replace(manifest, files={name: entry for name, entry in manifest.files.items() if wanted(name)})


def checked_path(path: str) -> str:
    """`path` if it stays below its checkpoint. Raises `InvalidInput` otherwise."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise InvalidInput(f"the file name {path!r} does not stay inside its checkpoint")
    return path


def describe_file(path: Path) -> FileEntry:
    """Size and hash of one file."""
    with open(path, "rb") as file:
        return _described(file)


def _described(file: BinaryIO) -> FileEntry:
    digest = hashlib.sha256()
    size = 0
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
        size += len(chunk)
    return FileEntry(size=size, sha256=digest.hexdigest())


def read_manifest(directory: Beneath) -> bytes:
    """The bytes of the manifest in a checkpoint. Raises `FileNotFoundError`, `LeadsOut`."""
    with directory.open_file(MANIFEST_NAME) as file:
        data = file.read(MAX_MANIFEST_BYTES + 1)
    if len(data) > MAX_MANIFEST_BYTES:
        raise LeadsOut(f"{directory.path}/{MANIFEST_NAME} has more than {MAX_MANIFEST_BYTES} bytes: it is no manifest")
    return data


def files_below(directory: Path) -> dict[str, Path]:
    """Every regular file below `directory`, by POSIX path, sorted. Links to files count as files."""
    found = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            found[path.relative_to(directory).as_posix()] = path
    return found


def verify(manifest: Manifest, directory: Path, how: Verify) -> None:
    """Compare the files of a restored checkpoint with its manifest. Raises `CorruptCheckpoint` naming the file."""
    if how is Verify.OFF:
        return
    problem = _problem(manifest.files, directory, how)
    if problem is not None:
        raise CorruptCheckpoint(manifest.uuid, problem, parent=manifest.parent)


def verify_sizes(uuid: str, sizes: Mapping[str, int], directory: Path, how: Verify) -> None:
    """The same for a checkpoint without a manifest, of which only sizes are known (path -> bytes, directories with a slash)."""
    known = {name: FileEntry(size=size, sha256="") for name, size in sizes.items() if not name.endswith("/")}
    problem = None if how is Verify.OFF else _problem(known, directory, Verify.SIZES)
    if problem is not None:
        raise CorruptCheckpoint(uuid, problem)


def _problem(files: Mapping[str, FileEntry], directory: Path, how: Verify) -> str | None:
    with Beneath.at(directory) as stored:
        for name, entry in sorted(files.items()):
            try:
                status = stored.status(name)
            except OSError:
                return f"{name} is missing"
            except LeadsOut as error:
                return str(error)
            if not stat.S_ISREG(status.st_mode):
                return f"{name} is not a file; links in a storage are not followed"
            if status.st_size != entry.size:
                return f"{name} has {status.st_size} bytes, {entry.size} were saved"
        for name, entry in sorted(files.items()) if how is Verify.FULL else ():
            try:
                with stored.open_file(name) as file:
                    same = _described(file).sha256 == entry.sha256
            except (OSError, LeadsOut) as error:
                return str(error)
            if not same:
                return f"the content of {name} is not what was saved"
    return None


def resources(manifest: Manifest, manifest_bytes: bytes) -> dict[str, int]:
    """The file map of the REST contract: path -> bytes, directories with a trailing slash and size 0."""
    sizes: dict[str, int] = {MANIFEST_NAME: len(manifest_bytes)}
    for name, entry in manifest.files.items():
        sizes[name] = entry.size
        for parent in PurePosixPath(name).parents:
            if parent.parts:
                sizes[f"{parent.as_posix()}/"] = 0
    return dict(sorted(sizes.items()))
