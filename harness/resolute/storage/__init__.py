"""Checkpoint storage: where the files of checkpoints are kept, behind one small port.

Publishes a set of files all at once and restores it whole. Must not depend on masters, trials or frameworks. `base` is the
contract; `directory` implements it on a file system, `objects` on any object store (`bucket`: `s3`, `gcs`, `azure`, each through
its vendor's client, which is imported nowhere else), `memory` is the shipped fake. `configured` finds the storage that a
configuration names, for harness, master and command line.
"""

from resolute.storage.base import (
    CheckpointStorage,
    FileKind,
    NotMounted,
    OpenCheckpoint,
    StorageAway,
    StorageUnavailable,
    StoredFile,
)
from resolute.storage.configured import storage_from_config, storage_from_url
from resolute.storage.directory import DirectoryStorage
from resolute.storage.manifest import MANIFEST_NAME, CorruptCheckpoint, FileEntry, Manifest, Verify, verify
from resolute.storage.memory import MemoryStorage

__all__ = [
    "MANIFEST_NAME",
    "CheckpointStorage",
    "CorruptCheckpoint",
    "DirectoryStorage",
    "FileEntry",
    "FileKind",
    "Manifest",
    "MemoryStorage",
    "NotMounted",
    "OpenCheckpoint",
    "StorageAway",
    "StorageUnavailable",
    "StoredFile",
    "Verify",
    "storage_from_config",
    "storage_from_url",
    "verify",
]
