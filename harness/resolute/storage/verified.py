"""A stored checkpoint, compared with what was saved: where it lies, without a copy."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from resolute.errors import NotFound
from resolute.storage.base import CheckpointStorage, FileKind
from resolute.storage.manifest import CorruptCheckpoint, Manifest

_PIECE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The number of compared files and bytes, by hash or, without a manifest, by size only."""

    uuid: str
    files: int
    bytes: int
    hashes: bool


def verified(
    storage: CheckpointStorage,
    uuid: str,
    resources: Mapping[str, int],
    progress: Callable[[int, int], None] | None = None,
) -> Verified:
    """Raises `CorruptCheckpoint`, `NotFound`."""
    expected: dict[str, tuple[int, str | None]]
    try:
        manifest = Manifest.from_bytes(uuid, storage.manifest(uuid))
        expected = {name: (entry.size, entry.sha256) for name, entry in manifest.files.items()}
    except NotFound:
        expected = {name: (size, None) for name, size in resources.items() if not name.endswith("/")}
    total, done = sum(size for size, _ in expected.values()), 0
    missing = set(expected)
    with storage.open(uuid) as stored:
        for file in stored.files():
            if file.path not in expected:
                continue
            missing.discard(file.path)
            size, sha256 = expected[file.path]
            if file.kind is not FileKind.FILE or file.size != size:
                raise CorruptCheckpoint(uuid, f"{file.path} has {file.size} bytes, {size} were saved")
            digest = hashlib.sha256()
            if sha256 is not None:
                stream, _ = stored.open(file)
                with stream:
                    while piece := stream.read(_PIECE):
                        digest.update(piece)
                        done += len(piece)
                        if progress is not None:
                            progress(min(done, total), total)
                if digest.hexdigest() != sha256:
                    raise CorruptCheckpoint(uuid, f"the content of {file.path} is not what was saved")
    if missing:
        raise CorruptCheckpoint(uuid, f"{min(missing)} is missing")
    hashes = all(sha256 is not None for _, sha256 in expected.values())
    return Verified(uuid=uuid, files=len(expected), bytes=total, hashes=hashes)
