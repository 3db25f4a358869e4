"""Sends requests, bytes and frames to a local master at a bounded rate, and returns the responses."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import aiohttp
from yarl import URL

from hostile.attackers import BY_TASK_HEADER, Attacker
from hostile.calls import Request
from hostile.frames import Link
from resolute.wire.agent_link import MAX_FRAME_BYTES
from resolute_master.api.auth.authenticate import TASK_TOKEN_HEADER

T = TypeVar("T")

Work = Callable[[], Coroutine[Any, Any, "Outcome"]]

AT_ONCE = 16
"""Concurrent requests, connections and links. The master serves its own work as well."""

ANSWER_S = 60.0
"""Time without a response head after which a request counts as unanswered."""

WAITED_S = 1.0
"""The same for a response that may depend on another event."""

READ_S = 3.0
"""Time limit for reading a response: a followed log is endless."""

READ_BYTES = 4 * 1024 * 1024
LINK_READ_S = 0.2
"""Time for the master's messages after the last frame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one request, string of bytes or link. `statuses` contains HTTP statuses; 0 means a closed connection."""

    who: str
    what: str
    """The call or other input, for the report."""
    kind: str
    messages: int = 1
    statuses: tuple[int, ...] = ()
    refused: bool = False
    """The table of calls does not permit it."""
    granted: bool = False
    """The master accepted it: a status below 400, or a welcome."""
    shown: tuple[str, ...] = ()
    """The origins of seeded secrets in the response."""
    unanswered: bool = False
    detail: str = ""


class Secrets:
    """The seeded secrets, which no response may contain, with their places."""

    def __init__(self, seeded: Mapping[str, str]) -> None:
        self._where = {value.encode(): where for value, where in seeded.items()}
        longest_first = sorted(self._where, key=lambda value: (-len(value), value))
        self._pattern = re.compile(b"|".join(map(re.escape, longest_first)))

    def shown_in(self, answer: bytes) -> tuple[str, ...]:
        return tuple(sorted({self._where[found] for found in self._pattern.findall(answer)}))


class Sender:
    """Sends to one master. `tokens` are those of the attackers."""

    def __init__(self, port: int, tokens: Mapping[Attacker, str], secrets: Secrets, *, rate: float) -> None:
        self._port = port
        self._tokens = tokens
        self._secrets = secrets
        self._pause_s = AT_ONCE / rate
        """Seconds between two inputs of one worker."""

    async def run(
        self, requests: Iterable[Request], strings: Iterable[bytes], links: Iterable[Link]
    ) -> AsyncIterator[Outcome]:
        """The results of all inputs, in no particular order."""
        limits = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=ANSWER_S)
        jar = aiohttp.DummyCookieJar()
        async with aiohttp.ClientSession(connector=limits, timeout=timeout, cookie_jar=jar) as http:
            works: tuple[Iterator[Work], ...] = (
                (partial(self._request, http, request) for request in requests),
                (partial(self._bytes, string) for string in strings),
                (partial(self._link, http, link) for link in links),
            )
            done: asyncio.Queue[Outcome | None] = asyncio.Queue(maxsize=AT_ONCE)
            shared = _in_turn(works)
            workers = [asyncio.create_task(self._worker(shared, done)) for _ in range(AT_ONCE)]
            running = len(workers)
            try:
                while running:
                    outcome = await done.get()
                    if outcome is None:
                        running -= 1
                    else:
                        yield outcome
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)
            for worker in workers:
                worker.result()

    async def _worker(self, works: Iterator[Work], done: asyncio.Queue[Outcome | None]) -> None:
        try:
            for work in works:
                outcome = await work()
                await done.put(outcome)
                await asyncio.sleep(self._pause_s * outcome.messages)
        finally:
            await done.put(None)

    # -- requests ----------------------------------------------------------------------------------------------

    def _headers(self, request: Request) -> dict[str, str]:
        headers = dict(request.headers)
        token = self._tokens.get(request.who, "")
        if request.who in BY_TASK_HEADER:
            headers[TASK_TOKEN_HEADER] = f"Bearer {token}"
        elif token:
            headers["Authorization"] = f"Bearer {token}"
        return headers

    async def _request(self, http: aiohttp.ClientSession, request: Request) -> Outcome:
        url = URL(f"http://127.0.0.1:{self._port}{request.path}", encoded=True)
        status, said, failure = 0, b"", ""
        try:
            async with asyncio.timeout(WAITED_S if request.waits else ANSWER_S):
                body = None if request.body is None else io.BytesIO(request.body)  # Large ones do not block others.
                sent = http.request(
                    request.method, url, data=body, headers=self._headers(request), allow_redirects=False
                )
                response = await sent
            async with response:
                status = response.status
                said = str(dict(response.headers)).encode("utf-8", "replace") + await _read(response)
        except TimeoutError:
            failure = "no answer"
        except (aiohttp.ClientError, ConnectionError, ValueError) as error:
            failure = type(error).__name__
        return Outcome(
            who=request.who,
            what=request.call,
            kind=request.kind,
            statuses=(status,),
            refused=request.refused,
            granted=0 < status < 400,
            shown=self._secrets.shown_in(said),
            unanswered=failure == "no answer" and not request.waits,
            detail=f"{request.path[:300]} {(request.body or b'')[:300]!r} -> {failure} {said[-300:]!r}",
        )

    # -- bytes -------------------------------------------------------------------------------------------------

    async def _bytes(self, string: bytes) -> Outcome:
        said = b""
        with suppress(ConnectionError, TimeoutError):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                writer.write(string)
                await writer.drain()
                with suppress(OSError):
                    writer.write_eof()
                async with asyncio.timeout(READ_S):
                    while len(said) < READ_BYTES and (part := await reader.read(65536)):
                        said += part
            finally:
                writer.transport.abort()
                await asyncio.gather(writer.wait_closed(), return_exceptions=True)
        statuses = tuple(int(code) for code in re.findall(rb"(?m)^HTTP/1\.[01] (\d{3})", said)) or (0,)
        return Outcome(
            who=Attacker.UNAUTHENTICATED,
            what="bytes",
            kind="bytes",
            statuses=statuses,
            shown=self._secrets.shown_in(said),
            detail=f"{string[:200]!r} -> {said[:300]!r}",
        )

    # -- links -------------------------------------------------------------------------------------------------

    async def _link(self, http: aiohttp.ClientSession, link: Link) -> Outcome:
        said: list[str] = []
        address = f"http://127.0.0.1:{self._port}/agents/link"
        try:
            async with asyncio.timeout(ANSWER_S):
                socket = await http.ws_connect(address, max_msg_size=MAX_FRAME_BYTES)
            async with socket:
                reading = asyncio.create_task(_hear(socket, said))
                for frame in link.frames:
                    if socket.closed:
                        break
                    await (socket.send_bytes(frame) if isinstance(frame, bytes) else socket.send_str(frame))
                    await asyncio.sleep(0)
                with suppress(TimeoutError):
                    async with asyncio.timeout(LINK_READ_S):
                        await asyncio.shield(reading)
                reading.cancel()
                with suppress(asyncio.CancelledError):
                    await reading
        except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
            said.append(f"({type(error).__name__})")
        kinds = [_type_of(text) for text in said]
        answer = "\n".join(said).encode("utf-8", "replace")
        return Outcome(
            who=link.who,
            what="/agents/link",
            kind="frames",
            messages=len(link.frames),
            refused=not link.welcome,
            granted="Welcome" in kinds,
            shown=self._secrets.shown_in(answer),
            detail=f"{str(link.frames[0])[:300]} -> {answer[:300]!r}",
        )


def _in_turn(works: Sequence[Iterator[T]]) -> Iterator[T]:
    """Interleaves the iterables until all have ended."""
    left = list(works)
    while left:
        for work in tuple(left):
            try:
                yield next(work)
            except StopIteration:
                left.remove(work)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    said = b""
    with suppress(TimeoutError, aiohttp.ClientError, ConnectionError):
        async with asyncio.timeout(READ_S):
            async for part in response.content.iter_any():
                said += part
                if len(said) > READ_BYTES:
                    break
    return said


async def _hear(socket: aiohttp.ClientWebSocketResponse, said: list[str]) -> None:
    async for message in socket:
        said.append(str(message.data))


def _type_of(text: str) -> str:
    try:
        found: Any = json.loads(text)
    except ValueError:
        return ""
    return str(found.get("type", "")) if isinstance(found, dict) else ""
