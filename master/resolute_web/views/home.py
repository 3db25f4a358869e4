"""The first page: what runs, what waits and why, the pools, what was refused and lost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from aiohttp import web

from resolute.wire.rest.enums import JobState
from resolute.wire.rest.jobs import GetJobsQuery
from resolute.wire.states import ExperimentState
from resolute_master.api.auth.authorise import Action
from resolute_master.api.context import ApiContext
from resolute_master.api.http.call import Call, nothing
from resolute_master.api.reading.showing import show_experiments
from resolute_master.api.resources.jobs import page_of_queue
from resolute_master.domain.change import Decision
from resolute_master.store.base import ExperimentQuery
from resolute_web.page import Page, page
from resolute_web.pools import summaries

FEW = 8
DECISIONS_LOOKED_AT = 400
INCIDENTS = {
    "refused": "Refused",
    "notice": "Notice",
    "lost": "Lost",
    "launch_error": "Not launched",
    "budget": "Budget",
}


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that a cloud or a machine did to us, and where to read more."""

    at: datetime
    kind: str
    word: str
    pool: str
    subject: str
    reason: str


async def home(call: Call, _: None) -> web.Response:
    api = call.api
    running = await _experiments(api, (ExperimentState.ACTIVE,))
    waiting, _pages = await page_of_queue(api, GetJobsQuery(limit=FEW, states=(JobState.QUEUED,), reasons=True))
    recent = await _experiments(api, ())
    return await page(
        call,
        "home.html",
        title="Home",
        section="Home",
        topics=("experiments", "queue", "cluster"),
        pools=await summaries(api),
        running=running,
        waiting=waiting,
        waiting_more=max(0, _pages.total - len(waiting)),
        recent=recent,
        incidents=incidents(await api.store.decisions(DECISIONS_LOOKED_AT))[:FEW],
    )


async def _experiments(api: ApiContext, states: tuple[ExperimentState, ...]) -> Sequence[object]:
    query = ExperimentQuery(limit=FEW, states=states, archived=False, sort_by="start_time", descending=True)
    return await show_experiments(api, (await api.store.page_experiments(query)).rows)


def incidents(decisions: Sequence[Decision]) -> list[Incident]:
    """The newest first."""
    return [
        Incident(each.at, each.kind, INCIDENTS[each.kind], each.pool, each.subject, shortened(each.reason))
        for each in reversed(decisions)
        if each.kind in INCIDENTS
    ]


def shortened(text: str, most: int = 200) -> str:
    text = re.sub(r"\s+", " ", text)
    return text if len(text) <= most else text[: most - 1] + "…"


PAGES = (
    Page("GET", "/det", Action.VIEW, nothing, home),
    Page("GET", "/det/dashboard", Action.VIEW, nothing, home),
)
