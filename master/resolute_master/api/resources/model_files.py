"""The files of an experiment's context directory: their tree, and one of them."""

from __future__ import annotations

import asyncio
import io
import mimetypes
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import PurePosixPath

from aiohttp import web

from resolute.errors import InvalidInput, NotFound
from resolute.wire.rest.model_files import (
    FileNode,
    GetModelDefFileRequest,
    GetModelDefFileResponse,
    GetModelDefTreeResponse,
)
from resolute_master.api.auth.authorise import Action
from resolute_master.api.http.call import Call, Route, large_response
from resolute_master.api.reading.finders import experiment_at
from resolute_master.domain.experiment import Experiment
from resolute_master.event_loop import yielding

UNKNOWN_TYPE = "application/octet-stream"


async def file_tree(call: Call, experiment: Experiment) -> web.Response:
    """The files of the model definition of an experiment."""
    archive = await _archive(call, experiment)
    return await large_response(await asyncio.to_thread(tree_of, archive))


async def file(call: Call, experiment: Experiment) -> web.Response:
    """The content of one file of the model definition of an experiment, in base64."""
    path = (await call.body(GetModelDefFileRequest)).path
    if not path:
        raise InvalidInput("path: name a file of the context directory, as file_tree lists them")
    content = await asyncio.to_thread(content_of, await _archive(call, experiment), path)
    if content is None:
        raise NotFound("file", path, f"experiment {experiment.id} has no such file; file_tree lists those that it has")
    return await large_response(GetModelDefFileResponse(file=content))


async def _archive(call: Call, experiment: Experiment) -> bytes:
    """The archive of the experiment's code; empty for an experiment without code."""
    if not experiment.context_hash:
        return b""
    archive = await call.api.store.get_context(experiment.context_hash)
    if archive is None:
        raise NotFound("model definition of experiment", experiment.id)
    return archive


@contextmanager
def _opened(archive: bytes) -> Iterator[Iterator[tarfile.TarInfo]]:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as opened:
        yield yielding(opened)


def tree_of(archive: bytes) -> GetModelDefTreeResponse:
    """The tree of an archive: by name, directories first. Call it in a thread, because it reads the whole archive."""
    children: dict[PurePosixPath, dict[PurePosixPath, tarfile.TarInfo | None]] = {PurePosixPath("."): {}}
    if archive:
        with _opened(archive) as members:
            for member in members:
                path = PurePosixPath(member.name)
                children.setdefault(path.parent, {})[path] = member
                for above in path.parents:  # an archive need not name the directories that its files are in
                    if above != PurePosixPath("."):
                        children.setdefault(above.parent, {}).setdefault(above, None)
    return GetModelDefTreeResponse(files=_nodes(children, PurePosixPath(".")))


def _nodes(
    children: dict[PurePosixPath, dict[PurePosixPath, tarfile.TarInfo | None]], directory: PurePosixPath
) -> tuple[FileNode, ...]:
    found = [_node(children, path, member) for path, member in children.get(directory, {}).items()]
    return tuple(sorted(found, key=lambda node: (not node.is_dir, node.name)))


def _node(
    children: dict[PurePosixPath, dict[PurePosixPath, tarfile.TarInfo | None]],
    path: PurePosixPath,
    member: tarfile.TarInfo | None,
) -> FileNode:
    is_dir = member is None or member.isdir()
    return FileNode(
        path=str(path),
        name=path.name,
        modified_time=datetime.fromtimestamp(0 if member is None else member.mtime, tz=UTC),
        content_length=0 if member is None else member.size,
        is_dir=is_dir,
        content_type="" if is_dir else mimetypes.guess_type(path.name)[0] or UNKNOWN_TYPE,
        files=_nodes(children, path) if is_dir else (),
    )


def content_of(archive: bytes, path: str) -> bytes | None:
    """The content of a file in the archive; None if there is no such file. Call it in a thread, because it reads the archive up
    to the file."""
    if not archive:
        return None
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as opened:
        for member in yielding(opened):
            if member.isfile() and PurePosixPath(member.name) == PurePosixPath(path):
                stream = opened.extractfile(member)
                return None if stream is None else stream.read()
    return None


ROUTES = (
    Route("GET", "/api/v1/experiments/{experimentId}/file_tree", Action.VIEW, experiment_at("experimentId"), file_tree),
    Route("POST", "/api/v1/experiments/{experimentId}/file", Action.VIEW, experiment_at("experimentId"), file),
)
