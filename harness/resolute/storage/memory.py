"""The shipped fake: objects in this process's memory, and checkpoints in them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from resolute.clock import Clock, SystemClock
from resolute.errors import AlreadyExists, NotFound
from resolute.storage.bucket import StoredObject
from resolute.storage.objects import ObjectStorage
from resolute.storage.staging import Staging

PAGE = 100


class MemoryBucket:
    """Obeys `Bucket` within one process."""

    place = "memory"
    deletes_at_once = 10

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._objects: dict[str, tuple[bytes, float]] = {}
        self._guard = threading.Lock()

    def put(self, key: str, content: bytes, *, new: bool = False) -> None:
        with self._guard:
            if new and key in self._objects:
                raise AlreadyExists(f"{key} is already there")
            self._objects[key] = (content, self._clock.now().timestamp())

    def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        with self._guard:
            if key not in self._objects:
                raise NotFound("object", key)
            content = self._objects[key][0]
        return content[start:] if length is None else content[start : start + length]

    def upload(self, key: str, path: Path) -> None:
        self.put(key, path.read_bytes())

    def download(self, key: str, path: Path) -> None:
        path.write_bytes(self.get(key))

    def page(self, prefix: str, after: str | None = None) -> tuple[Sequence[StoredObject], str | None]:
        with self._guard:
            keys = sorted(key for key in self._objects if key.startswith(prefix) and (after is None or key > after))
            found = [
                StoredObject(key=key, size=len(self._objects[key][0]), modified=self._objects[key][1])
                for key in keys[:PAGE]
            ]
        return found, keys[PAGE - 1] if len(keys) > PAGE else None

    def delete(self, keys: Sequence[str]) -> None:
        with self._guard:
            for key in keys:
                self._objects.pop(key, None)

    def drop_unfinished(self, prefix: str) -> None:
        """There are no parts."""


class MemoryStorage(ObjectStorage):
    """Checkpoints in memory. `scratch` is where files are staged and restored to."""

    def __init__(self, scratch: Path, *, clock: Clock | None = None) -> None:
        super().__init__(MemoryBucket(clock), staging=Staging(scratch))
