"""Notices that a machine will be taken away: a port, a file and an HTTP endpoint.

The notice of both is a JSON object `{"kind": "interruption" | "rebalance" | "maintenance", "deadline": RFC 3339 time or
null, "reason": text}`.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

from resolute.clock import Clock
from resolute.wire.agent_link import Notice, NoticeFile

log = logging.getLogger(__name__)

FILE_POLL_S = 0.5
HTTP_POLL_S = 5.0
"""What clouds advise for their metadata endpoints."""


class NoticeSource(Protocol):
    async def next(self) -> Notice:
        """Wait for the first notice, then for each that differs from the one before."""
        ...


def parse_notice(text: bytes, at: datetime) -> Notice:
    """The notice in a source's JSON, seen at `at`. Raises `msgspec.MsgspecError` when it is none."""
    found = msgspec.json.decode(text, type=NoticeFile)
    deadline = found.deadline
    if deadline is not None and deadline.tzinfo is None:
        deadline = deadline.replace(tzinfo=UTC)
    return Notice(kind=found.kind, deadline=deadline, reason=found.reason, at=at)


class _Polled:
    """Polls repeatedly. A text that is no valid notice is logged once and ignored."""

    def __init__(self, name: str, clock: Clock, poll_s: float) -> None:
        self._name = name
        self._clock = clock
        self._poll_s = poll_s
        self._last = b""

    async def _look(self) -> bytes:
        raise NotImplementedError

    async def next(self) -> Notice:
        while True:
            text = await self._look()
            if text and text != self._last:
                self._last = text
                try:
                    return parse_notice(text, self._clock.now())
                except msgspec.MsgspecError as error:
                    log.error("%s does not hold a notice: %s", self._name, error)
            await asyncio.sleep(self._poll_s)


class FileNotices(_Polled):
    """A JSON file that appears when the machine is to go, as the local cloud writes it."""

    def __init__(self, path: Path, *, clock: Clock, poll_s: float = FILE_POLL_S) -> None:
        super().__init__(str(path), clock, poll_s)
        self._path = path

    async def _look(self) -> bytes:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            log.error("cannot read %s: %s", self._path, error)
            return b""


class HttpNotices(_Polled):
    """An endpoint that answers 404 until there is a notice."""

    def __init__(self, url: str, *, clock: Clock, poll_s: float = HTTP_POLL_S) -> None:
        super().__init__(url, clock, poll_s)
        self._url = url
        self._silent = False

    async def _look(self) -> bytes:
        import aiohttp  # only where this source is used

        try:
            timeout = aiohttp.ClientTimeout(total=self._poll_s)
            async with aiohttp.ClientSession(timeout=timeout) as session, session.get(self._url) as response:
                self._silent = False
                return await response.read() if response.status == 200 else b""
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if not self._silent:
                log.warning("cannot query %s for notices: %s", self._url, error or type(error).__name__)
            self._silent = True
            return b""
