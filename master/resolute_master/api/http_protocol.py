"""aiohttp's protocol of one connection, with what this master adds to it."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from resolute_master.api.response_headers import HEADERS


class HttpProtocol(web.RequestHandler):
    """Leaves nothing behind for garbage collection when it could not read what was sent, and knows whether a caller has proved
    who it is on this connection."""

    __slots__ = ("proven",)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.proven = False

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
    """The caller of this request is known: its connection is not among the first to go when there are too many."""
    if isinstance(request.protocol, HttpProtocol):
        request.protocol.proven = True
