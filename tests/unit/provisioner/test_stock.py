"""What may be bought, and which sizes are tried first."""

from __future__ import annotations

from dataclasses import fields

from resolute_provisioner.planning.stock import Stock
from resolute_provisioner.ranking import Forecast, forecast
from support.provisioner import NOW, an_offer


class OrderedOtherwise(Forecast):
    """Sorted as ever, by a key of another shape."""

    @property
    def order(self) -> tuple[int, tuple[bool, float, float, str]]:  # type: ignore[override]
        return (0, Forecast.order.__get__(self))


FORECASTS = [
    forecast(an_offer(name, slots=slots, price=price), None, NOW)
    for name, slots, price in [
        ("a", 1, 1.0),
        ("b", 4, 2.0),
        ("c", 8, 8.0),
        ("d", 2, None),
        ("e", 4, 16.0),
        ("f", 0, 0.1),
    ]
]


def test_the_size_of_the_cheapest_slot_comes_first_and_of_equals_the_larger() -> None:
    """The cheapest of a size counts; the slots of one of unknown price come last; one without slots counts as one."""
    assert Stock(FORECASTS).sizes_by_value() == [0, 4, 8, 1, 2]
    assert Stock(FORECASTS[::-1]).sizes_by_value() == [0, 4, 8, 1, 2]


def test_the_value_of_a_size_does_not_hang_on_how_offers_are_sorted() -> None:
    others = [
        OrderedOtherwise(**{each.name: getattr(one, each.name) for each in fields(Forecast)}) for one in FORECASTS
    ]
    assert Stock(others).sizes_by_value() == Stock(FORECASTS).sizes_by_value()
