"""The released client's own retries against what a limit that passes by itself answers."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from support.api_released import PYTHON

pytestmark = pytest.mark.needs("determined")

PROGRAM = """
import sys
from determined.common import api, util
from determined.common.api import _session

master = sys.argv[1]
task = _session.Session(master, "ada", "token", None, max_retries=util.get_max_retries_config())
print(task.post("task-logs", json=[{"log": "line"}]).status_code)
person = _session.Session(master, "ada", "token", None)
print(person.get("api/v1/me").status_code)
"""


class Busy(BaseHTTPRequestHandler):
    """Refuses each path once, as `resolute_master.api.http.errors` does it, and then serves it."""

    refused: set[str]
    served: list[str]

    def do_GET(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer()

    def answer(self) -> None:
        first = self.path not in self.refused
        self.refused.add(self.path)
        body = json.dumps({"error": {"code": 8, "error": "as many as one may"}} if first else {}).encode()
        self.send_response(429 if first else 200)
        if first:
            self.send_header("Retry-After", "1")
        else:
            self.served.append(self.path)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def a_busy_master() -> Iterator[tuple[str, list[str]]]:
    handler = type("Handler", (Busy,), {"refused": set(), "served": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", handler.served  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_refusal_for_now_is_repeated_by_the_released_client_itself() -> None:
    with a_busy_master() as (master, served):
        run = subprocess.run([PYTHON, "-c", PROGRAM, master], capture_output=True, text=True, timeout=120, check=False)
        assert run.stdout.split() == ["200", "200"], run.stderr
        assert served == ["/task-logs", "/api/v1/me"]
