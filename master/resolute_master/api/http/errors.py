"""Errors as answers: the error tree mapped once, to the bodies that clients of the contract can read.

/api/v1/...     {"error": {"code": 5, "reason": "NotFound", "error": "experiment '7' not found"}}
plain routes    {"message": "checkpoint '...' not found"}
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from resolute import logs
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
from resolute_master.api.http.limits import UNAVAILABLE_RETRY_S

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Status:
    """One row of the contract's table of error codes."""

    code: int
    reason: str
    http: int


INTERNAL = Status(13, "Internal", 500)
TOO_LARGE = Status(8, "ResourceExhausted", 413)
NO_SUCH_CALL = Status(5, "NotFound", 404)
WRONG_METHOD = Status(12, "Unimplemented", 405)


class NotServed(ResoluteError):
    """A call of the contract that this version of the master does not serve."""


STATUSES: dict[type[ResoluteError], Status] = {
    NotServed: Status(12, "Unimplemented", 501),
    InvalidInput: Status(3, "InvalidArgument", 400),
    NotFound: Status(5, "NotFound", 404),
    AlreadyExists: Status(6, "AlreadyExists", 409),
    PermissionDenied: Status(7, "PermissionDenied", 403),
    LimitExceeded: Status(8, "ResourceExhausted", 429),
    FailedPrecondition: Status(9, "FailedPrecondition", 400),
    Conflict: Status(10, "Aborted", 409),
    Unavailable: Status(14, "Unavailable", 503),
    Unauthenticated: Status(16, "Unauthenticated", 401),
}


class BodyTooLarge(LimitExceeded):
    """The request is larger than this master reads."""


def status_of(error: BaseException) -> Status:
    """The nearest class of the tree decides; anything outside it is a fault of ours."""
    if isinstance(error, BodyTooLarge):
        return TOO_LARGE
    for kind in type(error).__mro__:
        if kind in STATUSES:
            return STATUSES[kind]
    return INTERNAL


def answer(request: web.Request, status: Status, text: str, *, retry_after_s: float | None = None) -> web.Response:
    """The body in the form of the route's family; `Retry-After` for what may succeed later."""
    body: dict[str, Any] = {"message": text}
    if request.path.startswith("/api/"):
        body = {"error": {"code": status.code, "reason": status.reason, "error": text}}
    headers = {} if retry_after_s is None else {"Retry-After": str(max(1, math.ceil(retry_after_s)))}
    return web.Response(
        body=msgspec.json.encode(body), status=status.http, content_type="application/json", headers=headers
    )


def _retry_after_s(error: ResoluteError) -> float | None:
    """Default of `Retry-After`: without the header, most callers never retry."""
    if isinstance(error, LimitExceeded):
        return error.retry_after_s
    return UNAVAILABLE_RETRY_S if isinstance(error, Unavailable) else None


def unexpected(request: web.Request, error: BaseException) -> str:
    """Log the fault under the request's id. The answer carries the id and nothing else of the fault."""
    number = logs.fields().get("request_id", "this moment")
    log.error("request %s (%s %s) failed", number, request.method, request.path, exc_info=error)
    return f"internal error; the master's log has the details under {number}"


def answer_to(request: web.Request, error: Exception) -> web.Response | None:
    """The answer to an error of a handler; None for an exception that is an answer itself."""
    match error:
        case ResoluteError():
            return answer(request, status_of(error), str(error), retry_after_s=_retry_after_s(error))
        case web.HTTPNotFound():
            return answer(request, NO_SUCH_CALL, f"unknown call {request.method} {request.path}")
        case web.HTTPMethodNotAllowed():
            allowed = ", ".join(sorted(error.allowed_methods))
            return answer(request, WRONG_METHOD, f"{request.method} {request.path}: use {allowed}")
        case web.HTTPException():
            return None
        case _:
            return answer(request, INTERNAL, unexpected(request, error))
