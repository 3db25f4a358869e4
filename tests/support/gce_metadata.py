"""A metadata server like that of a Compute Engine machine: text values, long polls, and its header."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

ROOT = "/computeMetadata/v1/"
HARMLESS = {"instance/preempted": "FALSE", "instance/maintenance-event": "NONE"}


class FakeMetadata:
    """`url` ends before the names of the values."""

    def __init__(self, values: Mapping[str, str], *, address: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self._values = {**HARMLESS, **values}
        self._changed = threading.Condition()
        self._closing = False
        self.asked: list[str] = []
        self._server = ThreadingHTTPServer(address, _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.url = f"http://{address[0]}:{self._server.server_port}{ROOT.rstrip('/')}"

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def set(self, name: str, value: str) -> None:
        with self._changed:
            self._values[name] = value
            self._changed.notify_all()

    def answer(self, target: str, flavor: str | None) -> tuple[int, str]:
        """Status and text. A long poll is answered when the value has another etag."""
        parts = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        name = parts.path.removeprefix(ROOT)
        if flavor != "Google":
            return 403, "Missing Metadata-Flavor:Google header."
        with self._changed:
            self.asked.append(target)
            if name not in self._values:
                return 404, "not found"
            if query.get("wait_for_change") == "true":
                seen, limit_s = query.get("last_etag"), float(query.get("timeout_sec", 3600))
                self._changed.wait_for(lambda: self._closing or seen != etag(self._values[name]), limit_s)
            return 200, self._values[name]


def etag(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()[:16]


def _handler(metadata: FakeMetadata) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, text = metadata.answer(self.path, self.headers.get("Metadata-Flavor"))
            body = text.encode()
            try:
                self.send_response(status)
                self.send_header("Metadata-Flavor", "Google")
                self.send_header("Content-Type", "application/json" if text.startswith("{") else "application/text")
                self.send_header("ETag", etag(text))
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except ConnectionError:
                self.close_connection = True  # The client has disconnected.

        def log_message(self, format: str, *args: Any) -> None:
            return

    return Handler
