"""The plan of kills (victims, moments, order) as a pure function of a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import ceil

from campaign.points import AGENT, BACKEND, DATABASE, HOST, MACHINE, MASTER, SELF

INSIDE = 0.5
"""Fraction of the kills of each kind that happen inside an operation."""

PAUSE_S = 0.4
"""Maximum number of seconds between two kills."""


class Kind(StrEnum):
    """The kind of victim."""

    MASTER = "master"
    AGENT = "agent"
    TASK = "task"
    MACHINE = "machine"
    DATABASE = "database"


class Moment(StrEnum):
    """The operation during the kill; `ANY` is a random moment."""

    COMMIT = "commit"
    LAUNCH = "launch"
    UPLOAD = "upload"
    CHECKPOINT = "checkpoint"
    ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A point at which `victim` is killed; `weight` is its relative frequency among the places of its kind."""

    moment: Moment
    point: str
    victim: str
    weight: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedKill:
    """One kill. Without a point it hits a random victim at a random moment."""

    id: str
    kind: Kind
    moment: Moment
    point: str
    victim: str
    pause_s: float


def _places(moment: Moment, victim: str, *points: str, weight: int = 2) -> tuple[Place, ...]:
    return tuple(Place(moment=moment, point=point, victim=victim, weight=weight) for point in points)


PLACES: Mapping[Kind, tuple[Place, ...]] = {
    Kind.MASTER: (
        *_places(Moment.COMMIT, SELF, "commit.open", "commit.sent", "commit.done"),
        *_places(Moment.COMMIT, SELF, "stream.open", "stream.sent", "stream.done"),
        *_places(Moment.LAUNCH, SELF, "launch.asked", "launch.recorded", "launch.answered"),
        *_places(Moment.UPLOAD, SELF, "upload.packed", "upload.open", "upload.done"),
        *_places(Moment.CHECKPOINT, SELF, "saved.open", "saved.sent", "saved.done"),
        *_places(Moment.CHECKPOINT, MASTER, "checkpoint.written", "checkpoint.published"),
    ),
    Kind.AGENT: (
        *_places(Moment.LAUNCH, SELF, "agent.start.ordered", "agent.start.begun", "agent.start.done"),
        *_places(Moment.LAUNCH, AGENT, "task.begun"),
        *_places(Moment.COMMIT, SELF, "agent.record.due", "agent.record.kept"),
        *_places(Moment.CHECKPOINT, AGENT, "checkpoint.put", "checkpoint.published"),
    ),
    Kind.TASK: (
        *_places(Moment.LAUNCH, SELF, "task.begun", "task.joined"),
        *_places(Moment.CHECKPOINT, SELF, "checkpoint.staged", "checkpoint.put", "checkpoint.written"),
        *_places(
            Moment.CHECKPOINT, SELF, "checkpoint.published", "checkpoint.told", "checkpoint.acknowledged", weight=4
        ),
    ),
    Kind.MACHINE: (
        # Few: after a death during a boot the pool pauses before its next request, as designed.
        *_places(Moment.LAUNCH, SELF, "machine.booting", weight=1),
        *_places(Moment.LAUNCH, MACHINE, "agent.start.ordered", "agent.start.begun", "agent.start.done", weight=1),
        *_places(Moment.LAUNCH, MACHINE, "task.begun", "task.joined"),
        *_places(Moment.CHECKPOINT, MACHINE, "checkpoint.staged", "checkpoint.put", "checkpoint.written"),
        *_places(Moment.CHECKPOINT, MACHINE, "checkpoint.published", "checkpoint.acknowledged"),
        *_places(Moment.CHECKPOINT, HOST, "checkpoint.put", "checkpoint.published"),
    ),
    Kind.DATABASE: (
        *_places(Moment.COMMIT, DATABASE, "commit.open", "commit.sent", "commit.done", "stream.open", "stream.sent"),
        *_places(Moment.COMMIT, BACKEND, "commit.open", "commit.sent", "stream.sent"),
        *_places(Moment.LAUNCH, DATABASE, "launch.asked", "launch.answered"),
        *_places(Moment.UPLOAD, DATABASE, "upload.open", "upload.done"),
        *_places(Moment.CHECKPOINT, DATABASE, "saved.open", "saved.sent", "checkpoint.published"),
    ),
}

RANDOM_VICTIMS: Mapping[Kind, tuple[str, ...]] = {
    Kind.MASTER: (MASTER,),
    Kind.AGENT: (AGENT,),
    Kind.TASK: ("task",),
    Kind.MACHINE: (MACHINE, MACHINE, MACHINE, HOST),
    Kind.DATABASE: (DATABASE, DATABASE, BACKEND),
}


ON_A_SERVER = ".sent"
"""Points with this prefix exist only if the database is a server."""


def plan(seed: int, kills: Mapping[Kind, int], *, server: bool) -> tuple[PlannedKill, ...]:
    """The given numbers of kills of each kind in a random order, the same for the same seed. `server` is true for a database
    server."""
    rng = random.Random(seed)
    drawn: list[tuple[Kind, Moment, str, str]] = []
    for kind, count in sorted(kills.items()):
        inside = ceil(count * INSIDE)
        places = tuple(place for place in PLACES[kind] if server or not place.point.endswith(ON_A_SERVER))
        drawn += [(kind, place.moment, place.point, place.victim) for place in _in_turn(places, inside, rng)]
        victims = RANDOM_VICTIMS[kind]
        drawn += [(kind, Moment.ANY, "", victims[number % len(victims)]) for number in range(count - inside)]
    rng.shuffle(drawn)
    return tuple(
        PlannedKill(
            id=f"{number:04}-{kind}",
            kind=kind,
            moment=moment,
            point=point,
            victim=victim,
            pause_s=rng.uniform(0.0, PAUSE_S),
        )
        for number, (kind, moment, point, victim) in enumerate(drawn, start=1)
    )


def _in_turn(places: tuple[Place, ...], count: int, rng: random.Random) -> list[Place]:
    """Places in proportion to their weights. The order is random, because there may be fewer kills than places."""
    deck = [place for place in places for _ in range(place.weight)]
    rng.shuffle(deck)
    return [deck[number % len(deck)] for number in range(count)]
