"""Files that a form sends: the code of an experiment, as a browser sends a folder, and a configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from email.parser import BytesParser
from email.policy import HTTP
from pathlib import PurePosixPath

import pathspec

from resolute.errors import InvalidInput
from resolute.ignored_files import BUILT_IN_RULES, IGNORE_FILE
from resolute.wire.rest.experiment_changes import File
from resolute_master.api.http.call import Call
from resolute_master.api.http.form_fields import FORM_WITH_FILES

_FILE = ord("0")
_MODE = 0o100644


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """`path` as the browser says it: of a folder with the folder's name."""

    field: str
    path: str
    content: bytes


async def uploads_of(call: Call) -> Sequence[Upload]:
    """Fields for files that were left empty send nothing. Empty for a form without files."""
    kind = call.request.headers.get("Content-Type", "")
    if not kind.startswith(FORM_WITH_FILES):
        return ()
    body = await call.raw()
    return await asyncio.to_thread(_read, kind, body)


def _read(kind: str, body: bytes) -> Sequence[Upload]:
    head = b"Content-Type: " + kind.encode("latin-1", errors="replace") + b"\r\n\r\n"
    message = BytesParser(policy=HTTP).parsebytes(head + body)
    found = []
    for part in message.iter_parts():
        name, path = part.get_param("name", header="content-disposition"), part.get_filename()
        content = part.get_payload(decode=True)
        if isinstance(name, str) and path and isinstance(content, bytes):
            found.append(Upload(field=name, path=path, content=content))
    return found


def code_of(uploads: Sequence[Upload], *, now_s: int) -> tuple[File, ...]:
    """A folder's contents below its root, without what the command line leaves out as well (`.detignore`); single files by
    their names. Browsers tell neither modes nor times."""
    paths = [PurePosixPath(each.path.replace("\\", "/")) for each in uploads]
    tops = {path.parts[0] for path in paths if path.parts}
    in_folder = len(tops) == 1 and all(len(path.parts) > 1 for path in paths)
    named = [PurePosixPath(*path.parts[1:]) if in_folder else path for path in paths]
    rules = pathspec.GitIgnoreSpec.from_lines([*BUILT_IN_RULES, *_own_rules(uploads, named)])
    return tuple(
        File(path=str(path), content=each.content, type=_FILE, mode=_MODE, mtime=now_s, uid=0, gid=0)
        for path, each in sorted(zip(named, uploads, strict=True), key=lambda pair: str(pair[0]))
        if str(path) != IGNORE_FILE and not rules.match_file(str(path))
    )


def _own_rules(uploads: Sequence[Upload], named: Sequence[PurePosixPath]) -> list[str]:
    for path, each in zip(named, uploads, strict=True):
        if str(path) == IGNORE_FILE:
            try:
                return each.content.decode().splitlines()
            except UnicodeDecodeError:
                raise InvalidInput(
                    f"{IGNORE_FILE}: is no UTF-8 text; without its rules too much might be sent"
                ) from None
    return []
