"""On which market work with a deadline may run now: uniform progress. Pure.

The rule follows Wu et al., "Can't Be Late: Optimizing Spot Instance Savings under Deadlines" (NSDI 2024). Spare time is
what is left until the deadline beyond the remaining work and one more restart. Work is *ahead of its line* while it
has more spare time than the line keeps for it, else *behind*:

- waiting and ahead: on spot only, and while there is none it waits and pays nothing;
- waiting and behind: on spot if it is available at once, else on demand;
- waiting without time for one more failed start (the safety net): on demand only, and it stays there;
- running on spot: it stays; spot time is progress like any other. When not even one restart can be paid for, it moves
  to a machine on demand, which is started first;
- running on demand: back to spot when two restarts can be paid for and what is left is worth a restart; the spot
  machine is started first, so that a refusal costs nothing.

The paper's line keeps spare time in proportion to the remaining work. That hoards: time is of use for waiting and for
restarts alone. So no more is kept than `INTERRUPTIONS_PER_HOUR` of the remaining work would cost, which lets early
waiting use the rest. `benchmarks.spot` measures the rule beside the paper's line and beside keeping nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from resolute_provisioner.model import Market

INTERRUPTIONS_PER_HOUR = 2.0
"""Restarts per hour of remaining work for which time is reserved. Traces of spot capacity show up to 1.4 an hour."""

MARGIN_SHARE = 0.01
MARGIN_S = 60.0
"""The pace of training is measured, and measured things vary: this fraction of the remaining work counts twice, and at least
this many seconds."""

RESTARTS_TO_RETURN = 2.0
"""Back to spot only with spare time for this number of restarts, so that the first interruption does not force it back."""

WORTH_RETURNING = 4.0
"""Back to spot only when the remaining work is longer than this number of restarts: a shorter rest saves less than it costs."""

ANY = frozenset(Market)
ON_DEMAND = frozenset((Market.ON_DEMAND,))
SPOT = frozenset((Market.SPOT,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Facts about work with a deadline. Durations are seconds on the machines that it requests."""

    submitted_at: datetime
    deadline: datetime
    remaining_s: float | None
    """Remaining time; None if neither the pace nor an estimate is known."""
    total_s: float | None = None
    """Duration from the first step to the last; None means the remaining time."""
    restart_s: float
    """Time from the loss of its machine to the next new step on an available one: boot, start and restore."""
    unsaved_s: float = 0.0
    """Work that a loss without notice would undo."""
    interruptions_per_hour: float = INTERRUPTIONS_PER_HOUR
    """Restarts per hour for which its line reserves time: with infinity it is the paper's, with 0 there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketChoice:
    """The markets on which work may run next, and the reason. `revisit_at`: when time alone changes them.

    `ahead_s` is the distance to its line, negative when behind; None when that is not known or no line is followed.
    """

    markets: frozenset[Market]
    reason: str
    ahead_s: float | None = None
    revisit_at: datetime | None = None


def while_waiting(work: Work, now: datetime) -> MarketChoice:
    """The markets on which pending work may start."""
    if work.remaining_s is None:
        return MarketChoice(markets=ON_DEMAND, reason=f"{_how_long_is_unknown(work)}: on demand")
    spare_s, ahead_s = _spare_s(work, work.remaining_s, now), _ahead_s(work, work.remaining_s, now)
    if spare_s < work.restart_s:
        reason = (
            f"it is {_duration(-ahead_s)} behind its line, and before the deadline {_at(work)} no time is left for a start "
            "that fails: on demand"
        )
        return MarketChoice(markets=ON_DEMAND, reason=reason, ahead_s=ahead_s)
    # Waiting uses up spare time, and nothing else changes meanwhile.
    at_the_net = now + timedelta(seconds=spare_s - work.restart_s)
    if ahead_s < 0:
        reason = (
            f"it is {_duration(-ahead_s)} behind its line to the deadline {_at(work)}: spot if it is to be had at once, "
            "else on demand"
        )
        return MarketChoice(markets=ANY, reason=reason, ahead_s=ahead_s, revisit_at=_later(at_the_net, now))
    reason = f"it is {_duration(ahead_s)} ahead of its line to the deadline {_at(work)}: spot only"
    at_the_line = now + timedelta(seconds=ahead_s)
    return MarketChoice(markets=SPOT, reason=reason, ahead_s=ahead_s, revisit_at=_later(at_the_line, now))


def while_coming(work: Work, now: datetime) -> MarketChoice:
    """The markets for pending work while a spot machine starts for it: as if it ran there already. To give that machine up for
    another one would cost the time since its launch."""
    choice = while_running(work, Market.SPOT, now)
    if work.remaining_s is None or Market.SPOT not in choice.markets:
        return choice
    moves_at = now + timedelta(seconds=_spare_s(work, work.remaining_s, now))
    return replace(choice, revisit_at=_later(moves_at, now))


def while_running(work: Work, on: Market, now: datetime) -> MarketChoice:
    """The market on which running work should run: the present one, or another, to which it moves once a machine there is ready."""
    stays = frozenset((on,))
    if work.remaining_s is None:
        return MarketChoice(markets=stays, reason=f"{_how_long_is_unknown(work)}: it stays where it is")
    spare_s, ahead_s = _spare_s(work, work.remaining_s, now), _ahead_s(work, work.remaining_s, now)
    if on is Market.SPOT:
        if spare_s >= 0:
            return MarketChoice(markets=stays, reason="spot for as long as it lasts", ahead_s=ahead_s)
        reason = f"an interruption would cost the deadline {_at(work)}: to a machine on demand"
        return MarketChoice(markets=ON_DEMAND, reason=reason, ahead_s=ahead_s)
    if spare_s < RESTARTS_TO_RETURN * work.restart_s:
        reason = f"on demand to the end: {_duration(spare_s)} of spare time before the deadline {_at(work)}"
        return MarketChoice(markets=stays, reason=reason, ahead_s=ahead_s)
    if work.remaining_s < WORTH_RETURNING * work.restart_s:
        reason = f"on demand to the end: {_duration(work.remaining_s)} of work are not worth a move"
        return MarketChoice(markets=stays, reason=reason, ahead_s=ahead_s)
    reason = f"{_duration(spare_s)} of spare time before the deadline {_at(work)}: back to spot when it is available"
    return MarketChoice(markets=SPOT, reason=reason, ahead_s=ahead_s)


def _spare_s(work: Work, remaining_s: float, now: datetime) -> float:
    """Seconds that may pass without work and still leave time to finish after one restart. Constant while it runs."""
    left_s = (work.deadline - now).total_seconds()
    margin_s = max(MARGIN_S, MARGIN_SHARE * remaining_s)
    return left_s - remaining_s - margin_s - work.unsaved_s - work.restart_s


def _ahead_s(work: Work, remaining_s: float, now: datetime) -> float:
    total_s = max(work.total_s or remaining_s, remaining_s)
    given_s = max(0.0, (work.deadline - work.submitted_at).total_seconds() - total_s)
    uniform_s = given_s * remaining_s / total_s if total_s > 0 else 0.0
    for_restarts_s = work.restart_s * work.interruptions_per_hour * remaining_s / 3600
    return _spare_s(work, remaining_s, now) - min(uniform_s, for_restarts_s)


def _later(moment: datetime, now: datetime) -> datetime | None:
    return moment if moment > now else None


def _how_long_is_unknown(work: Work) -> str:
    return f"how long it takes until the deadline {_at(work)} is not known yet"


def _at(work: Work) -> str:
    return f"{work.deadline:%Y-%m-%d %H:%M} UTC"


def _duration(seconds: float) -> str:
    """For display: `45 s`, `12 min`, `3 h 5 min`."""
    if abs(seconds) < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if abs(minutes) < 120 else f"{minutes // 60} h {minutes % 60} min"
