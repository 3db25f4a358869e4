"""Requests to one master: headers, retries, decoding, streams."""

from __future__ import annotations

import json
import random
import ssl
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeVar
from urllib.parse import urlencode

import httpx

from resolute.client.errors import MasterUnreachable, ServerError, error_of, error_of_stream
from resolute.errors import InvalidInput
from resolute.wire.codec import from_wire, to_query, to_wire

T = TypeVar("T")

Progress = Callable[[int, int], None]
"""Called with (transferred bytes, total bytes); the total is 0 while it is unknown."""

_IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS"})
_PIECE = 256 * 1024

NOT_TRUSTED = "CERTIFICATE_VERIFY_FAILED"
"""Text in OpenSSL's error about a certificate, for which a retry is useless."""

NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
"""Text in OpenSSL's error about a server without TLS."""

TOO_MANY = 429
LONGEST_PAUSE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Retries of calls that may be repeated. The n-th pause is drawn between a half and the whole of `backoff_s * 2**n`, which is
    at most `LONGEST_PAUSE_S`."""

    total: int = 5
    backoff_s: float = 0.5
    statuses: frozenset[int] = frozenset({502, 503, 504})

    def pause_s(self, failures: int) -> float:
        """Seconds to wait after a number of failures; the first retry comes at once."""
        return 0.0 if failures <= 1 else min(LONGEST_PAUSE_S, self.backoff_s * float(2 ** (failures - 1)))


NO_RETRY = Retry(total=0)


def retry_from(environ: Mapping[str, str]) -> Retry:
    """The value of `DET_RETRY_CONFIG` (JSON: `total`, `backoff_factor`, `status_forcelist`), else the default."""
    text = environ.get("DET_RETRY_CONFIG")
    if not text:
        return Retry()
    try:
        given = json.loads(text)
        return Retry(
            total=int(given.get("total", 5)),
            backoff_s=float(given.get("backoff_factor", 0.5)),
            statuses=frozenset(int(status) for status in given.get("status_forcelist", (502, 503, 504))),
        )
    except (ValueError, TypeError, AttributeError):
        raise InvalidInput(
            f"DET_RETRY_CONFIG: {text!r} is not right here; send JSON like "
            '{"total": 5, "backoff_factor": 0.5, "status_forcelist": [502, 503, 504]}'
        ) from None


class Session:
    """One caller's connection to one master. Not for several threads at once.

    `token` goes out as a bearer token. `verify` is what httpx takes: False, or a path of trusted certificates.
    `transport` and `pause` replace the network and the sleeping between attempts.
    """

    def __init__(
        self,
        master: str,
        *,
        token: str | None = None,
        retry: Retry | None = None,
        verify: bool | str = True,
        transport: httpx.BaseTransport | None = None,
        pause: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self.master = master
        self.token = token
        self.retry = retry if retry is not None else Retry()
        self._pause = pause
        self._rng = rng or random.Random()
        self._http = httpx.Client(
            base_url=master + "/",
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(60.0, connect=10.0, write=300.0),
            # Loading the trusted certificates takes longer than most requests; without TLS nothing needs them.
            verify=_trust(verify) if master.startswith("https:") else False,
            transport=transport,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def with_token(self, token: str | None) -> None:
        """Uses this token from now on; None is unauthenticated."""
        self.token = token
        self._http.headers.pop("Authorization", None)
        if token is not None:
            self._http.headers["Authorization"] = f"Bearer {token}"

    # ------------------------------------------------------------------------------------------------- single answers

    def get(self, path: str, answer: type[T], query: object = None, *, retry: Retry | None = None) -> T:
        return self._decode(answer, self.request("GET", path, query=query, retry=retry))

    def post(self, path: str, answer: type[T], body: object = None, progress: Progress | None = None) -> T:
        return self._decode(answer, self.request("POST", path, body=body, progress=progress))

    def put(self, path: str, answer: type[T], body: object = None) -> T:
        return self._decode(answer, self.request("PUT", path, body=body))

    def patch(self, path: str, answer: type[T], body: object = None) -> T:
        return self._decode(answer, self.request("PATCH", path, body=body))

    def delete(self, path: str, answer: type[T], body: object = None) -> T:
        return self._decode(answer, self.request("DELETE", path, body=body))

    def request(
        self,
        method: str,
        path: str,
        *,
        query: object = None,
        body: object = None,
        progress: Progress | None = None,
        retry: Retry | None = None,
    ) -> Any:
        """The parsed JSON of the answer. `query` and `body` are wire messages; `progress` is called with the progress of the
        upload.

        Raises the errors of `resolute.errors`; `MasterUnreachable` without an answer.
        """
        content = None if body is None else json.dumps(to_wire(body), allow_nan=False).encode()
        policy = retry if retry is not None else self.retry
        tries = 1 + policy.total
        for failures in range(1, tries + 1):
            final = failures == tries
            repeatable = method in _IDEMPOTENT and not final
            try:
                response = self._send(method, path, query, content, progress)
            except MasterUnreachable as error:
                if not repeatable or NOT_TRUSTED in str(error.__cause__):
                    raise
                asked_s = 0.0
            else:
                if response.status_code == 200:
                    return self._json(response)
                asked_s = _retry_after_s(response)
                # With 429 and a time the master has done nothing: any call may then be repeated.
                refused_for_now = response.status_code == TOO_MANY and asked_s > 0 and not final
                if not refused_for_now and not (repeatable and response.status_code in policy.statuses):
                    raise error_of(response.status_code, response.content, str(response.request.url))
            step_s = policy.pause_s(failures) / 2
            self._pause(max(step_s, min(asked_s, LONGEST_PAUSE_S)) + step_s * self._rng.random())
        raise AssertionError("the last attempt returns or raises")

    def _send(
        self, method: str, path: str, query: object, content: bytes | None, progress: Progress | None
    ) -> httpx.Response:
        headers = {} if content is None else {"Content-Type": "application/json"}
        sent: bytes | Iterator[bytes] | None = content
        if content is not None and progress is not None:
            headers["Content-Length"] = str(len(content))
            sent = _in_pieces(content, progress)
        with self._connection():
            return self._http.request(method, path, params=_params(query), content=sent, headers=headers)

    def _decode(self, answer: type[T], data: Any) -> T:
        try:
            return from_wire(answer, data)
        except InvalidInput as error:
            raise ServerError(
                f"the answer of {self.master} is not a {answer.__name__} ({error}); is it a master of this version?"
            ) from None

    def _json(self, response: httpx.Response) -> Any:
        try:
            return json.loads(response.content) if response.content else {}
        except ValueError:
            raise ServerError(f"the answer of {response.request.url} is not JSON; is {self.master} a master?") from None

    # -------------------------------------------------------------------------------------------------------- streams

    def stream(self, path: str, item: type[T], query: object = None) -> Iterator[T]:
        """The items of a stream of JSON lines, as they arrive. Waits without limit for the next one."""
        for line in self._lines(path, query):
            try:
                data = json.loads(line)
            except ValueError:
                raise ServerError(f"a line of {path} is not JSON; is {self.master} a master?") from None
            if "error" in data:
                raise error_of_stream(data["error"] or {})
            yield self._decode(item, data.get("result"))

    def _lines(self, path: str, query: object) -> Iterator[bytes]:
        """Lines end at `\\n` alone: log text may hold other characters that some libraries split at."""
        timeout = httpx.Timeout(None, connect=10.0)
        with self._connection(), self._http.stream("GET", path, params=_params(query), timeout=timeout) as response:
            self._check(response)
            rest = b""
            for piece in response.iter_bytes():
                *lines, rest = (rest + piece).split(b"\n")
                yield from (line for line in lines if line)
            if rest:
                yield rest

    @contextmanager
    def raw(
        self, method: str, path: str, headers: Mapping[str, str], *, also: Collection[int] = ()
    ) -> Iterator[httpx.Response]:
        """An answer whose body is read in the block. Statuses other than 200 and those of `also` are raised.

        Raises `MasterUnreachable` when the body ends too early.
        """
        with self._connection(), self._http.stream(method, path, headers=dict(headers)) as response:
            if response.status_code not in also:
                self._check(response)
            yield response

    def wait_after(self, failures: int) -> None:
        """The pause after a number of failures of a call that its caller retries."""
        self._pause(self.retry.pause_s(failures))

    def _check(self, response: httpx.Response) -> None:
        if response.status_code != 200:
            response.read()
            raise error_of(response.status_code, response.content, str(response.request.url))

    @contextmanager
    def _connection(self) -> Iterator[None]:
        try:
            yield
        except httpx.TransportError as error:
            raise MasterUnreachable(self.master, _cause(error, self.master)) from error


def _trust(verify: bool | str) -> ssl.SSLContext | bool:
    if not isinstance(verify, str):
        return verify
    try:
        return ssl.create_default_context(cafile=verify)
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"DET_MASTER_CERT_FILE: {verify!r} holds no certificates in PEM ({error}); copy the master's ca.pem there"
        ) from None


def _params(query: object) -> httpx.QueryParams | None:
    return None if query is None else httpx.QueryParams(urlencode(to_query(query)))


def _retry_after_s(response: httpx.Response) -> float:
    """The number in a `Retry-After`, 0 without one."""
    header = response.headers.get("Retry-After", "")
    return float(header) if header.isascii() and header.isdigit() else 0.0


def _in_pieces(content: bytes, progress: Progress) -> Iterator[bytes]:
    for start in range(0, len(content), _PIECE):
        yield content[start : start + _PIECE]
        progress(min(start + _PIECE, len(content)), len(content))


def _cause(error: httpx.TransportError, master: str) -> str:
    text = str(error).removeprefix("[Errno 111] ").strip()
    if NOT_TRUSTED in text:
        reason = text.partition("certificate verify failed: ")[2].partition(" (_ssl")[0] or text
        return (
            f"its certificate is not trusted: {reason}; copy the master's ca.pem (cluster_state_dir/tls/ca.pem) to this machine, "
            "compare its fingerprint with the one in the master's log (openssl x509 -in ca.pem -noout -fingerprint -sha256), and "
            "set DET_MASTER_CERT_FILE to the copy"
        )
    if master.startswith("https:") and any(sign in text for sign in NO_TLS):
        return f"it does not speak TLS there; use {master.replace('https:', 'http:', 1)} if it serves plain HTTP"
    if master.startswith("http:") and isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
        return f"{text or type(error).__name__}; the address of a master that serves TLS begins with https://"
    return text[:1].lower() + text[1:] if text else type(error).__name__
