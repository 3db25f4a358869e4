"""The shipped fake: checkpoints in this process's memory, staged in a temporary directory as a cloud's would be."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from resolute.clock import Clock, SystemClock
from resolute.errors import AlreadyExists, NotFound
from resolute.storage.manifest import checked_path


class MemoryStorage:
    """Obeys the port within one process. `scratch` is where files are staged and restored to."""

    def __init__(self, scratch: Path, *, clock: Clock | None = None) -> None:
        self._scratch = scratch
        self._clock = clock or SystemClock()
        self._staged: dict[str, dict[str, Path]] = {}
        self._put: dict[str, dict[str, bytes]] = {}
        self._touched: dict[str, datetime] = {}
        self._committed: dict[str, tuple[bytes, dict[str, bytes]]] = {}
        self._unreported: set[str] = set()

    def check_writable(self) -> None:
        """Memory can always be written."""

    def stage(self, uuid: str, part: str) -> Path:
        parts = self._staged.setdefault(uuid, {})
        if part in parts:
            raise AlreadyExists(f"part {part} of checkpoint {uuid} is already being written")
        parts[part] = Path(tempfile.mkdtemp(dir=self._scratch))
        self._touched[uuid] = self._clock.now()
        return parts[part]

    def put(self, uuid: str, part: str, names: Iterable[str]) -> None:
        wanted = [checked_path(name) for name in names]
        source = self._staged[uuid].pop(part)
        kept = self._put.setdefault(uuid, {})
        for name in wanted:
            kept[name] = (source / name).read_bytes()
        shutil.rmtree(source)
        self._touched[uuid] = self._clock.now()

    def commit(self, uuid: str, manifest: bytes) -> None:
        if uuid in self._committed:
            raise AlreadyExists(f"checkpoint {uuid} is already stored")
        self._committed[uuid] = (manifest, self._put.pop(uuid, {}))
        self._unreported.add(uuid)
        self.abort(uuid)

    def abort(self, uuid: str) -> None:
        for directory in self._staged.pop(uuid, {}).values():
            shutil.rmtree(directory, ignore_errors=True)
        self._put.pop(uuid, None)
        self._touched.pop(uuid, None)

    def manifest(self, uuid: str) -> bytes:
        if uuid not in self._committed:
            raise NotFound("checkpoint", uuid)
        return self._committed[uuid][0]

    @contextmanager
    def restore(self, uuid: str) -> Iterator[Path]:
        self.manifest(uuid)
        directory = Path(tempfile.mkdtemp(dir=self._scratch))
        try:
            for name, content in self._committed[uuid][1].items():
                target = directory / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def delete(self, uuid: str) -> None:
        self._committed.pop(uuid, None)
        self.reported(uuid)

    def list(self) -> tuple[str, ...]:
        return tuple(sorted(self._committed))

    def unreported(self) -> tuple[str, ...]:
        return tuple(sorted(self._unreported))

    def reported(self, uuid: str) -> None:
        self._unreported.discard(uuid)

    def sweep(self, older_than: datetime) -> tuple[str, ...]:
        old = sorted(uuid for uuid, touched in self._touched.items() if touched < older_than)
        for uuid in old:
            self.abort(uuid)
        return tuple(old)
