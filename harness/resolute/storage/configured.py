"""From `checkpoint_storage` of the configuration, or an address that a user wrote, to a storage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from resolute.errors import FailedPrecondition, InvalidInput
from resolute.storage.base import CheckpointStorage
from resolute.storage.directory import DirectoryStorage

LATER = ("s3", "gcs", "azure")


def storage_from_config(config: Mapping[str, Any], *, shared_fs_mount: Path | None) -> CheckpointStorage:
    """The storage of an experiment configuration.

    `shared_fs_mount` is where the shared directory's `host_path` is mounted in this task; None says that the task sees
    the host's own files. Raises `InvalidInput` for a configuration that names no usable place.
    """
    kind = config.get("type")
    if kind == "shared_fs":
        return DirectoryStorage(shared_fs_root(config, shared_fs_mount))
    if kind == "directory":
        path = config.get("container_path")
        if not path:
            raise InvalidInput("checkpoint_storage.container_path is missing; name the directory for checkpoints")
        return DirectoryStorage(Path(str(path)))
    if kind in LATER:
        raise _later(str(kind))
    raise InvalidInput(f"checkpoint_storage.type is {kind!r}; use shared_fs or directory")


def shared_fs_root(config: Mapping[str, Any], mount: Path | None) -> Path:
    """The directory of a `shared_fs` storage as this task sees it."""
    host_path = config.get("host_path")
    if not host_path:
        raise InvalidInput("checkpoint_storage.host_path is missing; name the shared directory of the machines")
    host = Path(str(host_path))
    base = mount if mount is not None else host
    storage_path = config.get("storage_path")
    if not storage_path:
        return base
    below = Path(str(storage_path))
    if below.is_absolute():
        try:
            below = below.relative_to(host)
        except ValueError:
            raise InvalidInput(
                f"checkpoint_storage.storage_path {storage_path!r} does not lie below host_path {host_path!r}"
            ) from None
    if ".." in below.parts:
        raise InvalidInput(f"checkpoint_storage.storage_path {storage_path!r} must not lead out of host_path")
    return base / below


def storage_from_url(url: str) -> CheckpointStorage:
    """A directory path or a `file://` address. Cloud addresses are refused by name."""
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        raise InvalidInput(f"the storage address {url!r} has a query or a fragment, which mean nothing here")
    scheme = {"gs": "gcs", "": "file"}.get(parts.scheme, parts.scheme)
    if scheme in LATER:
        raise _later(scheme)
    if scheme != "file" or parts.netloc:
        raise InvalidInput(f"the storage address {url!r} is neither a directory path nor file:///path")
    return DirectoryStorage(Path(parts.path).absolute())


def _later(kind: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"checkpoint storage of type {kind} is not available yet; "
        "use shared_fs with a directory that all machines share"
    )
