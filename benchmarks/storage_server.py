"""A local S3 (moto) that counts its requests: `python -m benchmarks.storage_server PORT`; `/requests` returns the counts.

`/objects` takes a list of keys, and creates an object of one byte for each without further requests. A listing finds its prefix by
bisection: moto scans every key of the bucket, unlike real object stores, and needs most of the time of a removal from a bucket of
40,000 objects for it.
"""

from __future__ import annotations

import bisect
import contextlib
import importlib
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from support.ports import free_port

READY_S = 60.0
BUCKET = "bench"
IDENTITY = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_DEFAULT_REGION": "us-east-1"}
"""Credentials, of which moto accepts any."""


@dataclass(frozen=True, slots=True)
class Server:
    """`address` of a server with one empty bucket."""

    address: str

    def config(self, prefix: str) -> dict[str, Any]:
        """The bucket as `checkpoint_storage`."""
        return {"type": "s3", "bucket": BUCKET, "endpoint_url": self.address, "prefix": prefix}

    def client(self) -> Any:
        """The vendor's client with default settings."""
        import boto3

        return boto3.client("s3", endpoint_url=self.address)

    def make(self, keys: Sequence[str]) -> None:
        """Creates objects of one byte."""
        body = json.dumps(list(keys)).encode()
        with urllib.request.urlopen(urllib.request.Request(f"{self.address}/objects", data=body, method="POST")):
            pass

    def requests(self) -> int:
        """Answered so far."""
        with urllib.request.urlopen(f"{self.address}/requests") as answer:
            return int(answer.read())


@contextlib.contextmanager
def server(environ: Mapping[str, str]) -> Iterator[Server]:
    """The server ends with the context. This process and its children may use it."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.storage_server", str(port)],
        env={**os.environ, **environ},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.environ |= IDENTITY
    found = Server(f"http://127.0.0.1:{port}")
    try:
        until = time.monotonic() + READY_S
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError("moto does not start")
            time.sleep(0.1)
        found.client().create_bucket(Bucket=BUCKET)
        yield found
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def main(port: int) -> None:
    _sort_keys()
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import run_simple

    application = DomainDispatcherApplication(create_backend_app)
    answered = itertools.count()

    def counted(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/requests":
            start("200 OK", [("Content-Type", "text/plain")])
            return [str(next(answered)).encode()]
        if environ["PATH_INFO"] == "/objects":
            _make(json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))))
            start("200 OK", [("Content-Length", "0")])
            return []
        next(answered)
        answer: Iterable[bytes] = application(environ, start)
        return answer

    run_simple("127.0.0.1", port, counted, threaded=True, request_handler=MotoRequestHandler)


def _sort_keys() -> None:
    models: Any = importlib.import_module("moto.s3.models")
    whole = models.S3Backend.list_objects

    class SortedKeys(models._VersionedKeyStore):  # type: ignore[misc]
        """Sorted keys of a bucket, with a search by prefix."""

        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []
            self.guard = threading.RLock()

        def __setitem__(self, key: str, value: Any) -> None:
            with self.guard:
                self._note(key)
                super().__setitem__(key, value)

        def setlist(self, key: str, list_: Any) -> None:
            with self.guard:
                self._note(key)
                super().setlist(key, list_)

        def pop(self, key: str) -> None:
            with self.guard:
                super().pop(key)
                del self.names[bisect.bisect_left(self.names, key)]

        def _note(self, key: str) -> None:
            if key not in self:
                bisect.insort(self.names, key)

        def below(self, prefix: str) -> dict[str, Any]:
            found = {}
            with self.guard:
                at = bisect.bisect_left(self.names, prefix)
                while at < len(self.names) and self.names[at].startswith(prefix):
                    found[self.names[at]] = self[self.names[at]]
                    at += 1
            return found

    def list_objects(self: Any, bucket: Any, prefix: str | None, *wanted: Any, **named: Any) -> Any:
        return whole(self, SimpleNamespace(keys=bucket.keys.below(prefix or "")), prefix, *wanted, **named)

    models._VersionedKeyStore = SortedKeys
    models.S3Backend.list_objects = list_objects


def _make(keys: Sequence[str]) -> None:
    from moto.core.models import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends

    backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    for key in keys:
        backend.put_object(BUCKET, key, b"1")


if __name__ == "__main__":
    main(int(sys.argv[1]))
