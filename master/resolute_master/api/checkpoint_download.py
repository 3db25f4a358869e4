"""A checkpoint's files as one archive, packed while it is sent.

The master reads directories that it can reach itself; a storage that only tasks see is named in the refusal.
"""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import stat
import tarfile
import zipfile
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID

import msgspec
from aiohttp import web

from resolute.errors import FailedPrecondition, InvalidInput
from resolute.host_paths import HostPathRules
from resolute.storage.beneath import Beneath, Found, readable
from resolute.wire.states import CheckpointState
from resolute_master.api.authorise import Action
from resolute_master.api.call import Call, Route
from resolute_master.api.finders import find_checkpoint, find_experiment
from resolute_master.api.host_paths import rules_of
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.engine.checkpoint_storage import StorageAccess, reachable

CHUNK_BYTES = 1024 * 1024
CHUNKS_AHEAD = 8
"""The packer waits for the network when it is so far ahead."""

OLDEST_IN_ZIP = datetime(1980, 1, 1, tzinfo=UTC).timestamp()
NEWEST_IN_ZIP = datetime(2107, 12, 31, tzinfo=UTC).timestamp()
"""The format writes years in seven bits."""

AVAILABLE = (CheckpointState.COMPLETED, CheckpointState.PARTIALLY_DELETED)


async def _wanted(call: Call) -> Checkpoint:
    text = call.text("uuid")
    try:
        return await find_checkpoint(call.api, str(UUID(text)))
    except ValueError:
        raise InvalidInput(f"'{text}' is no UUID of a checkpoint") from None


async def download(call: Call, checkpoint: Checkpoint) -> web.StreamResponse:
    kind, pack = _format(call.request.headers.get("Accept", "*/*"))
    if checkpoint.state not in AVAILABLE:
        raise FailedPrecondition(f"checkpoint '{checkpoint.uuid}' is {checkpoint.state.value}: it has no files")
    experiment = await find_experiment(call.api, checkpoint.experiment_id)
    rules = rules_of(call.api.config, call.api.own_files)
    place = reachable(experiment.config["checkpoint_storage"])
    try:
        directory = await asyncio.to_thread(_opened, rules, experiment.config, checkpoint.uuid)
    except (FileNotFoundError, NotADirectoryError):
        raise FailedPrecondition(
            f"the master finds no directory {place.path / checkpoint.uuid}: its machine cannot reach this storage; "
            "read the files on a machine that can"
        ) from None
    with directory:
        return await _sent(call, directory, kind, pack)


def _opened(rules: HostPathRules, experiment: Mapping[str, Any], uuid: str) -> Beneath:
    """The checkpoint's directory, looked through: what will be refused is refused before the answer begins."""
    storage = StorageAccess(rules=rules).open(experiment["checkpoint_storage"])
    assert storage is not None  # `reachable` has seen to it
    with storage:
        directory = storage.directory(uuid)
    try:
        for found in directory.walk():
            if found.is_file:
                found.parent.check_owner(found.name, found.status)
    except BaseException:
        directory.close()
        raise
    return directory


async def _sent(call: Call, directory: Beneath, kind: str, pack: Pack) -> web.StreamResponse:
    # No Content-Encoding: clients feed the bytes to an archive reader as they come.
    response = web.StreamResponse(headers={"Content-Type": kind})
    response.enable_chunked_encoding()
    await response.prepare(call.request)
    async with aclosing(packed(directory, pack)) as chunks:
        async for chunk in chunks:
            await response.write(chunk)
    await response.write_eof()
    return response


# --------------------------------------------------------------------------------------------------------- packing

Pack = Callable[[Beneath, io.RawIOBase], None]


def _tar(mode: Literal["w|", "w|gz"]) -> Pack:
    def pack(directory: Beneath, out: io.RawIOBase) -> None:
        with tarfile.open(fileobj=out, mode=mode) as archive:
            for found in _sendable(directory):
                if found.is_directory:
                    archive.addfile(_member(found.path, found.status, tarfile.DIRTYPE))
                    continue
                with found.open() as file:
                    status = os.fstat(file.fileno())
                    member = _member(found.path, status, tarfile.REGTYPE)
                    member.size = status.st_size
                    archive.addfile(member, file)

    return pack


def _member(path: str, status: os.stat_result, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path)
    member.type, member.mode, member.mtime = kind, stat.S_IMODE(status.st_mode), int(status.st_mtime)
    member.uid, member.gid = status.st_uid, status.st_gid
    return member


def _zip(directory: Beneath, out: io.RawIOBase) -> None:
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for found in _sendable(directory):
            path = readable(found.path)
            if found.is_directory:
                archive.writestr(_entry(f"{path}/", found.status), b"")
                continue
            with found.open() as file:
                status = os.fstat(file.fileno())
                entry = _entry(path, status)
                entry.file_size = status.st_size
                with archive.open(entry, "w") as target:
                    shutil.copyfileobj(file, target, CHUNK_BYTES)


def _entry(path: str, status: os.stat_result) -> zipfile.ZipInfo:
    moment = datetime.fromtimestamp(min(max(status.st_mtime, OLDEST_IN_ZIP), NEWEST_IN_ZIP), UTC)
    entry = zipfile.ZipInfo(path, moment.timetuple()[:6])
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (status.st_mode & 0xFFFF) << 16
    return entry


def _sendable(directory: Beneath) -> Iterator[Found]:
    """Files and directories, parents first. A link could lead anywhere, and what is no file has no content: both are left out."""
    return (found for found in directory.walk() if found.is_directory or found.is_file)


FORMATS: Mapping[str, Pack] = {
    "application/gzip": _tar("w|gz"),
    "application/x-tar": _tar("w|"),
    "application/zip": _zip,
}


def _format(accept: str) -> tuple[str, Pack]:
    """The first acceptable format. Raises HTTP 415 as the contract has it."""
    asked = [part.partition(";")[0].strip() for part in accept.split(",")]
    for name in asked:
        if name in FORMATS:
            return name, FORMATS[name]
    if "*/*" in asked or "application/*" in asked:
        return "application/gzip", FORMATS["application/gzip"]
    message = f"Accept: {accept} is not available; ask for one of {', '.join(FORMATS)}"
    body = msgspec.json.encode({"message": message}).decode()
    raise web.HTTPUnsupportedMediaType(text=body, content_type="application/json")


class _Abandoned(Exception):
    """Nobody reads on."""


class _Pipe(io.RawIOBase):
    """What a packer in a thread writes to; the event loop takes the chunks from the other end."""

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
        """Waits until there is room: a slow reader slows the packer down."""
        if self.abandoned:
            raise _Abandoned
        asyncio.run_coroutine_threadsafe(self.chunks.put(chunk), self._loop).result()


async def packed(directory: Beneath, pack: Pack) -> AsyncGenerator[bytes, None]:
    """The archive in chunks; the directory is read in a thread, not faster than the chunks are taken."""
    pipe = _Pipe()

    def work() -> None:
        with suppress(_Abandoned):
            pack(directory, pipe)
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
