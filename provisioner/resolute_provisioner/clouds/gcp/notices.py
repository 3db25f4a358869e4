"""Notices of Google Compute Engine: two values of a machine's metadata server. The server holds a request until the value
changes, so that a preemption is detected at once: a poll would lose part of its half a minute.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

import aiohttp

from resolute.clock import Clock
from resolute.wire.agent_link import Notice
from resolute.wire.states import NoticeKind

log = logging.getLogger(__name__)

METADATA_URL = "http://169.254.169.254/computeMetadata/v1"
FLAVOR = "Metadata-Flavor"
HELD_BACK_S = 60
"""Maximum time of a held request: a dead connection must not hide a preemption for ever."""
ANSWER_S = 10.0
"""Time after which the server counts as unavailable."""
ERROR_PERIOD_S = 1.0
PREEMPTION_S = 30.0
"""The time between the notice and the end of a spot machine."""


@dataclass(slots=True)
class _Value:
    """One value of the metadata, as last seen."""

    path: str
    etag: str = ""
    told: str = ""
    """The text of the last notice that was made of it; "" if there was none, or it was withdrawn."""
    silent: bool = False


class GceNotices:
    """A `NoticeSource` on Compute Engine. `error_period_s` is the pause after a request without an answer."""

    def __init__(self, *, clock: Clock, url: str = METADATA_URL, error_period_s: float = ERROR_PERIOD_S) -> None:
        self._clock = clock
        self._url = url.rstrip("/")
        self._error_period_s = error_period_s
        self._values = (_Value("instance/preempted"), _Value("instance/maintenance-event"))

    async def next(self) -> Notice:
        timeout = aiohttp.ClientTimeout(total=HELD_BACK_S + ANSWER_S, sock_connect=ANSWER_S)
        async with aiohttp.ClientSession(timeout=timeout, headers={FLAVOR: "Google"}) as session:
            watches = {asyncio.create_task(self._announced(session, value)): value for value in self._values}
            try:
                done, _ = await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
                # Of two at once the next call sees the other again: only what is returned here counts as reported.
                first = min(done, key=lambda task: watches[task].path != self._values[0].path)
                text, notice = first.result()
                watches[first].told = text
                return notice
            finally:
                for watch in watches:
                    watch.cancel()
                await asyncio.gather(*watches, return_exceptions=True)

    async def _announced(self, session: aiohttp.ClientSession, value: _Value) -> tuple[str, Notice]:
        """Wait until the value announces something new."""
        while True:
            text = await self._asked(session, value)
            if text is not None:
                notice = meaning(text, self._clock.now())
                if notice is None:
                    value.told = ""
                elif text != value.told:
                    value.etag = ""  # were this call given up now, the next one would be answered at once
                    return text, notice
            if not value.etag:
                await asyncio.sleep(self._error_period_s)

    async def _asked(self, session: aiohttp.ClientSession, value: _Value) -> str | None:
        """The value once it differs from the one seen last; None without an answer."""
        query = (
            {"wait_for_change": "true", "last_etag": value.etag, "timeout_sec": str(HELD_BACK_S)} if value.etag else {}
        )
        try:
            async with session.get(f"{self._url}/{value.path}", params=query) as response:
                text = (await response.text()).strip()
                if response.status != 200 or response.headers.get(FLAVOR) != "Google":
                    raise aiohttp.ClientError(f"HTTP {response.status}, not from a metadata server of Google Cloud")
                value.etag = response.headers.get("ETag", "")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if not value.silent:
                log.warning("cannot ask %s/%s for notices: %s", self._url, value.path, error or type(error).__name__)
            value.silent, value.etag = True, ""
            return None
        value.silent = False
        return text


def meaning(text: str, at: datetime) -> Notice | None:
    """The notice in a value, seen at `at`; None if the machine stays, also if it is moved while it runs."""
    match text.upper():
        case "TRUE":
            reason = "Compute Engine reclaims the spot machine"
            return Notice(
                kind=NoticeKind.INTERRUPTION, deadline=at + timedelta(seconds=PREEMPTION_S), reason=reason, at=at
            )
        case "TERMINATE_ON_HOST_MAINTENANCE":
            # An hour ahead with GPUs, a minute without: the value does not say.
            return Notice(kind=NoticeKind.MAINTENANCE, deadline=None, reason="its host will be maintained", at=at)
        case _:
            return None


def open_notices(clock: Clock) -> GceNotices:
    """The source of notices for a machine's agent."""
    return GceNotices(clock=clock)
