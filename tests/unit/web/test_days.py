"""A bar for every day, as high as its cost, also for those without one."""

from __future__ import annotations

from datetime import date

import pytest

from resolute.wire.rest.costs import CostRow
from resolute.wire.rest.extensions import LedgerRow
from resolute_web.days import MOST, bars_of


def row(day: str, **costs: float) -> CostRow:
    return CostRow(key=day, name="", row=LedgerRow(cost=sum(costs.values()), costs=costs))


def test_a_bar_is_a_share_of_the_highest_and_days_without_a_cost_have_one() -> None:
    found = bars_of([row("2026-03-03", useful=6.0, idle=2.0), row("2026-03-01", useful=3.0, lost=1.0)])
    assert found.most == 8.0 and found.mean == pytest.approx(4.0)
    assert [bar.day.day for bar in found.bars] == [1, 2, 3]
    assert [(piece.account, piece.y, piece.height) for piece in found.bars[0].pieces] == [
        ("useful", 62.5, 37.5),
        ("lost", 50.0, 12.5),
    ]
    assert found.bars[1].pieces == () and found.bars[1].cost == 0.0
    assert sum(piece.height for piece in found.bars[2].pieces) == 100.0


def test_of_more_than_a_year_the_last_days_are_drawn_and_of_nothing_none() -> None:
    found = bars_of([row("2020-01-01", useful=1.0), row("2026-03-01", useful=1.0)])
    assert len(found.bars) == MOST and found.bars[-1].day == date(2026, 3, 1)
    assert bars_of([]).bars == () and bars_of([row("2026-03-01")]).most == 0
