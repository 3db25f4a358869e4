"""Changes that another site makes a browser send: what is authorised by a cookie alone has to carry a token of its session.

A browser adds the cookie `auth` by itself, whoever made the request; another site knows neither the cookie nor the token that is
made of its session. Callers that show a token themselves (`Authorization`, a task's header) are not asked: no browser adds those.
"""

from __future__ import annotations

import asyncio
from email.parser import BytesParser
from email.policy import HTTP
from urllib.parse import parse_qsl

from aiohttp import web

from resolute.errors import PermissionDenied
from resolute_master.api.auth import Caller, Tokens, comes_by_cookie

HEADER = "X-CSRF-Token"
FIELD = "csrf_token"
READS = frozenset({"GET", "HEAD", "OPTIONS"})

_FORM = "application/x-www-form-urlencoded"
_FORM_WITH_FILES = "multipart/form-data"
_MOST_FIELDS = 2000


def is_asked(request: web.Request) -> bool:
    """Whether the request has to carry the token."""
    return request.method not in READS and comes_by_cookie(request)


def check(request: web.Request, caller: Caller, tokens: Tokens, sent: str) -> None:
    """Raises `PermissionDenied` unless `sent` is the token of the caller's session."""
    if caller.session is None or not tokens.is_form_token(sent, caller.session):
        raise PermissionDenied(
            f"{request.method} {request.path}: a change by the cookie of a login needs the token of its session in the header "
            f"{HEADER} or in the form's field {FIELD}; load the page again, or send the login's token as a Bearer token instead"
        )


async def field_of(kind: str, body: bytes) -> str:
    """The token in a form's body, of content type `kind`; empty when there is none, or the body is no form."""
    if kind.startswith(_FORM_WITH_FILES):
        return await asyncio.to_thread(_of_parts, kind, body)
    if not kind.startswith(_FORM):
        return ""
    try:
        pairs = parse_qsl(body.decode(), max_num_fields=_MOST_FIELDS)
    except ValueError:
        return ""
    return next((value for name, value in pairs if name == FIELD), "")


def _of_parts(kind: str, body: bytes) -> str:
    head = b"Content-Type: " + kind.encode("latin-1", errors="replace") + b"\r\n\r\n"
    message = BytesParser(policy=HTTP).parsebytes(head + body)
    parts = message.iter_parts() if message.is_multipart() else ()
    for part in parts:
        if part.get_param("name", header="content-disposition") == FIELD:
            content = part.get_payload(decode=True)
            return content.decode(errors="replace") if isinstance(content, bytes) else ""
    return ""
