"""Bytes that are not a request, or that are two requests."""

from __future__ import annotations

import random
from collections.abc import Iterator

TARGETS = (
    b"/api/v1/experiments",
    b"/health",
    b"/agents/link",
    b"/",
    b"*",
    b"//..//",
    b"http://127.0.0.1/info",
    b"/%00",
    b"/\xff",
)


def garbage(random_: random.Random, count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield _one(random_)


def _one(random_: random.Random) -> bytes:
    target = random_.choice(TARGETS)
    match random_.randrange(12):
        case 0:
            return random_.randbytes(random_.choice((1, 10, 4_000)))
        case 1:
            return b"GET " + target + b" HTTP/9.9\r\n\r\n"
        case 2:
            return b"GET " + target + b"a" * random_.choice((10_000, 20_000)) + b" HTTP/1.1\r\nHost: a\r\n\r\n"
        case 3:
            return b"GET " + target + b" HTTP/1.1\r\nHost: a\r\n" + b"X: " + b"b" * 20_000 + b"\r\n\r\n"
        case 4:
            return b"GET " + target + b" HTTP/1.1\r\n" + b"".join(b"X-%d: 1\r\n" % n for n in range(300)) + b"\r\n"
        case 5:
            smuggled = b"GET /api/v1/master/config HTTP/1.1\r\nHost: a\r\n\r\n"
            both = b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
            return b"POST " + target + b" HTTP/1.1\r\nHost: a\r\n" + both + b"0\r\n\r\n" + smuggled
        case 6:
            return (
                b"POST " + target + b" HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n"
            )
        case 7:
            length = random_.choice((b"-1", b"99999999999999999999", b"1, 2", b"\xb2", b"0x10", b"+5"))
            return b"POST " + target + b" HTTP/1.1\r\nHost: a\r\nContent-Length: " + length + b"\r\n\r\n{}"
        case 8:
            return b"GET " + target + b" HTTP/1.1\nHost: a\n\nGET /info HTTP/1.1\r\nHost: a\r\n\r\n"
        case 9:
            upgrade = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: "
            key = random_.choice((b"", b"Sec-WebSocket-Key: a\r\n", b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"))
            version = random_.choice((b"13", b"0", b"99"))
            link = b"GET /agents/link HTTP/1.1\r\nHost: a\r\n" + upgrade + version + b"\r\n" + key + b"\r\n"
            return link + random_.randbytes(200)
        case 10:
            return b"".join(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n" for _ in range(random_.choice((2, 50))))
        case _:
            method = random_.choice((b"TRACE", b"CONNECT", b"PRI", b"OPTIONS", b"get", b"\x16\x03\x01", b"G" * 500))
            return method + b" " + target + b" HTTP/1.1\r\nHost: a\r\n\r\n"
