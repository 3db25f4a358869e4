"""Cross-site request forgery: a change that is authorised by a cookie alone must contain a token of its session.

A browser adds the cookie `auth` by itself, whoever made the request; another site knows neither the cookie nor the token that is
made of its session. Callers that send a token in a header (`Authorization`, a task's) need none: no browser adds it.
"""

from __future__ import annotations

from aiohttp import web

from resolute.errors import InvalidInput, PermissionDenied
from resolute_master.api.auth.authenticate import Caller, Tokens, comes_by_cookie
from resolute_master.api.http.form_fields import FORM, FORM_WITH_FILES, form_fields

HEADER = "X-CSRF-Token"
FIELD = "csrf_token"
READS = frozenset({"GET", "HEAD", "OPTIONS"})


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
    if not kind.startswith((FORM, FORM_WITH_FILES)):
        return ""
    try:
        fields = await form_fields(kind, body)
    except InvalidInput:
        return ""
    return next((value for value in fields.get(FIELD, ()) if value), "")
