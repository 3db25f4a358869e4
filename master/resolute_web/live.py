"""Server-sent events: each open tab receives a signal when an object that it shows has changed, and reads that part again.

A stream carries signals, not contents: a tab always shows the present state of the server, whatever signals were lost, and a
hidden tab costs nothing. Signals are collected for a moment, so that a busy cluster sends at most two a second.

    topic           sent when
    experiments     an experiment begins, ends or changes its state
    experiment:ID   it, one of its trials, runs or checkpoints changes
    trial:ID        it, one of its runs or checkpoints changes
        queue           a job enters, leaves or moves; a run requests, gets or releases slots
    cluster         an agent or a machine changes
    pool:NAME       the same, of one pool

`changed` is sent for changes of state, `progress` for what reports alone move.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from aiohttp import web

from resolute.errors import InvalidInput, ResoluteError
from resolute_master.api.context import ApiContext
from resolute_master.api.http.call import Call
from resolute_master.domain.account import Account
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import Change, Entity
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job
from resolute_master.domain.trial import Trial

GATHER_S = 0.3
"""Signals within this time are sent together."""

PROGRESS_S = 1.0
"""Minimum time between two `progress` signals to a tab."""

SIGNALS_PER_S = 150
"""Maximum number of `progress` signals to all tabs in a second: at each a tab reads its page, which takes some milliseconds of the
master. With more open tabs each receives fewer signals."""

HEARTBEAT_S = 15.0
"""Interval of heartbeats on an idle stream. Each checks that the client is connected and still authorised."""

MOST_TOPICS = 40

CHANGED, PROGRESS = "changed", "progress"


class Tab:
    """One open stream, and its pending signals."""

    def __init__(self) -> None:
        self._news = asyncio.Event()
        self._kinds: set[str] = set()
        self.over = False

    def tell(self, kind: str) -> None:
        self._kinds.add(kind)
        self._news.set()

    def end(self) -> None:
        self.over = True
        self._news.set()

    async def kinds(self, within_s: float) -> set[str]:
        """The kinds of signals since the last call; empty if there is none within `within_s`."""
        try:
            async with asyncio.timeout(within_s):
                await self._news.wait()
        except TimeoutError:
            return set()
        if not self.over:
            await asyncio.sleep(GATHER_S)
        found, self._kinds = self._kinds, set()
        self._news.clear()
        return found


class Live:
    """The open streams by topic. It is called at every commit; without streams it does nothing."""

    def __init__(self, api: ApiContext) -> None:
        self._listening: dict[str, set[Tab]] = {}
        self._states: dict[str, object] = {}
        """The last state of each entity that has a state and a progress, to distinguish the two kinds of change."""
        api.engine.on_commit(self._committed)
        self._closed = False
        self._open = 0
        """Number of open streams."""

    def close(self) -> None:
        self._closed = True
        for tab in {tab for tabs in self._listening.values() for tab in tabs}:
            tab.end()

    def _committed(self, change: Change) -> None:
        if not self._listening:
            self._states.clear()
            return
        for entity in change.upserts:
            kind = self._kind_of(entity)
            for topic in topics_of(entity):
                for tab in self._listening.get(topic, ()):
                    tab.tell(kind)

    def _kind_of(self, entity: Entity) -> str:
        state = _state_of(entity)
        if state is None:
            return CHANGED
        key = f"{type(entity).__name__} {entity.id}"
        before = self._states.get(key)
        self._states[key] = state
        return PROGRESS if before == state else CHANGED

    async def stream(self, call: Call, _: None) -> web.StreamResponse:
        """Until the tab goes, its session ends, or the master stops. The first signal comes at once."""
        topics = [topic for topic in call.request.query.get("topics", "").split(",") if topic]
        if len(topics) > MOST_TOPICS:
            raise InvalidInput(f"topics: {len(topics)} topics are over the limit of {MOST_TOPICS} of one page")
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        tab = Tab()
        for topic in topics:
            self._listening.setdefault(topic, set()).add(tab)
        self._open += 1
        try:
            await response.prepare(call.request)
            await self._tell(call, tab, response)
        except (ConnectionResetError, ResoluteError):
            pass  # the tab is closed, or its session has ended: its next request gets the error
        finally:
            self._open -= 1
            for topic in topics:
                self._leave(topic, tab)
        return response

    async def _tell(self, call: Call, tab: Tab, response: web.StreamResponse) -> None:
        tab.tell(
            CHANGED
        )  # a change between the rendering of the page and the start of this stream would not be shown otherwise
        await response.write(_event("ready", call.api.master_id))
        clock, progressed = call.api.clock, 0.0
        while not self._closed and not tab.over and not call.gone:
            kinds = await tab.kinds(HEARTBEAT_S)
            call.admit_again()
            if CHANGED in kinds:
                await response.write(_event(CHANGED, call.api.master_id))
            elif PROGRESS in kinds:
                wait_s = progressed + max(PROGRESS_S, self._open / SIGNALS_PER_S) - clock.monotonic()
                if wait_s > 0:
                    await asyncio.sleep(wait_s)
                progressed = clock.monotonic()
                await response.write(_event(PROGRESS, call.api.master_id))
            elif not kinds:
                await response.write(b": still here\n\n")

    def _leave(self, topic: str, tab: Tab) -> None:
        tabs = self._listening.get(topic, set())
        tabs.discard(tab)
        if not tabs:
            self._listening.pop(topic, None)


def _event(kind: str, id_: str) -> bytes:
    return f"event: {kind}\nid: {id_}\ndata: {kind}\n\n".encode()


# ------------------------------------------------------------------------------------------------------------- topics


def topics_of(entity: Entity) -> Iterator[str]:
    """Which pages show something of it."""
    match entity:
        case Experiment():
            yield from ("experiments", f"experiment:{entity.id}")
        case Trial():
            yield from (f"experiment:{entity.experiment_id}", f"trial:{entity.id}")
        case Checkpoint():
            yield from (f"experiment:{entity.experiment_id}", f"trial:{entity.trial_id}")
        case Allocation():
            yield from ("queue", "cluster", f"pool:{entity.pool}")
            if entity.trial_id is not None:
                yield f"trial:{entity.trial_id}"
        case Job():
            yield "queue"
            if entity.experiment_id is not None:
                yield f"experiment:{entity.experiment_id}"
        case Agent() | Instance():
            yield from ("cluster", f"pool:{entity.pool}")
        case Account():
            yield "money"


def _state_of(entity: Entity) -> Mapping[str, Any] | None:
    """All fields of an experiment or a trial except its progress, which alone does not count as a change of it; None for any
    other entity."""
    match entity:
        case Experiment():
            moving = {"progress", "best_validation", "searcher"}
        case Trial():
            moving = {"progress", "steps_completed", "reported_run", "pace", "latest_validation", "best_validation"}
            moving |= {"searched_steps", "last_report_at"}
        case _:
            return None
    return {name: getattr(entity, name) for name in entity.__struct_fields__ if name not in moving}
