"""Lines of JSON, sent as they come: one object a line, no empty lines, each flushed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TypeVar

import msgspec
from aiohttp import web

from resolute.errors import ResoluteError
from resolute.wire.codec import to_wire
from resolute_master.api.http.call import Call, in_pieces
from resolute_master.api.http.errors import INTERNAL, status_of, unexpected

Item = TypeVar("Item")

_HTTP_REASONS = {400: "Bad Request", 404: "Not Found", 409: "Conflict", 500: "Internal Server Error"}


async def stream(
    call: Call, items: AsyncGenerator[Item, None], *, render: Callable[[Item], object] | None = None
) -> web.StreamResponse:
    """Send every item as `{"result": ...}`. An error midway becomes the last line: the status is sent already.

    Of items that are a thousand rows, `render` makes the message, in a thread, so that other calls do not wait.
    """
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.enable_chunked_encoding()
    await response.prepare(call.request)
    try:
        async with aclosing(items):
            async for item in items:
                call.admit_again()
                line = (
                    await asyncio.to_thread(_large_line, render, item) if render else _line({"result": to_wire(item)})
                )
                await response.write(line)
    except ConnectionResetError:
        return response  # the reader has left
    except Exception as error:
        await response.write(_line({"error": _error(call, error)}))
    await response.write_eof()
    return response


def _large_line(render: Callable[[Item], object], item: Item) -> bytes:
    return b'{"result":%s}\n' % in_pieces(render(item))


def _line(value: object) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def _error(call: Call, error: Exception) -> dict[str, object]:
    status = status_of(error)
    text = str(error) if isinstance(error, ResoluteError) else unexpected(call.request, error)
    if not isinstance(error, ResoluteError):
        status = INTERNAL
    return {
        "grpcCode": status.code,
        "httpCode": status.http,
        "message": text,
        "httpStatus": _HTTP_REASONS.get(status.http, status.reason),
    }
