"""Agents and tasks that reconnect to a master, with very little processor time: prepared bytes over real sockets.

Each agent sends the messages of a real one over a WebSocket at the same times: it retries after the pauses of
`resolute_agent.link.Backoff`, and sends its reports after the welcome. Each task holds a poll as the harness does, and retries
after the pauses of its `RetryPolicy`. Agents accept orders and ignore them. All clients run in one thread, so that on a machine
with two processors the master has one of them.
"""

from __future__ import annotations

import heapq
import itertools
import random
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from enum import Enum

from benchmarks.restart_state import Returning
from resolute.core.session import RetryPolicy
from resolute.wire.agent_link import Heartbeat
from resolute_agent.link import Backoff, encode_frame
from resolute_agent.websocket import PATH

HEARTBEAT_S = 5.0
TAKEN_BYTES = 1 << 16
LONGEST_LOOK_S = 0.05

UPGRADE = (
    f"GET {PATH} HTTP/1.1\r\nHost: master\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
).encode()


class Stage(Enum):
    """Stage of one connection."""

    AWAY = "not connected"
    CONNECTING = "connecting"
    ASKED = "has sent its request"
    SAID = "has said Hello"
    LINKED = "is welcome"


class Caller:
    """An agent (with a `hello`) or a task (without)."""

    def __init__(self, request: bytes, pauses: Iterator[float], *, hello: bytes = b"", news: bytes = b"") -> None:
        self.request = request
        self.hello = hello
        self.news = news
        self.pauses = pauses
        self.stage = Stage.AWAY
        self.socket: socket.socket | None = None


class Callers:
    """All clients, which lost the master at `lost_at`. `run` runs until a condition holds; `close` closes the connections."""

    def __init__(self, port: int, returning: Sequence[Returning], *, lost_at: float, seed: int) -> None:
        self._address = ("127.0.0.1", port)
        self._poll = select.epoll()
        self._by_file: dict[int, Caller] = {}
        self._timers: list[tuple[float, int, Caller]] = []
        self._numbers = itertools.count()
        self._rng = random.Random(seed)
        self._heartbeat = frame(encode_frame(Heartbeat(at=datetime.now(UTC))))
        for agent in returning:
            news = b"".join(frame(text) for text in agent.news)
            caller = Caller(UPGRADE, agent_pauses(self._rng), hello=frame(agent.hello), news=news)
            self._again(caller, lost_at)
            for poll in agent.polls:
                self._again(Caller(poll.encode(), task_pauses()), lost_at)

    def run(self, done: Callable[[], bool]) -> None:
        while not done():
            now = time.monotonic()
            while self._timers and self._timers[0][0] <= now:
                self._due(heapq.heappop(self._timers)[2])
            wait_s = min(LONGEST_LOOK_S, self._timers[0][0] - now) if self._timers else LONGEST_LOOK_S
            for file, _ in self._poll.poll(max(0.0, wait_s)):
                self._ready(self._by_file[file])

    def close(self) -> None:
        for caller in self._by_file.values():
            assert caller.socket is not None
            caller.socket.close()
        self._poll.close()

    # -- one caller --------------------------------------------------------------------------------------------

    def _again(self, caller: Caller, now: float) -> None:
        self._at(now + next(caller.pauses), caller)

    def _at(self, moment: float, caller: Caller) -> None:
        heapq.heappush(self._timers, (moment, next(self._numbers), caller))

    def _due(self, caller: Caller) -> None:
        if caller.stage is Stage.AWAY:
            self._connect(caller)
        elif caller.stage is Stage.LINKED:
            self._send(caller, self._heartbeat)
            self._at(time.monotonic() + HEARTBEAT_S, caller)

    def _connect(self, caller: Caller) -> None:
        caller.socket = socket.socket()
        caller.socket.setblocking(False)
        caller.socket.connect_ex(self._address)
        caller.stage = Stage.CONNECTING
        self._by_file[caller.socket.fileno()] = caller
        self._poll.register(caller.socket, select.EPOLLOUT)

    def _ready(self, caller: Caller) -> None:
        assert caller.socket is not None
        if caller.stage is Stage.CONNECTING:
            if caller.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._lost(caller)
                return
            self._poll.modify(caller.socket, select.EPOLLIN)
            caller.stage = Stage.ASKED
            self._send(caller, caller.request)
            return
        try:
            taken = caller.socket.recv(TAKEN_BYTES)
        except ConnectionError:
            taken = b""
        if not taken:
            self._lost(caller)
        elif caller.hello and caller.stage is Stage.ASKED:
            caller.stage = Stage.SAID
            self._send(caller, caller.hello)
        elif caller.hello and caller.stage is Stage.SAID:
            caller.stage = Stage.LINKED
            self._send(caller, caller.news)
            self._at(time.monotonic() + HEARTBEAT_S * self._rng.random(), caller)

    def _send(self, caller: Caller, data: bytes) -> None:
        assert caller.socket is not None
        if data and caller.socket.send(data) != len(data):
            raise SystemExit("a socket takes no more: the master does not read")

    def _lost(self, caller: Caller) -> None:
        assert caller.socket is not None
        self._poll.unregister(caller.socket)
        del self._by_file[caller.socket.fileno()]
        caller.socket.close()
        caller.socket, caller.stage = None, Stage.AWAY
        self._again(caller, time.monotonic())


def agent_pauses(rng: random.Random) -> Iterator[float]:
    backoff = Backoff(rng)
    while True:
        yield backoff.next_s()


def task_pauses() -> Iterator[float]:
    policy = RetryPolicy()
    pause_s = policy.first_wait_s
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, policy.longest_wait_s)


def frame(text: str) -> bytes:
    """A text frame of a client with a mask of zeros."""
    body = text.encode()
    size = len(body)
    assert size <= 0xFFFF, "a frame of this size is spelt otherwise"
    head = struct.pack("!BB", 0x81, 0x80 | size) if size < 126 else struct.pack("!BBH", 0x81, 0xFE, size)
    return head + bytes(4) + body
