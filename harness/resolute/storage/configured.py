"""From `checkpoint_storage` of the configuration, or an address that a user wrote, to a storage: the one place that does it."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from resolute.beneath import Beneath, parts_of
from resolute.errors import InvalidInput
from resolute.storage.base import CheckpointStorage
from resolute.storage.directory import DirectoryStorage
from resolute.storage.retries import Retries

TYPES = ("shared_fs", "directory", "s3", "gcs", "azure")
LOCAL_TYPES = ("shared_fs", "directory")
"""Types of storage that are a directory of the machine."""


def storage_from_config(
    config: Mapping[str, Any],
    *,
    shared_fs_mount: Path | None,
    one_owner: bool = False,
    check: Callable[[Beneath], None] | None = None,
    retries: Retries | None = None,
) -> CheckpointStorage:
    """The storage of an experiment configuration.

    `shared_fs_mount` is where the shared directory's `host_path` is mounted in this task; None means that this process sees the
    host's own files. `one_owner` and `check` are those of `DirectoryStorage`, for a process that may read more than the tasks
    that write to the storage. `retries` is the retry policy for an object store.

    Raises `InvalidInput` for a configuration that names no usable place, `StorageUnavailable` where a cloud's client is missing.
    """
    kind = config.get("type")
    match kind:
        case "shared_fs":
            host = Path(_needed(config, "host_path", "name the shared directory of the machines"))
            return DirectoryStorage(
                host if shared_fs_mount is None else shared_fs_mount,
                below=below_host_path(config),
                one_owner=one_owner,
                check=check,
            )
        case "directory":
            path = Path(_needed(config, "container_path", "name the directory for checkpoints"))
            return DirectoryStorage(path, one_owner=one_owner, check=check)
        case "s3" | "gcs" | "azure":
            return _in_objects(str(kind), config, retries)
        case _:
            raise InvalidInput(f"checkpoint_storage.type is {kind!r}; use one of {', '.join(TYPES)}")


def below_host_path(config: Mapping[str, Any]) -> str:
    """`storage_path` of a `shared_fs` storage, relative to its `host_path`; empty for the directory itself."""
    host = posixpath.normpath(str(config["host_path"]))
    storage_path = config.get("storage_path")
    below = posixpath.normpath(str(storage_path or "."))
    if below.startswith("/"):
        below = posixpath.relpath(below, host)
    try:
        return "/".join(parts_of(below))
    except InvalidInput:
        raise InvalidInput(
            f"checkpoint_storage.storage_path {storage_path!r} does not stay inside of host_path {host!r}"
        ) from None


def storage_from_url(url: str) -> CheckpointStorage:
    """A directory path, or an address: `file:///path`, `s3://bucket/prefix`, `gs://bucket/prefix`."""
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        raise InvalidInput(f"the storage address {url!r} has a query or a fragment, which have no meaning here")
    if parts.scheme in ("s3", "gs") and parts.netloc:
        config = {"type": {"gs": "gcs"}.get(parts.scheme, parts.scheme), "bucket": parts.netloc, "prefix": parts.path}
        return storage_from_config(config, shared_fs_mount=None)
    if parts.scheme not in ("", "file") or parts.netloc:
        raise InvalidInput(
            f"the storage address {url!r} is none of a directory path, file:///path, s3://bucket/prefix and gs://bucket/prefix; "
            "for Azure pass the configuration as a mapping"
        )
    return DirectoryStorage(Path(parts.path).absolute())


def _in_objects(kind: str, config: Mapping[str, Any], retries: Retries | None) -> CheckpointStorage:
    # A task with a directory needs only the standard library: the rest is loaded for buckets.
    from resolute.storage.objects import ObjectStorage

    if kind == "s3":
        from resolute.storage.s3 import S3Bucket

        bucket = S3Bucket(
            _needed(config, "bucket", "name the bucket"),
            access_key=config.get("access_key"),
            secret_key=config.get("secret_key"),
            endpoint_url=config.get("endpoint_url"),
        )
        return ObjectStorage(bucket, prefix=_prefix(config), retries=retries)
    if kind == "gcs":
        from resolute.storage.gcs import GcsBucket

        google = GcsBucket(_needed(config, "bucket", "name the bucket"))
        return ObjectStorage(google, prefix=_prefix(config), retries=retries)
    from resolute.storage.azure import AzureContainer

    if not config.get("connection_string"):
        _needed(config, "account_url", "name the storage account, or give checkpoint_storage.connection_string")
    container = AzureContainer(
        _needed(config, "container", "name the container"),
        connection_string=config.get("connection_string"),
        account_url=config.get("account_url"),
        credential=config.get("credential"),
    )
    return ObjectStorage(container, retries=retries)


def _prefix(config: Mapping[str, Any]) -> str:
    """The prefix of keys, as in the released harness, so that each finds what the other has saved."""
    prefix = config.get("prefix") or ""
    return posixpath.normpath(str(prefix)).lstrip("/") if prefix else ""


def _needed(config: Mapping[str, Any], key: str, advice: str) -> str:
    value = config.get(key)
    if not value:
        raise InvalidInput(f"checkpoint_storage.{key} is missing; {advice}")
    return str(value)
