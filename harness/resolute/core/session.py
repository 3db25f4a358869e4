"""One small HTTP client for the master: keep-alive, retries while a master restarts, errors of our own tree.

Every request that the harness makes may be repeated without harm (the master keys and fences them), so retries do not depend on
the verb.
"""

from __future__ import annotations

import http.client
import json
import logging
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from resolute.errors import (
    Conflict,
    InvalidInput,
    LimitExceeded,
    NotFound,
    PermissionDenied,
    ResoluteError,
    Unauthenticated,
    Unavailable,
)
from resolute.task_info import TaskInfo

logger = logging.getLogger("resolute.core.session")

RETRY_STATUSES = frozenset({502, 503, 504})
TOO_MANY = 429
"""Retried only if the answer has a `Retry-After`: then the master did nothing and may have capacity soon."""
DEFAULT_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Time for which a request is repeated while the master does not answer, and the pauses between two attempts. Each pause is
    drawn between a half and the whole of a step, which doubles from `first_wait_s` to `longest_wait_s`, so that the tasks of a
    cluster do not all reconnect at one moment.

    When the agent loses the master too, the task's lease ends it after `agent_reconnect_wait` of its pool. When the database is
    away, leases continue and the requests of tasks wait: `total_s` is half an hour, as long as the released harness tries.
    """

    total_s: float = 1800.0
    first_wait_s: float = 0.1
    longest_wait_s: float = 5.0


class MissingAtMaster(NotFound):
    """The master has no entity of that name."""

    def __init__(self, text: str, path: str) -> None:
        ResoluteError.__init__(self, text)
        self.kind = "resource"
        self.key = path


class TimedOut(Unavailable):
    """The master accepted the request but did not answer within the caller's time."""


class StaleRun(Conflict):
    """The master has started a newer run of this trial: whatever this process still reports is refused."""


class Session:
    """Connects to one master as one task. Thread-safe: each thread has a connection of its own.

    Errors: `Unavailable` when no answer came within the retry policy, `StaleRun` for 409, and the other members of
    `resolute.errors` for what the master refuses; each contains the master's text.
    """

    def __init__(
        self,
        master_url: str,
        token: str,
        *,
        cert_file: str | None = None,
        cert_name: str | None = None,
        retry: RetryPolicy | None = None,
        sleep: Callable[[float], None] | None = None,
        rng: random.Random | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`sleep`, `rng` and `monotonic` (seconds) replace the pauses, their spread, and the time that is measured."""
        parts = urlsplit(master_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInput(f"the master's address {master_url!r} is not of the form http(s)://host:port")
        self._tls = _tls_context(cert_file) if parts.scheme == "https" else None
        self._host = parts.hostname
        self._port = parts.port or (443 if self._tls else 80)
        self._prefix = parts.path.rstrip("/")
        self._server_name = cert_name
        self._token = token
        self._retry = retry or RetryPolicy()
        self._rng = rng or random.Random()
        self._monotonic = monotonic
        self._closed = threading.Event()
        # An event's wait doubles as a sleep that closing the session cuts short.
        self._sleep: Callable[[float], object] = sleep or self._closed.wait
        self._local = threading.local()
        self._lock = threading.Lock()
        self._connections: list[http.client.HTTPConnection] = []

    @classmethod
    def for_task(cls, info: TaskInfo, *, retry: RetryPolicy | None = None) -> Session:
        return cls(
            info.master_url,
            info.session_token,
            cert_file=info.master_cert_file,
            cert_name=info.master_cert_name,
            retry=retry,
        )

    def get(
        self, path: str, params: Mapping[str, str | int] | None = None, *, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> Any:
        return self.request("GET", path, params=params, timeout_s=timeout_s)

    def post(self, path: str, body: Any = None, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Any:
        return self.request("POST", path, body=body if body is not None else {}, timeout_s=timeout_s)

    def patch(self, path: str, body: Any, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Any:
        return self.request("PATCH", path, body=body, timeout_s=timeout_s)

    def request(
        self,
        verb: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        body: Any = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Any:
        """Send until answered and return the decoded JSON body."""
        target = self._prefix + path + (f"?{urlencode(params)}" if params else "")
        payload = None if body is None else json.dumps(body, allow_nan=False).encode()
        started = self._monotonic()
        step_s = self._retry.first_wait_s
        while True:
            asked_s = 0.0
            try:
                status, answer, retry_after_s = self._exchange(verb, target, payload, timeout_s)
                if status not in RETRY_STATUSES and (status != TOO_MANY or retry_after_s is None):
                    return _decoded(status, answer, path)
                problem, timed_out = f"HTTP {status}: {_error_text(answer)}", False
                asked_s = min(retry_after_s or 0.0, self._retry.longest_wait_s)
            except (OSError, http.client.HTTPException) as error:
                self._drop_connection()
                problem = f"{type(error).__name__}: {error}"
                timed_out = isinstance(error, TimeoutError)
            wait_s = max(asked_s, step_s / 2) + step_s / 2 * self._rng.random()
            waited_s = self._monotonic() - started
            if self._closed.is_set() or waited_s + wait_s > self._retry.total_s:
                raise (TimedOut if timed_out else Unavailable)(
                    f"the master at {self._host}:{self._port} did not answer {verb} {path} "
                    f"for {waited_s:.0f} s ({problem})"
                )
            logger.debug("%s %s: %s; again in %.1f s", verb, path, problem, wait_s)
            self._sleep(wait_s)
            step_s = min(step_s * 2, self._retry.longest_wait_s)

    def close(self) -> None:
        """End every connection, also those that another thread is waiting on."""
        self._closed.set()
        with self._lock:
            connections, self._connections = self._connections, []
        for connection in connections:
            sock = connection.sock
            if sock is not None:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # already gone, as intended
            connection.close()

    def _exchange(
        self, verb: str, target: str, payload: bytes | None, timeout_s: float
    ) -> tuple[int, bytes, float | None]:
        connection = self._connection()
        fresh = connection.sock is None
        headers = {"Accept": "application/json", "Grpc-Metadata-x-allocation-token": f"Bearer {self._token}"}
        if payload is not None:
            headers["Content-Type"] = "application/json"
        connection.timeout = timeout_s
        if connection.sock is not None:
            connection.sock.settimeout(timeout_s)
        try:
            if fresh:
                connection.connect()
                if self._closed.is_set():  # `close` does not see a connection that another thread opens meanwhile
                    connection.close()
                    raise ConnectionError("the session was closed")
            connection.request(verb, target, body=payload, headers=headers)
            response = connection.getresponse()
            return response.status, response.read(), _seconds(response.getheader("Retry-After"))
        except (http.client.RemoteDisconnected, ConnectionError):
            if fresh or self._closed.is_set():
                raise
        except AttributeError as error:
            # `close` in another thread takes the response away under `read`, which http.client does not expect.
            if self._closed.is_set():
                raise ConnectionError("the session was closed") from error
            raise
        # The server closed an idle connection: that is no failure of the server, ask again at once.
        self._drop_connection()
        return self._exchange(verb, target, payload, timeout_s)

    def _connection(self) -> http.client.HTTPConnection:
        existing: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if existing is not None:
            return existing
        if self._tls is not None:
            connection: http.client.HTTPConnection = _NamedHTTPSConnection(
                self._host, self._port, self._tls, self._server_name or self._host
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port)
        self._local.connection = connection
        with self._lock:
            self._connections.append(connection)
        return connection

    def _drop_connection(self) -> None:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            return
        self._local.connection = None
        connection.close()
        with self._lock:
            if connection in self._connections:
                self._connections.remove(connection)


class _NamedHTTPSConnection(http.client.HTTPSConnection):
    """HTTPS that checks the certificate for a given name, which need not be the host of the address."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext, server_name: str) -> None:
        super().__init__(host, port, context=context)
        self._tls = context
        self._server_name = server_name

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._server_name)


def _seconds(header: str | None) -> float | None:
    """The number in a `Retry-After`; a date there is no answer of our master."""
    return float(header) if header is not None and header.isascii() and header.isdigit() else None


def _tls_context(cert_file: str | None) -> ssl.SSLContext:
    if cert_file == "noverify":
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    try:
        return ssl.create_default_context(cafile=cert_file)
    except FileNotFoundError:
        logger.warning("the master's certificate %s does not exist; using the system's trust store", cert_file)
        return ssl.create_default_context()


def _decoded(status: int, answer: bytes, path: str) -> Any:
    if status == 200:
        return json.loads(answer) if answer else {}
    text = _error_text(answer) or f"HTTP {status} for {path}"
    if status == 404:
        raise MissingAtMaster(text, path)
    raise _ERRORS.get(status, ResoluteError)(text)


_ERRORS: Mapping[int, type[ResoluteError]] = {
    400: InvalidInput,
    401: Unauthenticated,
    403: PermissionDenied,
    409: StaleRun,
    429: LimitExceeded,
}


def _error_text(answer: bytes) -> str:
    try:
        body = json.loads(answer)
        error = body.get("error") or {}
        return str(error.get("error") or error.get("message") or body.get("message") or "")
    except (ValueError, AttributeError):
        return answer[:500].decode(errors="replace")
