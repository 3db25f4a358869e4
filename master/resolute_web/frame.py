"""The frame of every page: the user, the navigation, and the live updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from resolute_master.api.auth.authorise import is_administrator
from resolute_master.api.auth.cross_site import FIELD
from resolute_master.api.http.call import Call

THEMES = ("light", "dark")
THEME_COOKIE = "theme"


@dataclass(frozen=True, slots=True)
class Place:
    """An entry of the navigation."""

    name: str
    path: str
    icon: str


PLACES: Sequence[Place] = (
    Place("Home", "/det/", "house"),
    Place("Experiments", "/det/experiments", "flask-conical"),
    Place("Queue", "/det/queue", "list-ordered"),
    Place("Cluster", "/det/clusters", "server"),
    Place("Money", "/det/money", "circle-dollar-sign"),
    Place("Administration", "/det/admin", "settings"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """For the template `frame.html`. Without a user, the page is for someone who has not logged in."""

    title: str
    section: str
    cluster: str
    version: str
    user: str
    administrator: bool
    theme: str
    form_token: str
    live: str
    here: str
    now: datetime
    places: Sequence[Place] = PLACES
    token_name: str = FIELD


def frame_of(call: Call, *, title: str, section: str, topics: Sequence[str]) -> Frame:
    caller, api = call.known_caller, call.api
    session = None if caller is None else caller.session
    theme = call.request.cookies.get(THEME_COOKIE, "")
    return Frame(
        title=title,
        section=section,
        cluster=api.cluster_name,
        version=api.version,
        user="" if caller is None else caller.user.username,
        administrator=caller is not None and is_administrator(caller),
        theme=theme if theme in THEMES else "",
        form_token="" if session is None else api.tokens.form_token(session),
        live=f"/det/events?topics={quote(','.join(topics), safe=',:')}" if topics and caller is not None else "",
        here=call.request.path_qs,
        now=api.clock.now(),
    )
