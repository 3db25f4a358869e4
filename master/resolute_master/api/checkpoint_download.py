"""A checkpoint's files as one archive, packed while it is sent.

The master reads directories that it can reach itself; a storage that only tasks see is named in the refusal.
"""

from __future__ import annotations

import asyncio
import io
import posixpath
import tarfile
import zipfile
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import msgspec
from aiohttp import web

from resolute.errors import FailedPrecondition, InvalidInput
from resolute.wire.states import CheckpointState
from resolute_master.api.authorise import Action
from resolute_master.api.call import Call, Route
from resolute_master.api.finders import find_checkpoint, find_experiment
from resolute_master.domain.checkpoint import Checkpoint

CHUNK_BYTES = 1024 * 1024
CHUNKS_AHEAD = 8
"""The packer waits for the network when it is so far ahead."""

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
    directory = directory_of(experiment.config["checkpoint_storage"], checkpoint.uuid)
    if not await asyncio.to_thread(directory.is_dir):
        raise FailedPrecondition(
            f"the master finds no directory {directory}: its machine cannot reach this storage; "
            "read the files on a machine that can"
        )
    # No Content-Encoding: clients feed the bytes to an archive reader as they come.
    response = web.StreamResponse(headers={"Content-Type": kind})
    response.enable_chunked_encoding()
    await response.prepare(call.request)
    async with aclosing(packed(directory, pack)) as chunks:
        async for chunk in chunks:
            await response.write(chunk)
    await response.write_eof()
    return response


def directory_of(storage: Mapping[str, Any], uuid: str) -> Path:
    """Where the checkpoint lies on this machine."""
    if storage["type"] == "directory":
        return Path(str(storage["container_path"])) / uuid
    if storage["type"] == "shared_fs":
        host = posixpath.normpath(str(storage["host_path"]))
        return Path(posixpath.normpath(posixpath.join(host, str(storage.get("storage_path") or ".")))) / uuid
    raise FailedPrecondition(
        f"checkpoint storage of type {storage['type']} cannot be downloaded through the master yet"
    )


# --------------------------------------------------------------------------------------------------------- packing

Pack = Callable[[Path, io.RawIOBase], None]


def _tar(mode: Literal["w|", "w|gz"]) -> Pack:
    def pack(directory: Path, out: io.RawIOBase) -> None:
        with tarfile.open(fileobj=out, mode=mode) as archive:
            for path in _below(directory):
                archive.add(path, arcname=path.relative_to(directory).as_posix(), recursive=False)

    return pack


def _zip(directory: Path, out: io.RawIOBase) -> None:
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in _below(directory):
            archive.write(path, arcname=path.relative_to(directory).as_posix())


def _below(directory: Path) -> list[Path]:
    """Files and directories, parents first. A link could lead anywhere, so links are left out."""
    return sorted(p for p in directory.rglob("*") if not p.is_symlink() and (p.is_file() or p.is_dir()))


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


async def packed(directory: Path, pack: Pack) -> AsyncGenerator[bytes, None]:
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
