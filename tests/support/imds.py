"""EC2's instance metadata service, version 2, on any address, for agents, masters and boot scripts."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKEN_PATH = "/latest/api/token"


@dataclass
class Imds:
    """Serves `values` by path. A missing path is a 404, and every request needs a valid token."""

    values: dict[str, str] = field(default_factory=dict)
    failing: bool = False
    url: str = ""
    tokens: int = 0
    """Given so far."""
    tokens_asked: int = 0
    requests: Counter[str] = field(default_factory=Counter)
    _good: set[str] = field(default_factory=set)

    def asked(self, path: str) -> int:
        return self.requests[path]

    def revoke_tokens(self) -> None:
        self._good.clear()

    def answer(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        self.requests[path] += 1
        if (method, path) == ("PUT", TOKEN_PATH):
            self.tokens_asked += 1
            if self.failing:
                return 503, "failing"
            if "x-aws-ec2-metadata-token-ttl-seconds" not in headers:
                return 400, "without a time to live"
            self.tokens += 1
            self._good.add(f"token-{self.tokens}")
            return 200, f"token-{self.tokens}"
        if headers.get("x-aws-ec2-metadata-token") not in self._good:
            return 401, "without a token"
        return (200, self.values[path]) if path in self.values else (404, "not found")


@contextmanager
def imds(address: tuple[str, int] = ("127.0.0.1", 0)) -> Iterator[Imds]:
    service = Imds()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = service.answer(self.command, self.path, {k.lower(): v for k, v in self.headers.items()})
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        do_PUT = do_GET

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(address, Handler)
    server.daemon_threads = True
    service.url = f"http://{server.server_address[0]!s}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
