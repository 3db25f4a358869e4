"""The frontier of a pool on a trace: cost and waiting under other values of the settings that trade one for the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from resolute_master.domain.copies import replace
from resolute_master.domain.pool import PoolPolicy
from resolute_provisioner.model import Consolidation, PoolScaling, SpotFallback
from resolute_sim.twin.figures import Report

AS_IT_IS = "as it is"
IDLE_HOURS = (0.5, 1.0, 2.0, 4.0)
"""Values of `max_idle_cost`, in hours of the pool's cheapest machine."""
SPOT_WAITS_S = (0.0, 1800.0, 7200.0)
"""Values of `spot_fallback.after`, for a pool with offers of both markets."""
RETURN_AFTER_S = 600.0
"""The value of `spot_fallback.return_after` for a pool that has none."""


def other_settings(pool: PoolPolicy) -> Mapping[str, PoolPolicy]:
    """The pool as it is, with other values of `max_idle_cost`, with `consolidation` switched, and with other values of
    `spot_fallback` if it has offers of both markets; by what was changed."""
    scaling = pool.scaling
    assert scaling is not None
    found = {AS_IT_IS: pool}
    prices = [offer.price_per_hour for offer in scaling.offers if offer.price_per_hour]
    costs = [float(f"{hours * min(prices):.3g}") for hours in IDLE_HOURS] if prices else []
    for cost in (*([None] if scaling.max_idle_cost is not None else []), *costs):
        if cost != scaling.max_idle_cost:
            name = f"max_idle_cost: {'null' if cost is None else f'{cost:g}'}"
            found[name] = replace(pool, scaling=replace(scaling, max_idle_cost=cost))
    switched = Consolidation() if scaling.consolidation is None else None
    name = f"consolidation: {'null' if switched is None else '{}'}"
    found[name] = replace(pool, scaling=replace(scaling, consolidation=switched))
    for name, fallback in _other_fallbacks(scaling):
        found[name] = replace(pool, scaling=replace(scaling, spot_fallback=fallback))
    return found


def _other_fallbacks(scaling: PoolScaling) -> Iterator[tuple[str, SpotFallback]]:
    if not scaling.has_both_markets:
        return
    present = scaling.spot_fallback
    for after_s in SPOT_WAITS_S:
        if after_s != present.after_s:
            yield f"spot_fallback.after: {after_s / 60:g}m", replace(present, after_s=after_s)
    back_s = RETURN_AFTER_S if present.return_after_s is None else None
    name = f"spot_fallback.return_after: {'null' if back_s is None else f'{back_s / 60:g}m'}"
    yield name, replace(present, return_after_s=back_s)


def frontier_of(reports: Sequence[Report]) -> tuple[Report, ...]:
    """Those that no other one beats in cost and in mean wait, by their cost."""
    found: list[Report] = []
    for report in sorted(reports, key=lambda each: (each.figures.cost, each.figures.wait_mean_s)):
        if not found or report.figures.wait_mean_s < found[-1].figures.wait_mean_s:
            found.append(report)
    return tuple(found)
