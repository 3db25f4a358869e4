"""Finds settings of a pool that would save money, and their effect on waiting, by simulations.

Each applicable change is simulated alone and compared with the pool as it is. The result contains the `MOST` changes with the
largest savings. Budgets and offers without a price are excluded. Spot machines are always available in the simulation, so their
savings are an upper bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from resolute.errors import InvalidInput
from resolute_master.domain.account import NO_LIMITS
from resolute_master.domain.copies import replace
from resolute_master.domain.pool import Fitting, PoolPolicy
from resolute_master.forecast.advice import Advice, Saving
from resolute_master.forecast.trace_job import TraceJob
from resolute_provisioner.catalogue.shapes import Catalogue
from resolute_provisioner.model import Consolidation, Market, Offer, PoolScaling, SpotFallback
from resolute_sim.twin.figures import Report
from resolute_sim.twin.frontier import RETURN_AFTER_S
from resolute_sim.twin.twin import DEFAULT_BOOT_S, Setting, check_job, check_jobs, largest_size, simulate

MOST = 5
MONTH_S = 30 * 86_400.0
DAY_S = 86_400.0
LEAST_SAVED = 0.005
"""Share of the cost. A change that saves less is not reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Sets `key` of the pool from `now` to `value`."""

    key: str
    now: str
    value: str
    pool: PoolPolicy


def advise(
    pool: PoolPolicy,
    jobs: Sequence[TraceJob],
    catalogue: Catalogue | None = None,
    *,
    boot_s: float = DEFAULT_BOOT_S,
    days: float | None = None,
    left_out: int = 0,
) -> Advice:
    """`days` is the length of the trace, at least one day; None means until the last machine has ended.

    Raises `InvalidInput` if the pool has no price, or if it can never hold one of the jobs.
    """
    assert pool.scaling is not None
    known = tuple(offer for offer in pool.scaling.offers if offer.price_per_hour is not None)
    if not known:
        raise InvalidInput(f"pool '{pool.name}': no price of its offers is known; give prices in its provider")
    pool = replace(pool, budget=NO_LIMITS, scaling=replace(pool.scaling, offers=known))
    check_jobs(pool, jobs)
    lasts_s = 0.0 if days is None else DAY_S * max(1.0, days)
    before = _played(pool, jobs, boot_s, lasts_s)
    a_month = MONTH_S / (max(DAY_S, _last_s(before)) if days is None else lasts_s)
    savings, tried = [], tuple(changes(pool, catalogue or Catalogue()))
    for change in tried:
        after = _played(change.pool, jobs, boot_s, lasts_s)
        saved = before.figures.cost - after.figures.cost
        if saved > LEAST_SAVED * before.figures.cost:
            savings.append(
                Saving(
                    key=change.key,
                    now=change.now,
                    value=change.value,
                    saves_a_month=saved * a_month,
                    share=saved / before.figures.cost,
                    wait_mean_s=after.figures.wait_mean_s,
                )
            )
    return Advice(
        jobs=len(jobs),
        left_out=left_out,
        days=_last_s(before) / DAY_S if days is None else days,
        cost_a_month=before.figures.cost * a_month,
        wait_mean_s=before.figures.wait_mean_s,
        played=len(tried),
        savings=tuple(sorted(savings, key=lambda each: (-each.saves_a_month, each.key))[:MOST]),
    )


def _played(pool: PoolPolicy, jobs: Sequence[TraceJob], boot_s: float, lasts_s: float) -> Report:
    return simulate(Setting(pool=pool, jobs=tuple(jobs), boot_s=boot_s, lasts_s=lasts_s), "resolute")


def changes(pool: PoolPolicy, catalogue: Catalogue) -> Iterator[Change]:
    """The changes that apply to the pool, in the order of their usual savings."""
    scaling = pool.scaling
    assert scaling is not None
    sizes = other_sizes(scaling, catalogue)
    if sizes:
        offers = (*scaling.offers, *sizes)
        # The pool keeps its maximum number of slots if it buys the smallest machines only.
        slots = max(offer.slots for offer in scaling.offers), min(offer.slots for offer in offers)
        most = -(-scaling.max_instances * slots[0] // slots[1])
        yield Change(
            key="offers",
            now=_types(scaling.offers, scaling.max_instances),
            value=_types(offers, most),
            pool=replace(pool, scaling=replace(scaling, offers=offers, max_instances=most)),
        )
    for key, now, value, changed in _other_settings(scaling):
        yield Change(key=key, now=now, value=value, pool=replace(pool, scaling=changed))
    if pool.fitting is not Fitting.BEST:
        yield Change(
            key="scheduler.fitting_policy",
            now=pool.fitting.value,
            value=Fitting.BEST.value,
            pool=replace(pool, fitting=Fitting.BEST),
        )


def _types(offers: Sequence[Offer], most: int) -> str:
    names = ", ".join(sorted({offer.instance_type for offer in offers}))
    return f"instance_types: [{names}], and max_instances: {most}"


def _other_settings(pool: PoolScaling) -> Iterator[tuple[str, str, str, PoolScaling]]:
    """Yields the key, its present value, the other value, and the pool with the other value."""
    if pool.consolidation is None:
        yield "consolidation", "null", "{}", replace(pool, consolidation=Consolidation())
    if not pool.idle_learnt:
        learnt = replace(pool, idle_learnt=True)
        yield "max_idle_agent_period", f"{pool.idle_timeout_s:g}s", "null (learnt)", learnt
    fallback = pool.spot_fallback
    if pool.has_both_markets and fallback.return_after_s is None:
        back = SpotFallback(after_s=fallback.after_s, return_after_s=RETURN_AFTER_S)
        yield "spot_fallback.return_after", "null", f"{RETURN_AFTER_S / 60:g}m", replace(pool, spot_fallback=back)
    if pool.min_instances > 0:
        yield "min_instances", str(pool.min_instances), "0", replace(pool, min_instances=0)
    if pool.max_idle_cost is not None:
        yield "max_idle_cost", f"{pool.max_idle_cost:g}", "null", replace(pool, max_idle_cost=None)


def other_sizes(pool: PoolScaling, catalogue: Catalogue) -> tuple[Offer, ...]:
    """On-demand offers of the same family and accelerator with fewer or more slots, the cheapest of each size. Empty if the pool
    has several machine types, because its operator has chosen them."""
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


def simulatable(pool: PoolPolicy, jobs: Sequence[TraceJob]) -> tuple[TraceJob, ...]:
    """The past jobs that the present pool can hold."""
    return tuple(job for job in jobs if _can_hold(pool, job))


def _can_hold(pool: PoolPolicy, job: TraceJob) -> bool:
    try:
        check_job(pool, job)
    except InvalidInput:
        return False
    return True


def suited(pool: PoolPolicy, jobs: Sequence[TraceJob]) -> tuple[TraceJob, ...]:
    """The jobs of a sample, each limited to the slots of the pool's largest machine."""
    return tuple(replace(job, slots=min(job.slots, max(1, largest_size(pool)))) for job in jobs)


def _family(instance_type: str) -> str:
    return instance_type.partition(".")[0] if "." in instance_type else instance_type.partition("-")[0]


def _last_s(report: Report) -> float:
    return max((span.ended_s for span in report.spans), default=0.0)
