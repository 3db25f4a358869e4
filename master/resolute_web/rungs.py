"""The rungs of a search as a picture: a line a trial, as far as it came, with its end: promoted, stopped, waiting, training.

Geometry alone, as in `search_pictures`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from resolute.wire.rest.searching import GetSearchResponse, SearchedTrial
from resolute_web.words import number

WIDTH, LEFT, RIGHT, TOP = 960, 64, 180, 34
ROW, LOW_ROW = 18, 8
MOST_LABELLED = 60
MOST_DRAWN = 300
"""Most trials of one bracket that are drawn; the others are counted."""

SHADES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One column: how many trials came to it, and how many of them went beyond."""

    x: float
    title: str
    reached: int
    promoted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Climb:
    """One trial. `steps` are the rungs that it has passed; the line ends at `x`."""

    trial: int
    y: float
    x: float
    steps: Sequence[float]
    state: str
    shade: int
    label: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """`more` trials are not drawn."""

    number: int
    rungs: Sequence[Rung]
    climbs: Sequence[Climb]
    more: int
    height: int
    labelled: bool
    width: int = WIDTH
    left: int = LEFT


def brackets_of(search: GetSearchResponse) -> Sequence[Bracket]:
    """Empty for a search that has no rungs."""
    climbing = [trial for trial in search.trials if trial.rung is not None and trial.rungs]
    numbers = sorted({trial.bracket or 0 for trial in climbing})
    ranks = _ranks(climbing, smaller=search.smaller_is_better)
    return [_bracket(each, [t for t in climbing if (t.bracket or 0) == each], ranks, search) for each in numbers]


def _ranks(trials: Sequence[SearchedTrial], *, smaller: bool) -> dict[int, int]:
    """Place by trial, of those with a result; 0 is the best."""
    told = [trial for trial in trials if trial.metric is not None and math.isfinite(trial.metric)]
    told.sort(key=lambda trial: (trial.metric or 0.0) * (1 if smaller else -1))
    return {trial.trial_id: place for place, trial in enumerate(told)}


def _bracket(
    number_: int, trials: Sequence[SearchedTrial], ranks: dict[int, int], search: GetSearchResponse
) -> Bracket:
    count = max(trial.rungs or 1 for trial in trials)
    step = (WIDTH - LEFT - RIGHT) / max(1, count - 1) if count > 1 else 0.0
    xs = [round(LEFT + step * rung, 1) for rung in range(count)]
    worst = len(ranks)
    order = sorted(trials, key=lambda trial: (-(trial.rung or 0), ranks.get(trial.trial_id, worst), trial.trial_id))
    drawn = order[:MOST_DRAWN]
    labelled = len(drawn) <= MOST_LABELLED
    row = ROW if labelled else LOW_ROW
    climbs = [_climb(trial, TOP + row * (at + 0.5), xs, ranks, search) for at, trial in enumerate(drawn)]
    rungs = [
        Rung(
            x=x,
            title=f"rung {rung}",
            reached=sum((trial.rung or 0) >= rung for trial in trials),
            promoted=sum((trial.rung or 0) > rung for trial in trials),
        )
        for rung, x in enumerate(xs)
    ]
    return Bracket(
        number=number_,
        rungs=rungs,
        climbs=climbs,
        more=len(order) - len(drawn),
        height=TOP + row * len(drawn) + 8,
        labelled=labelled,
    )


def _climb(
    trial: SearchedTrial, y: float, xs: Sequence[float], ranks: dict[int, int], search: GetSearchResponse
) -> Climb:
    rung = min(trial.rung or 0, len(xs) - 1)
    place = ranks.get(trial.trial_id)
    shade = SHADES - 1 if place is None else min(SHADES - 1, place * SHADES // max(1, len(ranks)))
    rank = f", rank {trial.rank} of {trial.ranked}" if trial.rank is not None else ""
    result = f", {search.metric} {number(trial.metric)}" if trial.metric is not None else ""
    why = f": {trial.reason}" if trial.reason else ""
    return Climb(
        trial=trial.trial_id,
        y=round(y, 1),
        x=xs[rung],
        steps=xs[: rung + 1],
        state=trial.state,
        shade=shade,
        label=f"{trial.state}, {number(trial.metric)}" if trial.metric is not None else trial.state,
        text=f"trial {trial.trial_id} is {trial.state} at rung {rung}{rank}{result}{why}",
    )
