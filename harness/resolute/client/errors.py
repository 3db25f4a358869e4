"""Errors of the project for answers that are not 200, with the master's text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from resolute.errors import (
    AlreadyExists,
    Conflict,
    FailedPrecondition,
    InvalidInput,
    LimitExceeded,
    NotFound,
    PermissionDenied,
    ResoluteError,
    Unauthenticated,
    Unavailable,
)


class MasterUnreachable(Unavailable):
    """The master's address does not answer."""

    def __init__(self, master: str, cause: str) -> None:
        super().__init__(f"no master answers at {master} ({cause})")
        self.master = master
        self.cause = cause


class ServerError(ResoluteError):
    """The master failed, or the address is not that of a master."""


_BY_CODE: Mapping[int, type[ResoluteError]] = {
    3: InvalidInput,
    6: AlreadyExists,
    7: PermissionDenied,
    8: LimitExceeded,
    9: FailedPrecondition,
    10: Conflict,
    11: InvalidInput,
    14: Unavailable,
    16: Unauthenticated,
}

_BY_STATUS: Mapping[int, type[ResoluteError]] = {
    400: InvalidInput,
    401: Unauthenticated,
    403: PermissionDenied,
    409: Conflict,
    413: LimitExceeded,
    429: LimitExceeded,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}

_NOT_FOUND = re.compile(r"(?P<kind>.+?) '(?P<key>.*)' not found(?:; (?P<advice>.*))?")


def error_of(status: int, body: bytes, url: str) -> ResoluteError:
    """The error for an answer with this status; its text is the master's where it sent one."""
    code, text = _read_body(body)
    if not text:
        text = f"{url} answered with status {status} and no explanation"
    if status == 404 or code == 5:
        return _not_found(text)
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status)
    return kind(text) if kind is not None else ServerError(text)


def error_of_stream(item: Mapping[str, Any]) -> ResoluteError:
    """The error for the last line of a stream that failed midway."""
    text = str(item.get("message") or "the stream failed without an explanation")
    code = item.get("grpcCode")
    if code == 5:
        return _not_found(text)
    return _BY_CODE.get(code if isinstance(code, int) else 0, ServerError)(text)


def _not_found(text: str) -> NotFound:
    match = _NOT_FOUND.fullmatch(text)
    if match is not None:
        return NotFound(match["kind"], match["key"], match["advice"] or "")
    error = NotFound("address", "")
    error.args = (text,)
    return error


def _read_body(body: bytes) -> tuple[int, str]:
    """(code, text) of an error body; (0, text) for a body of another shape."""
    raw = body.decode("utf-8", "replace").strip()
    try:
        data = json.loads(raw)
    except ValueError:
        return 0, "" if raw.startswith("<") else raw[:500]
    if not isinstance(data, dict):
        return 0, raw[:500]
    inner = data.get("error")
    if isinstance(inner, dict):
        code = inner.get("code")
        return code if isinstance(code, int) else 0, str(inner.get("error") or inner.get("message") or raw[:500])
    return 0, str(data.get("message") or inner or raw[:500])
