"""What changes of a pool's settings would save, and what they would cost in waiting: jobs are played under each of them.

Played are at most `MOST` changes that the pool lends itself to, one by one, beside the pool as it is. Budgets are left out, and so
are offers without a price. Without a series of capacity, spot machines can always be had, so that what they save is an upper bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from resolute.errors import InvalidInput
from resolute_master.domain.account import NO_LIMITS
from resolute_master.domain.copies import replace
from resolute_master.domain.pool import PoolPolicy
from resolute_provisioner.catalogue.shapes import Catalogue
from resolute_provisioner.model import Consolidation, Market, Offer, PoolScaling, SpotFallback
from resolute_sim.twin.figures import Report
from resolute_sim.twin.jobs import TraceJob
from resolute_sim.twin.twin import DEFAULT_BOOT_S, Setting, check_jobs, largest_size, simulate

MOST = 5
MONTH_S = 30 * 86_400.0
LEAST_SAVED = 0.005
"""Of the cost; what saves less is not worth a line."""
RETURN_AFTER_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """`key` of the pool would be `value`."""

    key: str
    value: str
    scaling: PoolScaling


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """What a change does, in the currency of the prices and in seconds."""

    key: str
    value: str
    saves_a_month: float
    share: float
    """Of the cost."""
    wait_more_s: float
    """On average; below 0: jobs wait less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """`savings`, the largest first."""

    jobs: int
    days: float
    cost_a_month: float
    wait_mean_s: float
    savings: tuple[Saving, ...]


def advise(
    pool: PoolPolicy, jobs: Sequence[TraceJob], catalogue: Catalogue | None = None, *, boot_s: float = DEFAULT_BOOT_S
) -> Advice:
    """Raises `InvalidInput` where no price of the pool is known, or the pool can never hold a job."""
    assert pool.scaling is not None
    known = tuple(offer for offer in pool.scaling.offers if offer.price_per_hour is not None)
    if not known:
        raise InvalidInput(f"pool '{pool.name}': no price of its offers is known; give prices in its provider")
    pool = replace(pool, budget=NO_LIMITS, scaling=replace(pool.scaling, offers=known))
    check_jobs(pool, jobs)
    before = simulate(Setting(pool=pool, jobs=tuple(jobs), boot_s=boot_s), "resolute")
    a_month = MONTH_S / max(86_400.0, _last_s(before))
    assert pool.scaling is not None
    savings = []
    for change in list(changes(pool.scaling, catalogue or Catalogue()))[:MOST]:
        after = simulate(
            Setting(pool=replace(pool, scaling=change.scaling), jobs=tuple(jobs), boot_s=boot_s), "resolute"
        )
        saved = before.figures.cost - after.figures.cost
        if saved > LEAST_SAVED * before.figures.cost:
            savings.append(
                Saving(
                    key=change.key,
                    value=change.value,
                    saves_a_month=saved * a_month,
                    share=saved / before.figures.cost,
                    wait_more_s=after.figures.wait_mean_s - before.figures.wait_mean_s,
                )
            )
    return Advice(
        jobs=len(jobs),
        days=_last_s(before) / 86_400.0,
        cost_a_month=before.figures.cost * a_month,
        wait_mean_s=before.figures.wait_mean_s,
        savings=tuple(sorted(savings, key=lambda each: (-each.saves_a_month, each.key))),
    )


def changes(pool: PoolScaling, catalogue: Catalogue) -> Iterator[Change]:
    """Those that the pool does not have yet, in the order of what they usually save."""
    sizes = other_sizes(pool, catalogue)
    if sizes:
        offers = (*pool.offers, *sizes)
        names = ", ".join(sorted({offer.instance_type for offer in offers}))
        # As many slots as before, also of the smallest machines.
        slots = max(offer.slots for offer in pool.offers), min(offer.slots for offer in offers)
        most = -(-pool.max_instances * slots[0] // slots[1])
        yield Change(
            key="offers",
            value=f"instance_types: [{names}], and max_instances: {most}",
            scaling=replace(pool, offers=offers, max_instances=most),
        )
    if pool.consolidation is None:
        yield Change(
            key="consolidation", value="{} (the default)", scaling=replace(pool, consolidation=Consolidation())
        )
    if not pool.idle_learnt:
        yield Change(key="max_idle_agent_period", value="left out", scaling=replace(pool, idle_learnt=True))
    if len({offer.market for offer in pool.offers}) > 1 and pool.spot_fallback.return_after_s is None:
        back = SpotFallback(after_s=pool.spot_fallback.after_s, return_after_s=RETURN_AFTER_S)
        yield Change(key="spot_fallback.return_after", value="10m", scaling=replace(pool, spot_fallback=back))
    if pool.min_instances > 0:
        yield Change(key="min_instances", value="0", scaling=replace(pool, min_instances=0))
    if pool.max_idle_cost is not None:
        yield Change(key="max_idle_cost", value="left out", scaling=replace(pool, max_idle_cost=None))


def other_sizes(pool: PoolScaling, catalogue: Catalogue) -> tuple[Offer, ...]:
    """Machines on demand of the same family and accelerator with fewer or more slots, the cheapest of each size, where the pool has
    one machine type; none for others, whose operator has chosen."""
    if len({offer.instance_type for offer in pool.offers}) != 1:
        return ()
    found: list[Offer] = []
    for offer in pool.offers:
        shape = catalogue.shapes.get(offer.instance_type)
        if shape is None or not shape.accelerators or offer.market is not Market.ON_DEMAND or offer.reservation:
            continue
        cheapest: dict[int, tuple[float, str]] = {}
        for name, other in catalogue.shapes.items():
            price = catalogue.price(other, offer.region)
            alike = _family(name) == _family(offer.instance_type) and other.accelerator == shape.accelerator
            if alike and price is not None and other.accelerators not in (0, shape.accelerators):
                cheapest[other.accelerators] = min((price, name), cheapest.get(other.accelerators, (price, name)))
        found += [
            replace(
                offer,
                offer_id=offer.offer_id.replace(f"/{offer.instance_type}/", f"/{name}/"),
                instance_type=name,
                slots=slots,
                accelerators=slots,
                price_per_hour=price,
                vcpus=catalogue.shapes[name].vcpus,
                memory_gib=catalogue.shapes[name].memory_gib,
            )
            for slots, (price, name) in sorted(cheapest.items())
        ]
    return tuple(found)


def suited(pool: PoolPolicy, jobs: Sequence[TraceJob]) -> tuple[TraceJob, ...]:
    """The jobs of a sample as work of the pool: none asks for more than its largest machine has."""
    return tuple(replace(job, slots=min(job.slots, max(1, largest_size(pool)))) for job in jobs)


def _family(instance_type: str) -> str:
    return instance_type.partition(".")[0] if "." in instance_type else instance_type.partition("-")[0]


def _last_s(report: Report) -> float:
    return max((span.ended_s for span in report.spans), default=0.0)
