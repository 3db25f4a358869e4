"""aiohttp's protocol of one connection, with the master's additions."""

from __future__ import annotations

import logging
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from resolute_master.api.http.response_headers import HEADERS

log = logging.getLogger(__name__)

LONGEST_REASON = 200
"""Characters in the description of a request that cannot be read: the description may hold everything that was sent."""


class HttpProtocol(web.RequestHandler):
    """A protocol that leaves no reference cycle after an unreadable request, and records whether a caller has authenticated."""

    __slots__ = ("proven",)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.proven = False

    def log_exception(self, *arguments: Any, **options: Any) -> None:
        """An unreadable request is one line of the log: with tracebacks, any client could fill it."""
        error = options.get("exc_info")
        if not isinstance(error, (HttpProcessingError, web.RequestPayloadError)):
            super().log_exception(*arguments, **options)
            return
        reason = " ".join(str(error).split())[:LONGEST_REASON]
        log.info("a request from %s cannot be read: %s: %s", self.peer, type(error).__name__, reason)

    @property
    def peer(self) -> str:
        """The address at the other end."""
        name = None if self.transport is None else self.transport.get_extra_info("peername")
        return str(name[0]) if name else "a closed address"

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        try:
            answer = super().handle_error(request, status, exc, message)
            answer.headers.update(HEADERS)  # no application has seen this request
            return answer
        finally:
            if exc is not None:
                exc.__traceback__ = None  # it leads to the frame that handed the error on, and still has it


def prove(request: web.BaseRequest) -> None:
    """Marks the connection as authenticated, so that it is not among the first that are closed at the limit."""
    if isinstance(request.protocol, HttpProtocol):
        request.protocol.proven = True
