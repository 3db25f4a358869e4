"""Checkpoints in an object store, which knows neither directories nor renames.

    <prefix>/<uuid>/<path>                           a file of a checkpoint
    <prefix>/<uuid>/manifest.json                    written last, once: with it the checkpoint is there
    <prefix>/.resolute/unfinished/<uuid>/<part>      a process writes to that checkpoint, or removes it
    <prefix>/.resolute/unreported/<uuid>             the master may not know of it

A mark is written before the first file and removed after the last step, so whatever dies in between leaves a mark, and the
sweep looks at nothing else: checkpoints of a harness without manifests and marks are in the same bucket, and are never taken for
leftovers.
"""

from __future__ import annotations

import io
import logging
import shutil
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Self, TypeVar

from resolute.errors import AlreadyExists, InvalidInput, NotFound
from resolute.ids import IdSource, SystemIds
from resolute.storage.base import FileKind, Selector, StorageUnavailable, StoredFile
from resolute.storage.bucket import Bucket, StoredObject
from resolute.storage.manifest import (
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    CorruptCheckpoint,
    Manifest,
    checked_path,
    only_about,
)
from resolute.storage.retries import Retries
from resolute.storage.staging import Staging

logger = logging.getLogger("resolute.storage")

FILES_AT_ONCE = 8
"""Files on their way at the same time. With the parts of large ones this fills the network of one machine."""

READ_BYTES = 8 * 1024**2
"""Read ahead of a stream: large enough that the time to the first byte of a request does not count."""

MARKS = ".resolute"
A = TypeVar("A")


class ObjectStorage:
    """Obeys the port on any `Bucket`. `prefix` goes before every key."""

    def __init__(
        self,
        bucket: Bucket,
        *,
        prefix: str = "",
        staging: Staging | None = None,
        retries: Retries | None = None,
        ids: IdSource | None = None,
    ) -> None:
        self._bucket = bucket
        self._above = f"{prefix}/" if prefix else ""
        self._staging = staging or Staging()
        self._retries = retries or Retries()
        self._ids = ids or SystemIds()
        self._parts: dict[str, dict[str, Path]] = {}
        self._guard = threading.Lock()

    direct = False

    @property
    def place(self) -> str:
        return f"{self._bucket.place}/{self._above}".rstrip("/")

    def check_writable(self) -> None:
        key = f"{self._above}{MARKS}/writable-{self._ids.uuid()}"
        self._call(lambda: self._bucket.put(key, b"resolute"))
        if self._call(lambda: self._bucket.get(key)) != b"resolute":
            raise StorageUnavailable(f"an object that was just written to {self.place} reads back differently")
        self._call(lambda: self._bucket.page(key))
        self._call(lambda: self._bucket.delete([key]))

    # -- writing ---------------------------------------------------------------------------------------------------

    def stage(self, uuid: str, part: str) -> Path:
        _plain(uuid)
        _plain(part)
        with self._guard:
            parts = self._parts.setdefault(uuid, {})
            if part in parts:
                raise AlreadyExists(f"part {part} of checkpoint {uuid} is already being written")
            parts[part] = self._staging.fresh()
            return parts[part]

    def put(self, uuid: str, part: str, names: Iterable[str]) -> None:
        wanted = sorted(checked_path(name) for name in names)
        source = self._parts[uuid][part]
        self._mark(uuid, part)
        self._each(lambda name: self._bucket.upload(self._key(uuid, name), source / name), wanted)
        with self._guard:
            shutil.rmtree(source)
            del self._parts[uuid][part]

    def commit(self, uuid: str, manifest: bytes) -> None:
        key = self._key(uuid, MANIFEST_NAME)
        if self._committed(uuid):  # for stores that do not know the condition below
            raise AlreadyExists(f"checkpoint {uuid} is already stored")
        self._mark(uuid, "commit")
        self._call(lambda: self._bucket.put(self._unreported(uuid), b""))
        try:
            self._call(lambda: self._bucket.put(key, manifest, new=True))
        except AlreadyExists:
            if self._call(lambda: self._bucket.get(key)) != manifest:  # else it is ours: the answer to it was lost
                raise AlreadyExists(f"checkpoint {uuid} is already stored") from None
        self._unmark(uuid)
        self._drop_staged(uuid)

    def abort(self, uuid: str) -> None:
        self._drop_staged(uuid)
        if next(self._listed(self._unfinished(uuid)), None) is None:
            return
        if not self._committed(uuid):
            self._remove_files_of(uuid)
            self._call(lambda: self._bucket.delete([self._unreported(uuid)]))
        self._unmark(uuid)

    # -- reading ---------------------------------------------------------------------------------------------------

    def manifest(self, uuid: str) -> bytes:
        key = self._key(uuid, MANIFEST_NAME)
        try:
            data = self._call(lambda: self._bucket.get(key, length=MAX_MANIFEST_BYTES + 1))
        except NotFound:
            raise NotFound("checkpoint", uuid) from None
        if len(data) > MAX_MANIFEST_BYTES:
            raise CorruptCheckpoint(uuid, f"its manifest has more than {MAX_MANIFEST_BYTES} bytes")
        return data

    @contextmanager
    def restore(self, uuid: str, *, wanted: Selector | None = None, without_manifest: bool = False) -> Iterator[Path]:
        if not without_manifest:
            self.manifest(uuid)
        with self.open(uuid) as stored:
            found = [file for file in stored.files() if wanted is None or wanted(file.path)]
        directory = self._staging.fresh()
        try:
            for file in found:
                target = directory / file.path
                (target if file.kind is FileKind.DIRECTORY else target.parent).mkdir(parents=True, exist_ok=True)
            names = [file.path for file in found if file.kind is FileKind.FILE]
            self._each(lambda name: self._bucket.download(self._key(uuid, name), directory / name), names)
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def open(self, uuid: str) -> OpenObjects:
        if next(self._listed(self._key(uuid, "")), None) is None:
            raise NotFound("checkpoint", uuid, f"there are no files in {self.place}/{uuid}")
        return OpenObjects(
            above=self._key(uuid, ""),
            listed=lambda: self._listed(self._key(uuid, "")),
            read=lambda key, start, length: self._call(lambda: self._bucket.get(key, start=start, length=length)),
        )

    def list(self) -> tuple[str, ...]:
        found = set()
        for each in self._listed(self._above):
            uuid, _, rest = each.key.removeprefix(self._above).partition("/")
            if rest == MANIFEST_NAME:
                found.add(uuid)
        return tuple(sorted(found))

    # -- removing --------------------------------------------------------------------------------------------------

    def delete(self, uuid: str) -> None:
        above = self._key(uuid, "")
        found = [each.key for each in self._listed(above)]
        mark = f"{self._unfinished(uuid)}delete"
        if found:
            self._mark(uuid, "delete")
            self._remove_one_by_one([self._key(uuid, MANIFEST_NAME)])
            self._call(lambda: self._bucket.drop_unfinished(above))
            self._remove(key for key in found if key != self._key(uuid, MANIFEST_NAME))
        self._remove_one_by_one([self._unreported(uuid), mark])  # the mark of another process is left to the sweep

    def remove_files(self, uuid: str, matches: Selector) -> dict[str, int]:
        above = self._key(uuid, "")
        found = {each.key.removeprefix(above): each.size for each in self._listed(above)}
        if not found:
            return {}
        manifest = self._own_manifest(uuid) if MANIFEST_NAME in found else None
        removed = {name for name in found if matches(name.rstrip("/"))}
        if manifest is not None:
            removed.discard(MANIFEST_NAME)
            if not removed.isdisjoint(manifest.files):
                new = only_about(manifest, lambda name: name not in removed).to_bytes()
                self._call(lambda: self._bucket.put(above + MANIFEST_NAME, new))
                found[MANIFEST_NAME] = len(new)
        self._remove([above + name for name in sorted(removed)])
        left = {name: size for name, size in found.items() if name not in removed}
        if not left or (manifest is not None and left.keys() == {MANIFEST_NAME}):
            self.delete(uuid)
            return {}
        return _with_directories(left)

    def remove_below(self, path: str) -> None:
        self._remove(each.key for each in self._listed(f"{self._above}{checked_path(path)}/"))

    # -- marks -----------------------------------------------------------------------------------------------------

    def unreported(self) -> tuple[str, ...]:
        above = self._unreported("")
        return tuple(sorted(each.key.removeprefix(above) for each in self._listed(above)))

    def reported(self, uuid: str) -> None:
        self._call(lambda: self._bucket.delete([self._unreported(uuid)]))

    def sweep(self, older_than: datetime) -> tuple[str, ...]:
        self._staging.sweep()
        above = f"{self._above}{MARKS}/unfinished/"
        touched: dict[str, float] = defaultdict(float)
        for each in self._listed(above):
            uuid = each.key.removeprefix(above).partition("/")[0]
            touched[uuid] = max(touched[uuid], each.modified)
        removed = []
        for uuid, moment in sorted(touched.items()):
            if datetime.fromtimestamp(moment, UTC) >= older_than:
                continue
            if not self._committed(uuid):  # else only the last step is missing
                self._remove_files_of(uuid)
                self.reported(uuid)
                removed.append(uuid)
            self._unmark(uuid)
        return tuple(removed)

    # -- internals -------------------------------------------------------------------------------------------------

    def _key(self, uuid: str, name: str) -> str:
        return f"{self._above}{_plain(uuid)}/{name}"

    def _unfinished(self, uuid: str) -> str:
        return f"{self._above}{MARKS}/unfinished/{_plain(uuid)}/"

    def _unreported(self, uuid: str) -> str:
        return f"{self._above}{MARKS}/unreported/{uuid}"

    def _mark(self, uuid: str, part: str) -> None:
        self._call(lambda: self._bucket.put(f"{self._unfinished(uuid)}{_plain(part)}", b""))

    def _unmark(self, uuid: str) -> None:
        self._remove(each.key for each in self._listed(self._unfinished(uuid)))

    def _committed(self, uuid: str) -> bool:
        key = self._key(uuid, MANIFEST_NAME)
        return any(each.key == key for each in self._call(lambda: self._bucket.page(key))[0])

    def _own_manifest(self, uuid: str) -> Manifest | None:
        """None where a harness that writes none has saved; a file of the user's may have the same name there."""
        try:
            return Manifest.from_bytes(uuid, self.manifest(uuid))
        except CorruptCheckpoint:
            return None

    def _remove_files_of(self, uuid: str) -> None:
        above = self._key(uuid, "")
        self._call(lambda: self._bucket.drop_unfinished(above))
        self._remove(each.key for each in self._listed(above))

    def _remove(self, keys: Iterable[str]) -> None:
        at_once = self._bucket.deletes_at_once
        waiting = iter(keys)
        while some := list(islice(waiting, at_once * FILES_AT_ONCE)):
            self._each(self._bucket.delete, [some[at : at + at_once] for at in range(0, len(some), at_once)])

    def _remove_one_by_one(self, keys: Sequence[str]) -> None:
        """Removed one after another, or all at once: a process that dies in between leaves the last ones."""
        for at in range(0, len(keys), self._bucket.deletes_at_once):
            some = keys[at : at + self._bucket.deletes_at_once]
            self._call(partial(self._bucket.delete, some))

    def _listed(self, prefix: str) -> Iterator[StoredObject]:
        after: str | None = None
        while True:
            found, after = self._page(prefix, after)
            yield from found
            if after is None:
                return

    def _page(self, prefix: str, after: str | None) -> tuple[Sequence[StoredObject], str | None]:
        return self._call(lambda: self._bucket.page(prefix, after))

    def _call(self, action: Callable[[], A]) -> A:
        return self._retries.call(action)

    def _each(self, action: Callable[[A], None], values: Sequence[A]) -> None:
        """For each value, several at once; the first error ends it, after what was begun has ended."""
        if len(values) <= 1:
            for value in values:
                self._call(partial(action, value))
            return
        with ThreadPoolExecutor(min(len(values), FILES_AT_ONCE), thread_name_prefix="checkpoint") as pool:
            futures = [pool.submit(self._call, partial(action, value)) for value in values]
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            pool.shutdown(cancel_futures=True)
            for future in done:
                future.result()

    def _drop_staged(self, uuid: str) -> None:
        with self._guard:
            for directory in self._parts.pop(uuid, {}).values():
                shutil.rmtree(directory, ignore_errors=True)


class OpenObjects:
    """The objects of one checkpoint. Names that do not stay inside the checkpoint are left out."""

    def __init__(
        self,
        *,
        above: str,
        listed: Callable[[], Iterator[StoredObject]],
        read: Callable[[str, int, int], bytes],
    ) -> None:
        self._above = above
        self._listed = listed
        self._read = read

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is held open."""

    def check(self) -> None:
        """What may be listed may be read."""

    def files(self) -> Iterator[StoredFile]:
        """Directories follow from the names."""
        seen: set[str] = set()
        for each in self._listed():
            path = each.key.removeprefix(self._above)
            try:
                checked_path(path)
            except InvalidInput:
                continue
            for parent in (
                *reversed(PurePosixPath(path).parents),
                *([PurePosixPath(path)] if path.endswith("/") else ()),
            ):
                name = parent.as_posix()
                if parent.parts and name not in seen:
                    seen.add(name)
                    yield StoredFile(path=name, kind=FileKind.DIRECTORY, size=0, modified=each.modified, mode=0o755)
            if not path.endswith("/"):
                yield StoredFile(path=path, kind=FileKind.FILE, size=each.size, modified=each.modified, mode=0o644)

    def open(self, file: StoredFile) -> tuple[BinaryIO, int]:
        raw = _Ranges(self._read, self._above + file.path, file.size)
        return io.BufferedReader(raw, READ_BYTES), file.size


class _Ranges(io.RawIOBase):
    """An object as a stream, fetched in ranges: one that fails is fetched again, and the reader does not notice."""

    def __init__(self, read: Callable[[str, int, int], bytes], key: str, size: int) -> None:
        super().__init__()
        self._read = read
        self._key = key
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence])
        return self._at

    def readall(self) -> bytes:
        """Not in the small pieces of the base class: each is a request."""
        parts = []
        while part := self.read(READ_BYTES):
            parts.append(part)
        return b"".join(parts)

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        length = min(len(view), READ_BYTES, self._size - self._at)
        if length <= 0:
            return 0
        data = self._read(self._key, self._at, length)
        if len(data) != length:
            raise StorageUnavailable(f"{self._key} has become shorter while it was read; read it again")
        view[:length] = data
        self._at += length
        return length


def _with_directories(sizes: dict[str, int]) -> dict[str, int]:
    """As `resources` of a manifest shows them."""
    found = dict(sizes)
    for name in sizes:
        for parent in PurePosixPath(name).parents:
            if parent.parts:
                found[f"{parent.as_posix()}/"] = 0
    return dict(sorted(found.items()))


def _plain(name: str) -> str:
    if not name or "/" in name or name in (".", "..", MARKS) or "\0" in name:
        raise InvalidInput(f"{name!r} cannot name a checkpoint or a part of one")
    return name
