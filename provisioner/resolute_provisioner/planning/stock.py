"""Offers that may be requested: of all, the cheapest of each size on each market. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from resolute_provisioner.model import Market
from resolute_provisioner.ranking import Forecast

Cost = tuple[int, float]
"""Number of unknown prices, and the sum of the others: a machine of known price is always preferred."""

NOTHING: Cost = (0, 0.0)


def cost_of(bought: Iterable[Forecast]) -> Cost:
    prices = [each.expected_price for each in bought]
    return sum(price is None for price in prices), sum(price for price in prices if price is not None)


def _best(forecasts: Iterable[Forecast]) -> list[Forecast]:
    """The cheapest first; between equals the smallest."""
    best: dict[tuple[int, Market], Forecast] = {}
    for each in forecasts:
        key = (each.offer.slots, each.offer.market)
        if key not in best or each.order < best[key].order:
            best[key] = each
    return sorted(best.values(), key=lambda each: (*cost_of([each]), each.offer.slots, each.order))


class Stock:
    """The offers that may be requested now. Of those with the same slots on the same market only the best is kept: it
    does whatever the others would."""

    def __init__(self, forecasts: Sequence[Forecast], *, gang_limits: Mapping[str, int] | None = None) -> None:
        """`gang_limits`: most machines of an offer for one gang that needs several, by offer id."""
        self._forecasts = forecasts
        self._gang_limits = gang_limits or {}
        self._best = _best(forecasts)
        self._best_whole: dict[int, list[Forecast]] = {}
        """The best offers of which one gang may have this number of machines, by that number."""
        self._of_size: dict[tuple[int, frozenset[Market]], Forecast | None] = {}
        self._whole: dict[tuple[int, frozenset[Market], int], Forecast | None] = {}
        self._holding: dict[tuple[int, frozenset[Market]], Forecast | None] = {}

    @property
    def sizes(self) -> Sequence[int]:
        return sorted({each.offer.slots for each in self._best})

    def sizes_by_value(self) -> Sequence[int]:
        """Sizes, those with the cheapest slots first."""
        cheapest: dict[int, Forecast] = {}
        for each in self._best:
            cheapest.setdefault(each.offer.slots, each)
        by_slot = {
            size: (unknown, price / max(size, 1))
            for size, each in cheapest.items()
            for unknown, price in [cost_of([each])]
        }
        return sorted(cheapest, key=lambda size: (by_slot[size], -size))

    def of_size(self, slots: int, markets: frozenset[Market]) -> Forecast | None:
        """The cheapest machine of exactly this size, for work that needs one."""
        key = (slots, markets)
        if key not in self._of_size:
            found = (each for each in self._best if each.offer.slots == slots and each.offer.market in markets)
            self._of_size[key] = next(found, None)
        return self._of_size[key]

    def whole(self, slots: int, markets: frozenset[Market], machines: int) -> Forecast | None:
        """The cheapest machine of exactly this size, for a gang that needs `machines` more of them."""
        key = (slots, markets, machines)
        if key not in self._whole:
            best = self._best_of(machines)
            found = (each for each in best if each.offer.slots == slots and each.offer.market in markets)
            self._whole[key] = next(found, None)
        return self._whole[key]

    def whole_holding(self, slots: int, markets: frozenset[Market], machines: int) -> Forecast | None:
        """The cheapest machine of at least this size, for a gang that needs `machines` more of them."""
        found = (each for each in self._best_of(machines) if each.offer.slots >= slots and each.offer.market in markets)
        return next(found, None)

    def _best_of(self, machines: int) -> list[Forecast]:
        if not self._gang_limits:
            return self._best
        if machines not in self._best_whole:
            limits = self._gang_limits
            enough = (each for each in self._forecasts if limits.get(each.offer.offer_id, machines) >= machines)
            self._best_whole[machines] = _best(enough)
        return self._best_whole[machines]

    def holding(self, slots: int, markets: frozenset[Market]) -> Forecast | None:
        """The cheapest machine of at least this size."""
        key = (slots, markets)
        if key not in self._holding:
            found = (each for each in self._best if each.offer.slots >= slots and each.offer.market in markets)
            self._holding[key] = next(found, None)
        return self._holding[key]
