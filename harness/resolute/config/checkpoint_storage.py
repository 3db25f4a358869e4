"""Where checkpoints are kept, and how many of them."""

from __future__ import annotations

import posixpath
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Discriminator, Tag, model_validator

from resolute.config.base import ConfigModel, Count, NonEmptyText, StorageSecret, TaggedUnion, Text, broken_rule
from resolute.config.environment import Propagation

_HDFS = "hdfs storage was removed; copy the checkpoints to a shared directory and use shared_fs"


class _Counters(ConfigModel):
    save_experiment_best: Count = 0
    """Checkpoints to keep of the experiment's best."""
    save_trial_best: Count = 1
    """Checkpoints to keep of each trial's best."""
    save_trial_latest: Count = 1
    """Checkpoints to keep of each trial's newest."""


class _SharedFs(ConfigModel):
    omitted_when_null: ClassVar[frozenset[str]] = frozenset({"container_path", "checkpoint_path", "tensorboard_path"})

    type: Literal["shared_fs"] = "shared_fs"
    """Tag of the storage."""
    host_path: NonEmptyText
    """The shared directory, at the same path on every machine."""
    storage_path: Text | None = None
    """Where in it: relative, or absolute and below it."""
    propagation: Propagation = "rprivate"
    """How later mounts below the directory spread."""
    container_path: Text | None = None
    """Has no effect; accepted for old configurations."""
    checkpoint_path: Text | None = None
    """Has no effect; accepted for old configurations."""
    tensorboard_path: Text | None = None
    """Has no effect; accepted for old configurations."""

    @model_validator(mode="after")
    def _inside(self) -> Self:
        if self.storage_path is None:
            return self
        path = posixpath.normpath(self.storage_path)
        host = posixpath.normpath(self.host_path)
        below = path == host or path.startswith(host if host.endswith("/") else f"{host}/")
        inside = below if path.startswith("/") else path != ".." and not path.startswith("../")
        if not inside:
            raise broken_rule("storage_path must either be a relative directory or a subdirectory of host_path")
        return self

    @property
    def relative_path(self) -> str:
        """`storage_path` relative to `host_path`; empty for the directory itself."""
        path = posixpath.normpath(self.storage_path or ".")
        if path.startswith("/"):
            path = posixpath.relpath(path, posixpath.normpath(self.host_path))
        return "" if path == "." else path


def _prefix(prefix: str) -> str:
    if ".." in prefix.split("/"):
        raise broken_rule("prefix cannot contain /../; write the path without it")
    return prefix


Prefix = Annotated[Text, AfterValidator(_prefix)]


class _S3(ConfigModel):
    type: Literal["s3"] = "s3"
    """Tag of the storage."""
    bucket: NonEmptyText
    """The bucket."""
    access_key: StorageSecret | None = None
    """Access key; null means the machine's own identity."""
    secret_key: StorageSecret | None = None
    """Its secret."""
    endpoint_url: Text | None = None
    """Another service with the S3 API."""
    prefix: Prefix | None = None
    """Path in the bucket."""


class _Gcs(ConfigModel):
    type: Literal["gcs"] = "gcs"
    """Tag of the storage."""
    bucket: NonEmptyText
    """The bucket."""
    prefix: Prefix | None = None
    """Path in the bucket."""


class SharedFsStorage(_SharedFs, _Counters):
    """A directory that every machine can reach; mounted in containers at `/determined_shared_fs`."""


class DirectoryStorage(_Counters):
    """A directory as the task sees it; nothing is mounted for you."""

    type: Literal["directory"] = "directory"
    """Tag of the storage."""
    container_path: NonEmptyText
    """Path as the task sees it."""


class S3Storage(_S3, _Counters):
    """A bucket on S3 or on a service with its API."""


class GcsStorage(_Gcs, _Counters):
    """A bucket on Google Cloud Storage."""


class AzureStorage(_Counters):
    """A container of Azure Blob Storage."""

    type: Literal["azure"] = "azure"
    """Tag of the storage."""
    container: NonEmptyText
    """The blob container."""
    connection_string: StorageSecret | None = None
    """Account and credentials in one text."""
    account_url: Text | None = None
    """The account, when there is no connection string."""
    credential: StorageSecret | None = None
    """Credential for `account_url`."""

    @model_validator(mode="after")
    def _credentials(self) -> Self:
        if self.credential is not None and self.connection_string is not None:
            raise broken_rule("credential and connection_string must not both be set")
        if (self.connection_string is None) == (self.account_url is None):
            raise broken_rule("Exactly one of connection_string or account_url must be set")
        return self


STORAGE_TYPES = ("shared_fs", "directory", "s3", "gcs", "azure")
_TYPES = TaggedUnion("type", STORAGE_TYPES, {"hdfs": _HDFS})

CheckpointStorage = Annotated[
    Annotated[SharedFsStorage, Tag("<shared_fs>")]
    | Annotated[DirectoryStorage, Tag("<directory>")]
    | Annotated[S3Storage, Tag("<s3>")]
    | Annotated[GcsStorage, Tag("<gcs>")]
    | Annotated[AzureStorage, Tag("<azure>")],
    Discriminator(_TYPES.member),
    BeforeValidator(_TYPES.check),
]


class TensorboardSharedFs(_SharedFs):
    """Old place for TensorBoard files."""


class TensorboardS3(_S3):
    """Old place for TensorBoard files."""


class TensorboardGcs(_Gcs):
    """Old place for TensorBoard files."""


_TENSORBOARD_TYPES = TaggedUnion("type", ("shared_fs", "s3", "gcs"))

TensorboardStorage = Annotated[
    Annotated[TensorboardSharedFs, Tag("<shared_fs>")]
    | Annotated[TensorboardS3, Tag("<s3>")]
    | Annotated[TensorboardGcs, Tag("<gcs>")],
    Discriminator(_TENSORBOARD_TYPES.member),
    BeforeValidator(_TENSORBOARD_TYPES.check),
]
