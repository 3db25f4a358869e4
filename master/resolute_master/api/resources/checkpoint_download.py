"""A checkpoint's files as one archive, packed while it is sent.

The master reads storages that it can reach itself; a refusal names a storage that only tasks can reach. An uncompressed tar has a
known length and can be requested from any byte on (`Range`, with `If-Range`).
"""

from __future__ import annotations

import asyncio
import io
import logging
import shutil
import stat
import tarfile
import zipfile
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
from aiohttp import web

from resolute.beneath import readable
from resolute.errors import FailedPrecondition, InvalidInput, NotFound, ResoluteError
from resolute.storage import FileKind, OpenCheckpoint, StorageUnavailable, StoredFile
from resolute.storage.verified import Verified, verified
from resolute.wire.states import CheckpointState
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Route
from resolute_master.api.reading.finders import find_checkpoint, find_experiment
from resolute_master.api.render.checkpoint_tar import layout_of, write_tar
from resolute_master.api.submission.host_paths import rules_of
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.engine.checkpoint_storage import StorageAccess

log = logging.getLogger(__name__)

TAR = "application/x-tar"

CHUNK_BYTES = 1024 * 1024
CHUNKS_AHEAD = 8
"""Chunks that the packer may be ahead of the network."""

OLDEST_IN_ZIP = datetime(1980, 1, 1, tzinfo=UTC).timestamp()
NEWEST_IN_ZIP = datetime(2107, 12, 31, tzinfo=UTC).timestamp()
"""Latest time in a ZIP archive, which stores years in seven bits."""

AVAILABLE = (CheckpointState.COMPLETED, CheckpointState.PARTIALLY_DELETED)


async def _wanted(call: Call) -> Checkpoint:
    text = call.text("uuid")
    try:
        return await find_checkpoint(call.api, str(UUID(text)))
    except ValueError:
        raise InvalidInput(f"'{text}' is no UUID of a checkpoint") from None


async def download(call: Call, checkpoint: Checkpoint) -> web.StreamResponse:
    """The files of a checkpoint as an archive, in the format of the `Accept` header; tar.gz by default."""
    kind = _format(call.request.headers.get("Accept", "*/*"))
    if why := no_files(checkpoint):
        raise FailedPrecondition(why)
    experiment = await find_experiment(call.api, checkpoint.experiment_id)
    access = StorageAccess(rules=rules_of(call.api.config, call.api.own_files))
    try:
        opened = await asyncio.to_thread(_opened, access, experiment.config["checkpoint_storage"], checkpoint.uuid)
    except (NotFound, StorageUnavailable) as error:
        raise FailedPrecondition(str(error)) from None
    with opened:
        return await (_sent_tar(call, opened) if kind == TAR else _sent(call, opened, kind))


async def verify(call: Call, checkpoint: Checkpoint) -> Verified:
    """Compares its files with what was saved, in their storage. Raises `CorruptCheckpoint` naming the first difference, and
    `FailedPrecondition` where the master cannot read them."""
    if why := no_files(checkpoint):
        raise FailedPrecondition(why)
    experiment = await find_experiment(call.api, checkpoint.experiment_id)
    access = StorageAccess(rules=rules_of(call.api.config, call.api.own_files))
    config = experiment.config["checkpoint_storage"]
    try:
        return await asyncio.to_thread(lambda: verified(access.storage(config), checkpoint.uuid, checkpoint.resources))
    except (NotFound, StorageUnavailable) as error:
        raise FailedPrecondition(str(error)) from None


def no_files(checkpoint: Checkpoint) -> str:
    """The reason why the checkpoint has no files; "" if it should have files."""
    if checkpoint.state in AVAILABLE:
        return ""
    return f"checkpoint '{checkpoint.uuid}' is {checkpoint.state.value}: it has no files"


def _opened(access: StorageAccess, storage: Mapping[str, Any], uuid: str) -> OpenCheckpoint:
    """The opened checkpoint. Its files are listed first, so that a refusal precedes the beginning of the answer."""
    opened = access.storage(storage).open(uuid)
    try:
        opened.check()
    except BaseException:
        opened.close()
        raise
    return opened


async def _sent(call: Call, stored: OpenCheckpoint, kind: str) -> web.StreamResponse:
    # No Content-Encoding: clients feed the bytes to an archive reader as they come.
    response = web.StreamResponse(headers={"Content-Type": kind})
    response.enable_chunked_encoding()
    await response.prepare(call.request)
    return await _written(call.request, response, packed(stored, PACKERS[kind]))


async def _sent_tar(call: Call, stored: OpenCheckpoint) -> web.StreamResponse:
    """Sends a tar, or the requested part of it."""
    layout = await asyncio.to_thread(lambda: layout_of(_sendable(stored)))
    etag = f'"{layout.etag}"'
    start, stop = _wanted_part(call.request, etag, layout.size)
    headers = {"Content-Type": TAR, "Accept-Ranges": "bytes", "ETag": etag, "Content-Length": str(stop - start)}
    part = (start, stop) != (0, layout.size)
    if part:
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{layout.size}"
    response = web.StreamResponse(status=206 if part else 200, headers=headers)
    await response.prepare(call.request)

    def pack(opened: OpenCheckpoint, out: io.RawIOBase) -> None:
        write_tar(opened, _sendable(opened), layout, out, start, stop)

    return await _written(call.request, response, packed(stored, pack))


async def _written(
    request: web.Request, response: web.StreamResponse, archive: AsyncGenerator[bytes, None]
) -> web.StreamResponse:
    async with aclosing(archive) as chunks:
        try:
            async for chunk in chunks:
                await response.write(chunk)
        except (OSError, ResoluteError) as error:
            # An answer that has begun cannot become a refusal: closing the connection shows that data is missing.
            if request.transport is not None:
                request.transport.abort()
            if isinstance(error, ConnectionResetError):
                raise
            log.warning("the download of %s broke off: %s", request.path, error)
            raise ConnectionResetError from error
    await response.write_eof()
    return response


def _wanted_part(request: web.Request, etag: str, size: int) -> tuple[int, int]:
    """The first byte of the requested part, and the byte after its last. It is everything if the checkpoint has changed, or if
    no part is requested.

    Raises HTTP 416 for a part that does not exist.
    """
    if request.headers.get("If-Range", etag) != etag:
        return 0, size
    try:
        asked = request.http_range
    except ValueError:
        return 0, size
    start, stop, _ = asked.indices(size)
    if start >= stop:
        raise web.HTTPRequestRangeNotSatisfiable(
            headers={"Content-Range": f"bytes */{size}", "ETag": etag},
            text=_message(f"Range: the archive has {size} bytes, and the range contains none of them"),
            content_type="application/json",
        )
    return start, stop


# --------------------------------------------------------------------------------------------------------- packing

Pack = Callable[[OpenCheckpoint, io.RawIOBase], None]


def _tgz(stored: OpenCheckpoint, out: io.RawIOBase) -> None:
    with tarfile.open(fileobj=out, mode="w|gz") as archive:
        for file in _sendable(stored):
            if file.kind is FileKind.DIRECTORY:
                archive.addfile(_member(file, tarfile.DIRTYPE))
                continue
            stream, size = stored.open(file)
            with stream:
                member = _member(file, tarfile.REGTYPE)
                member.size = size
                archive.addfile(member, stream)


def _member(file: StoredFile, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(file.path)
    member.type, member.mode, member.mtime = kind, file.mode, int(file.modified)
    return member


def _zip(stored: OpenCheckpoint, out: io.RawIOBase) -> None:
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in _sendable(stored):
            path = readable(file.path)
            if file.kind is FileKind.DIRECTORY:
                archive.writestr(_entry(f"{path}/", file, stat.S_IFDIR), b"")
                continue
            stream, size = stored.open(file)
            with stream:
                entry = _entry(path, file, stat.S_IFREG)
                entry.file_size = size
                with archive.open(entry, "w") as target:
                    shutil.copyfileobj(stream, target, CHUNK_BYTES)


def _entry(path: str, file: StoredFile, kind: int) -> zipfile.ZipInfo:
    moment = datetime.fromtimestamp(min(max(file.modified, OLDEST_IN_ZIP), NEWEST_IN_ZIP), UTC)
    entry = zipfile.ZipInfo(path, moment.timetuple()[:6])
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (kind | file.mode) << 16
    return entry


def _sendable(stored: OpenCheckpoint) -> Iterator[StoredFile]:
    """Files and directories, parents first. A link could lead anywhere, and what is no file has no content: both are left out."""
    return (file for file in stored.files() if file.kind is not FileKind.OTHER)


PACKERS: Mapping[str, Pack] = {"application/gzip": _tgz, "application/zip": _zip}
FORMATS = (*sorted(PACKERS), TAR)


def _format(accept: str) -> str:
    """The first format in `accept` that is supported. Raises HTTP 415, as in the contract."""
    asked = [part.partition(";")[0].strip() for part in accept.split(",")]
    for name in asked:
        if name in FORMATS:
            return name
    if "*/*" in asked or "application/*" in asked:
        return "application/gzip"
    message = f"Accept: {accept} is not available; request one of {', '.join(FORMATS)}"
    raise web.HTTPUnsupportedMediaType(text=_message(message), content_type="application/json")


def _message(text: str) -> str:
    return msgspec.json.encode({"message": text}).decode()


class _Abandoned(Exception):
    """Raised when the caller has stopped reading."""


class _Pipe(io.RawIOBase):
    """A pipe from a packer in a thread to the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.chunks: asyncio.Queue[bytes | None] = asyncio.Queue(CHUNKS_AHEAD)
        self.abandoned = False
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._buffer += data
        while len(self._buffer) >= CHUNK_BYTES:
            self._put(bytes(self._buffer[:CHUNK_BYTES]))
            del self._buffer[:CHUNK_BYTES]
        return len(data)

    def finish(self) -> None:
        if self._buffer:
            self._put(bytes(self._buffer))
        self._put(None)

    def _put(self, chunk: bytes | None) -> None:
        """Adds a chunk, after waiting until there is room: a slow reader slows the packer down."""
        if self.abandoned:
            raise _Abandoned
        asyncio.run_coroutine_threadsafe(self.chunks.put(chunk), self._loop).result()


async def packed(stored: OpenCheckpoint, pack: Pack) -> AsyncGenerator[bytes, None]:
    """The archive in chunks; the storage is read in a thread, not faster than the chunks are taken."""
    pipe = _Pipe()

    def work() -> None:
        with suppress(_Abandoned):
            pack(stored, pipe)
            pipe.finish()

    packer = asyncio.create_task(asyncio.to_thread(work))
    try:
        while True:
            taking = asyncio.create_task(pipe.chunks.get())
            await asyncio.wait([taking, packer], return_when=asyncio.FIRST_COMPLETED)
            if not taking.done():
                taking.cancel()
                packer.result()  # it ended before its last chunk: this raises why
            chunk = await taking
            if chunk is None:
                return
            yield chunk
    finally:
        pipe.abandoned = True
        while not packer.done():
            while not pipe.chunks.empty():
                pipe.chunks.get_nowait()
            await asyncio.wait([packer], timeout=0.05)


ROUTES = (Route("GET", "/checkpoints/{uuid}", Action.VIEW, _wanted, download),)
