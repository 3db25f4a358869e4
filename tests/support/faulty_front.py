"""A proxy before an object store that is slow, throttles, fails, loses responses or is down, as a test configures it."""

from __future__ import annotations

import http.client
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

REQUEST_ONLY = {"connection", "keep-alive", "transfer-encoding", "expect"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The fault of one request. With `status` the proxy returns that status without forwarding; `lost` cuts the connection after
    the request was executed (or before, with `away`).
    """

    status: int = 0
    body: bytes = b""
    lost: bool = False
    away: bool = False
    delay_s: float = 0.0


@dataclass
class FaultyFront:
    """`wanted` selects by method and path the requests that `faults` apply to; `always` applies while it is set."""

    target: str
    address: str = ""
    faults: deque[Fault] = field(default_factory=deque)
    always: Fault | None = None
    wanted: Callable[[str, str], bool] = lambda method, path: True
    seen: list[tuple[str, str, int]] = field(default_factory=list)
    """(method, path, status answered; 0 for none)."""

    def fault_of(self, method: str, path: str) -> Fault | None:
        if self.always is not None and self.wanted(method, path):
            return self.always
        if self.faults and self.wanted(method, path):
            return self.faults.popleft()
        return None


@contextmanager
def faulty_front(target: str) -> Iterator[FaultyFront]:
    """Before `target`, an address such as `http://127.0.0.1:9000`."""
    front = FaultyFront(target=target)

    class Handler(_Handler):
        of = front

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    front.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield front
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    of: FaultyFront
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        body = self._body()
        fault = self.of.fault_of(self.command, self.path)
        if fault is not None:
            time.sleep(fault.delay_s)
            if fault.away:
                self._cut()
                return
            if fault.status:
                self._send(fault.status, [("Content-Type", "application/xml")], fault.body)
                return
        status, headers, content = self._forwarded(body)
        if fault is not None and fault.lost:
            self._cut()
            return
        self._send(status, headers, content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = _answer

    def _cut(self) -> None:
        self.of.seen.append((self.command, self.path, 0))
        self.close_connection = True
        self.connection.close()

    def _body(self) -> bytes:
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            parts = []
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _forwarded(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        address = urlsplit(self.of.target)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in REQUEST_ONLY}
            headers["Content-Length"] = str(len(body))
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _send(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        self.of.seen.append((self.command, self.path, status))
        self.send_response_only(status)
        length = str(len(content))
        for name, value in headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            if name.lower() not in {*REQUEST_ONLY, "content-length"}:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def handle(self) -> None:
        try:
            super().handle()
        except (ConnectionError, ValueError):
            return

    def finish(self) -> None:
        try:
            super().finish()
        except (ConnectionError, ValueError):
            return

    def log_message(self, format: str, *args: Any) -> None:
        return
