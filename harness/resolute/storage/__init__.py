"""Checkpoint storage: where the files of checkpoints are kept, behind one small port.

Knows how to publish a set of files all at once and to find it again whole. Must not know masters, trials or
frameworks. `base` is the contract, `directory` the implementation on a file system, `memory` the shipped fake.
"""

from resolute.storage.base import CheckpointStorage, StorageUnavailable
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
    "Manifest",
    "MemoryStorage",
    "StorageUnavailable",
    "Verify",
    "storage_from_config",
    "storage_from_url",
    "verify",
]
