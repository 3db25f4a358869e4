"""One checkpoint from the parts of several ranks: the rank that stores each file, and the merged metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from resolute.core.distributed import DistributedContext
from resolute.errors import InvalidInput
from resolute.storage.manifest import FileEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """The contribution of one rank."""

    files: Mapping[str, FileEntry]
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The whole checkpoint, and the names that this rank has to store."""

    files: dict[str, FileEntry]
    metadata: dict[str, Any]
    mine: tuple[str, ...]


def agree(distributed: DistributedContext, contribution: Contribution) -> Merged:
    """Exchange contributions and merge them alike on every rank. All ranks raise `InvalidInput` on a conflict."""
    sent = {
        "files": {name: [entry.size, entry.sha256] for name, entry in contribution.files.items()},
        "metadata": dict(contribution.metadata),
    }
    everyone = [
        Contribution(
            files={name: FileEntry(size=size, sha256=sha256) for name, (size, sha256) in received["files"].items()},
            metadata=received["metadata"],
        )
        for received in distributed.allgather(sent)
    ]
    owners = merge_files([one.files for one in everyone])
    return Merged(
        files={name: entry for name, (_, entry) in owners.items()},
        metadata=merge_metadata([one.metadata for one in everyone]),
        mine=tuple(name for name, (rank, _) in owners.items() if rank == distributed.rank),
    )


def merge_files(parts: Sequence[Mapping[str, FileEntry]]) -> dict[str, tuple[int, FileEntry]]:
    """name -> (the rank that stores it, the file), sorted by name.

    A file that several ranks have with equal content is stored by the lowest. Raises `InvalidInput` naming every file
    that ranks have with different content, and every name that is a file here and a directory there.
    """
    owners: dict[str, tuple[int, FileEntry]] = {}
    conflicts: list[str] = []
    for rank, files in enumerate(parts):
        for name, entry in files.items():
            if name not in owners:
                owners[name] = (rank, entry)
            elif owners[name][1] != entry:
                conflicts.append(f"{name} (ranks {owners[name][0]} and {rank})")
    directories = {name[:end] for name in owners for end in range(len(name)) if name[end] == "/"}
    conflicts += [f"{name} (a file and a directory)" for name in sorted(directories & set(owners))]
    if conflicts:
        raise InvalidInput(f"ranks saved different files under the same name: {', '.join(sorted(set(conflicts)))}")
    return dict(sorted(owners.items()))


def merge_metadata(parts: Sequence[Mapping[str, Any]], path: str = "metadata") -> dict[str, Any]:
    """Objects are merged key by key; equal values agree; anything else raises `InvalidInput` naming the key."""
    merged: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            if key not in merged:
                merged[key] = value
            elif isinstance(merged[key], Mapping) and isinstance(value, Mapping):
                merged[key] = merge_metadata([merged[key], value], f"{path}.{key}")
            elif merged[key] != value:
                raise InvalidInput(f"{path}.{key} is {merged[key]!r} on one rank and {value!r} on another")
    return merged
