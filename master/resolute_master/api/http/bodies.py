"""Bodies of requests: read within limits of size and time, parsed within limits of shape."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgspec
from aiohttp import web

from resolute.errors import InvalidInput
from resolute_master.api.http.errors import BodyTooLarge
from resolute_master.api.http.limits import BODY_BYTES_PER_S, BODY_FIRST_S, MAX_JSON_DEPTH, MAX_JSON_VALUES

LARGEST = 2**63 - 1
"""Range of integers in the databases."""

SEARCHED_BYTES = 1024 * 1024
_MANY_DIGITS = re.compile(rb"\d{19}")


async def read_body(request: web.Request, limit: int, *, first_s: float = BODY_FIRST_S) -> bytes:
    """Reads the whole body, of at most `limit` bytes. Raises `BodyTooLarge`, and `InvalidInput` for a body that arrives too
    slowly or is compressed, because a small compressed body may be very large. Each received part extends the time limit."""
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        raise InvalidInput(f"Content-Encoding: '{encoding[:40]}' is not supported; send the body without an encoding")
    declared = request.content_length
    if declared is not None and declared > limit:
        raise too_large(limit)
    if declared is not None and request.content.is_eof():
        # It came together with the head: nothing to wait for.
        return request.content.read_nowait()
    body = bytearray()
    begun = asyncio.get_running_loop().time()
    deadline = asyncio.timeout_at(begun + first_s)
    try:
        async with deadline:
            async for piece in request.content.iter_any():
                body += piece
                if len(body) > limit:
                    raise too_large(limit)
                deadline.reschedule(begun + first_s + len(body) / BODY_BYTES_PER_S)
    except TimeoutError:
        if not deadline.expired():
            raise
        raise InvalidInput(
            f"the body did not arrive within {first_s + len(body) / BODY_BYTES_PER_S:.0f} s; send it faster, or less of it"
        ) from None
    return bytes(body)


def too_large(limit: int) -> BodyTooLarge:
    shown = f"{limit // 1024} KiB" if limit < 1024 * 1024 else f"{limit // (1024 * 1024)} MiB"
    return BodyTooLarge(
        f"the request is larger than {shown}, the maximum for this call; "
        "leave large files out of the context directory (.detignore)"
    )


def parse_json(raw: bytes) -> Any:
    """Raises `InvalidInput` for what is not JSON, holds integers that no database could keep, or is built to be large."""
    if not raw.strip():
        return {}
    brackets = raw.count(b"{") + raw.count(b"[")
    if brackets + raw.count(b",") > MAX_JSON_VALUES:
        raise InvalidInput(f"the body holds more than {MAX_JSON_VALUES:,} values; send it in several requests")
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the body is not JSON: {error}") from None
    # In a large body reading every character again costs more than looking at every value.
    if brackets > MAX_JSON_DEPTH or len(raw) > SEARCHED_BYTES or _MANY_DIGITS.search(raw):
        check_values(value)
    return value


def check_values(value: Any, depth: int = 0) -> None:
    """Raises `InvalidInput` for an integer of more than 64 bits, and for lists and objects nested too deep."""
    if isinstance(value, int) and not -LARGEST <= value <= LARGEST:
        raise InvalidInput(f"the request holds the integer {value}, which does not fit in 64 bits; send it as text")
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        if depth >= MAX_JSON_DEPTH:
            raise InvalidInput(f"the body nests lists and objects more than {MAX_JSON_DEPTH} deep; make it flatter")
        for item in value:
            check_values(item, depth + 1)
