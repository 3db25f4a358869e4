"""What each day has cost, as bars: one for every day from the first to the last, also of those on which nothing was paid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from resolute.wire.rest.costs import CostRow
from resolute_master.lifecycle.cost import ACCOUNTS

MOST = 400
"""Bars that are drawn: the last ones of more than a year."""

HEIGHT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Part of a bar for one account; `y` and `height` are shares of `HEIGHT`."""

    account: str
    y: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One day."""

    day: date
    cost: float
    costs: Mapping[str, float]
    pieces: Sequence[Piece]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """`most` is what the highest one costs, which fills the height."""

    bars: Sequence[Bar]
    most: float

    @property
    def mean(self) -> float:
        return sum(bar.cost for bar in self.bars) / len(self.bars) if self.bars else 0.0


def bars_of(rows: Sequence[CostRow]) -> Bars:
    """`rows` are those of the cost by day."""
    costs = {date.fromisoformat(row.key): row.row.costs for row in rows}
    if not costs:
        return Bars(bars=(), most=0.0)
    first, last = min(costs), max(costs)
    first = max(first, last - timedelta(days=MOST - 1))
    days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    most = max(sum(costs.get(day, {}).values()) for day in days)
    return Bars(bars=[_bar(day, costs.get(day, {}), most) for day in days], most=most)


def _bar(day: date, costs: Mapping[str, float], most: float) -> Bar:
    pieces, top = [], float(HEIGHT)
    for account in ACCOUNTS:
        height = HEIGHT * costs.get(account, 0.0) / most if most > 0 else 0.0
        if height > 0:
            top -= height
            pieces.append(Piece(account=account, y=round(top, 3), height=round(height, 3)))
    return Bar(day=day, cost=sum(costs.values()), costs=costs, pieces=tuple(pieces))
