"""Notices of machines of Amazon EC2: three values of the metadata service (IMDSv2).

`spot/instance-action` gives two minutes; the recommendation to rebalance comes earlier, or with it, or never; scheduled events
are known for days. What is not there is answered with 404.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import aiohttp
import msgspec

from resolute.clock import Clock
from resolute.wire.agent_link import Notice
from resolute.wire.states import NoticeKind

log = logging.getLogger(__name__)

METADATA_URL = "http://169.254.169.254"
POLL_S = 5.0
"""Period of polls, as EC2 recommends."""
ANSWER_S = 3.0
"""Time after which the service counts as unavailable; it is on the machine's own host."""
TOKEN_TTL_S = 6 * 3600
"""Longest lifetime of a token that the service gives."""

TOKEN_PATH = "/latest/api/token"
ACTION_PATH = "/latest/meta-data/spot/instance-action"
REBALANCE_PATH = "/latest/meta-data/events/recommendations/rebalance"
EVENTS_PATH = "/latest/meta-data/events/maintenance/scheduled"
OVER = ("completed", "canceled")


class _Action(msgspec.Struct):
    action: str
    time: datetime


class _Rebalance(msgspec.Struct):
    notice_time: datetime = msgspec.field(name="noticeTime")


class _Event(msgspec.Struct):
    code: str = msgspec.field(name="Code")
    not_before: str = msgspec.field(name="NotBefore")
    description: str = msgspec.field(name="Description", default="")
    state: str = msgspec.field(name="State", default="active")


class Ec2Notices:
    """A `NoticeSource` on EC2: the most urgent notice first, each once."""

    def __init__(self, *, clock: Clock, url: str = METADATA_URL, poll_s: float = POLL_S) -> None:
        self._clock = clock
        self._url = url.rstrip("/")
        self._poll_s = poll_s
        self._token = ""
        self._reported: set[tuple[NoticeKind, datetime | None, str]] = set()
        self._complained: set[str] = set()

    async def next(self) -> Notice:
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                for path in (ACTION_PATH, REBALANCE_PATH, EVENTS_PATH):
                    for notice in self._read(path, await self._ask(session, path)):
                        if (key := (notice.kind, notice.deadline, notice.reason)) not in self._reported:
                            self._reported.add(key)
                            return notice
                await asyncio.sleep(self._poll_s)

    def _read(self, path: str, text: bytes) -> list[Notice]:
        try:
            return meaning(path, text, self._clock.now()) if text else []
        except (msgspec.MsgspecError, ValueError) as error:
            self._complain(path, f"what {path} holds is no notice: {error}")
            return []

    async def _ask(self, session: aiohttp.ClientSession, path: str) -> bytes:
        """A value of the service; empty if there is none, or no answer."""
        try:
            status, text = await self._get(session, path)
            if status == 401:  # the token has ended
                self._token = ""
                status, text = await self._get(session, path)
            if status not in (200, 404):
                raise aiohttp.ClientError(f"HTTP {status}")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._complain(path, f"cannot ask {self._url}{path} for notices: {error or type(error).__name__}")
            return b""
        self._complained.discard(path)
        return text if status == 200 else b""

    async def _get(self, session: aiohttp.ClientSession, path: str) -> tuple[int, bytes]:
        if not self._token:
            ttl = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_TTL_S)}
            async with session.put(f"{self._url}{TOKEN_PATH}", headers=ttl) as answer:
                if answer.status != 200:
                    raise aiohttp.ClientError(f"HTTP {answer.status} instead of a token")
                self._token = (await answer.text()).strip()
        async with session.get(f"{self._url}{path}", headers=self._headers()) as answer:
            return answer.status, await answer.read()

    def _headers(self) -> Mapping[str, str]:
        return {"X-aws-ec2-metadata-token": self._token}

    def _complain(self, path: str, text: str) -> None:
        """Logs a failure once until the service works again: it is polled every few seconds."""
        if path not in self._complained:
            self._complained.add(path)
            log.warning("%s", text)


def meaning(path: str, text: bytes, at: datetime) -> list[Notice]:
    """The notices in a value, seen at `at`. Raises `msgspec.MsgspecError` or `ValueError` for an invalid value."""
    if path == ACTION_PATH:
        action = msgspec.json.decode(text, type=_Action)
        reason = f"EC2 reclaims the spot machine ({action.action})"
        return [Notice(kind=NoticeKind.INTERRUPTION, deadline=_utc(action.time), reason=reason, at=at)]
    if path == REBALANCE_PATH:
        since = _utc(msgspec.json.decode(text, type=_Rebalance).notice_time)
        reason = f"EC2 recommends a replacement of the machine, since {since:%H:%M:%S}"
        return [Notice(kind=NoticeKind.REBALANCE, deadline=None, reason=reason, at=at)]
    events = msgspec.json.decode(text, type=list[_Event])
    return [
        Notice(
            kind=NoticeKind.MAINTENANCE,
            deadline=_utc(parsedate_to_datetime(event.not_before)),
            reason=f"EC2 has scheduled {event.code}: {event.description}",
            at=at,
        )
        for event in events
        if event.state.lower() not in OVER
    ]


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def open_notices(clock: Clock) -> Ec2Notices:
    """The source of notices for a machine's agent."""
    return Ec2Notices(clock=clock)
