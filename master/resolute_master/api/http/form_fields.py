"""The fields of a form of a page, each with all its values. Files of a form are ignored."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from email.parser import BytesParser
from email.policy import HTTP
from urllib.parse import parse_qsl

from resolute.errors import InvalidInput

FORM = "application/x-www-form-urlencoded"
FORM_WITH_FILES = "multipart/form-data"
MOST_FIELDS = 2000


async def form_fields(kind: str, body: bytes) -> Mapping[str, Sequence[str]]:
    """The fields in a body of content type `kind`. Raises `InvalidInput` for a body that is no form."""
    if kind.startswith(FORM_WITH_FILES):
        return await asyncio.to_thread(lambda: _grouped(_parts(kind, body)))
    try:
        return _grouped(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except ValueError as error:
        raise InvalidInput(f"the form cannot be read: {error}") from None


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


def _parts(kind: str, body: bytes) -> Iterator[tuple[str, str]]:
    head = b"Content-Type: " + kind.encode("latin-1", errors="replace") + b"\r\n\r\n"
    message = BytesParser(policy=HTTP).parsebytes(head + body)
    if not message.is_multipart():
        raise InvalidInput(
            "the form cannot be read: its parts have no boundary; send multipart/form-data with a boundary"
        )
    for part in message.iter_parts():
        name = part.get_param("name", header="content-disposition")
        if isinstance(name, str) and part.get_filename() is None:
            content = part.get_payload(decode=True)
            yield name, content.decode(errors="replace") if isinstance(content, bytes) else ""
