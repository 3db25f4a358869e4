"""What a form sends: texts, and files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.parser import BytesParser
from email.policy import HTTP
from urllib.parse import parse_qsl

import msgspec

from resolute.errors import InvalidInput
from resolute.wire.codec import to_wire
from resolute_master.api.call import Call

MOST_FIELDS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """One file: the path that the browser tells, and what is in it."""

    path: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Fields by name, each with all its values."""

    fields: Mapping[str, Sequence[str]]
    files: Mapping[str, Sequence[Upload]]

    def text(self, name: str) -> str:
        """Empty when it was not sent."""
        return next(iter(self.fields.get(name, ())), "")

    def texts(self, name: str) -> Sequence[str]:
        return self.fields.get(name, ())

    def number(self, name: str) -> float | None:
        """None when it was left empty. Raises `InvalidInput`."""
        text = self.text(name).strip()
        if not text:
            return None
        try:
            return float(text)
        except ValueError:
            raise InvalidInput(f"{name}: '{text[:80]}' is not a number") from None


async def read_form(call: Call) -> Form:
    """Raises `InvalidInput` for a body that is no form."""
    raw = await call.raw()
    kind = call.request.headers.get("Content-Type", "")
    if kind.startswith("multipart/form-data"):
        return await asyncio.to_thread(_multipart, kind, raw)
    try:
        pairs = parse_qsl(raw.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError as error:
        raise InvalidInput(f"the form cannot be read: {error}") from None
    return Form(fields=_grouped(pairs), files={})


def _grouped(pairs: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


def _multipart(kind: str, raw: bytes) -> Form:
    message = BytesParser(policy=HTTP).parsebytes(b"Content-Type: " + kind.encode("latin-1") + b"\r\n\r\n" + raw)
    if not message.is_multipart():
        raise InvalidInput("the form cannot be read: its parts have no boundary")
    texts: list[tuple[str, str]] = []
    files: dict[str, list[Upload]] = {}
    for name, path, content in _parts(message):
        if path is None:
            texts.append((name, content.decode(errors="replace")))
        elif path or content:
            files.setdefault(name, []).append(Upload(path=path, content=content))
    return Form(fields=_grouped(texts), files=files)


def _parts(message: object) -> Iterator[tuple[str, str | None, bytes]]:
    for part in message.iter_parts():  # type: ignore[attr-defined]
        name = part.get_param("name", header="content-disposition")
        if isinstance(name, str):
            content = part.get_payload(decode=True)
            yield name, part.get_filename(), content if isinstance(content, bytes) else b""


def asking(call: Call, message: object) -> Call:
    """The same caller with this message as the body: for a handler of the API, so that a form goes through the same checks."""
    return Call(call.api, call.request, call.known_caller, call.body_limit, msgspec.json.encode(to_wire(message)))
