"""Cost and waiting of the pool on a trace of jobs, compared with other policies, and the frontier over its settings.

Days 0 to 20; a slot-hour costs 3.06 in every size (1, 4, 8), machines start in 180 s, and the maximum is 4,000 slots. A gang of at
most 8 slots runs on one machine; every job completes. A second run sets the price of size 8 to 6.5 times that of size 1. Our
setting is `OURS`; the others of `SETTINGS` are the frontier, drawn to `PLOT`. The last row is the processor time of a month.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.bursts import bursty_jobs, clairvoyant, knows_every_gap
from benchmarks.report import Row, Spread, Target
from benchmarks.spot_mix import default_scaling
from benchmarks.traces import SIZES, SLOT_HOUR, SLOTS_CAP, jobs_between, trace_name, trace_pool
from resolute_master.domain.pool import PoolPolicy
from resolute_provisioner.model import Consolidation
from resolute_sim.twin.compare import compare
from resolute_sim.twin.figures import Figures
from resolute_sim.twin.twin import DEFAULT_BOOT_S, Setting, simulate

DAYS, MONTH = 20, 30
PLOT = Path(__file__).resolve().parents[1] / "docs" / "twin.svg"
BASELINES = ("packing", "determined", "static")
FIRST_ORDER = {"packing": (0.069, 110.0), "determined": (0.317, 52.0)}
"""Excess and mean wait of a first-order model, and the limits of the differences to it."""
NEAR_EXCESS, NEAR_WAIT_S = 0.03, 8.0
BETTER = 0.90
"""Target: in one of the two figures at most this fraction of `packing`, and in the other at most `packing`."""
MONTH_S = 45.0
WHOLE_DAYS, EXCESS, WAIT_S, BEYOND_CLAIRVOYANT = 75, 0.03, 150.0, 1.25
"""Targets of pools with default settings."""
DEAR_8 = {size: SLOT_HOUR * size for size in SIZES[:-1]} | {8: 6.5 * SLOT_HOUR}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The operator's settings; without `max_idle_cost` only the idle period applies."""

    max_idle_cost: float | None
    consolidation: bool = True

    @property
    def words(self) -> str:
        cost = "idle 5 min" if self.max_idle_cost is None else f"idle up to {self.max_idle_cost:g} $"
        return f"{cost}, {'consolidated' if self.consolidation else 'nothing moved'}"


OURS = Choice(max_idle_cost=6.12)
SETTINGS = (
    Choice(max_idle_cost=None, consolidation=False),
    Choice(max_idle_cost=None),
    Choice(max_idle_cost=1.53),
    Choice(max_idle_cost=3.06),
    OURS,
    Choice(max_idle_cost=12.24),
)


def main() -> list[Row]:
    linear = _setting(None, DAYS)
    baselines = {each.policy: each.figures for each in compare(linear, BASELINES)}
    ours = {choice: simulate(_setting(None, DAYS, choice), "resolute").figures for choice in SETTINGS}
    draw({**{choice.words: each for choice, each in ours.items()}, **baselines}, PLOT)
    dear_baselines = {each.policy: each.figures for each in compare(_setting(DEAR_8, DAYS), BASELINES)}
    dear = simulate(_setting(DEAR_8, DAYS, OURS), "resolute").figures
    return [
        *_figures("linear", {**baselines, **{choice.words: each for choice, each in ours.items()}}),
        *_first_order(baselines),
        *_judged("linear", ours[OURS], baselines["packing"]),
        *_figures("size 8 at 6.5", {**dear_baselines, OURS.words: dear}),
        *_judged("size 8 at 6.5", dear, dear_baselines["packing"]),
        *_defaults(),
        *_bursts(),
        _month(),
    ]


def _setting(prices: dict[int, float] | None, days: float, choice: Choice | None = None) -> Setting:
    given = choice or Choice(max_idle_cost=None, consolidation=False)
    pool = trace_pool(
        prices=prices,
        max_idle_cost=given.max_idle_cost,
        consolidation=Consolidation() if given.consolidation else None,
    )
    return Setting(pool=pool, jobs=jobs_between(0, days))


def _figures(run: str, found: dict[str, Figures]) -> list[Row]:
    return [
        row
        for name, each in found.items()
        for row in (
            Row(
                name=f"{run}: {name}: excess cost",
                subject=Spread.one(each.excess, "of the bound"),
                bound_name="busy slot-hours at the cheapest price",
                bound=Spread.one(each.cost_lower_bound, "$"),
                notes=f"{trace_name()}; {each.jobs_completed} jobs completed, {each.launches} launches",
            ),
            Row(
                name=f"{run}: {name}: mean wait",
                subject=Spread.one(each.wait_mean_s, "s"),
                notes=f"95 % wait at most {each.wait_p95_s:.0f} s; used {each.utilisation:.3f} of what was paid",
            ),
        )
    ]


def _first_order(baselines: dict[str, Figures]) -> list[Row]:
    if "synthetic" in trace_name():
        return []  # the model describes the other trace
    return [
        row
        for name, (excess, wait_s) in FIRST_ORDER.items()
        for row in (
            Row(
                name=f"{name}: excess beside a first-order model",
                subject=Spread.one(baselines[name].excess, ""),
                bound_name="model",
                bound=Spread.one(excess, ""),
                result=abs(baselines[name].excess - excess),
                target=Target(at_most=NEAR_EXCESS),
            ),
            Row(
                name=f"{name}: wait beside a first-order model",
                subject=Spread.one(baselines[name].wait_mean_s, "s"),
                bound_name="model",
                bound=Spread.one(wait_s, "s"),
                result=abs(baselines[name].wait_mean_s - wait_s),
                unit="s",
                target=Target(at_most=NEAR_WAIT_S),
            ),
        )
    ]


def _judged(run: str, ours: Figures, packing: Figures) -> list[Row]:
    excess, wait = ours.excess / packing.excess, ours.wait_mean_s / packing.wait_mean_s
    return [
        Row(
            name=f"{run}: ours beside packing, the worse figure",
            subject=Spread.one(max(excess, wait), "of packing"),
            result=max(excess, wait),
            target=Target(at_most=1.0),
            notes=f"{OURS.words}: excess {excess:.3f}, wait {wait:.3f}",
        ),
        Row(
            name=f"{run}: ours beside packing, the better figure",
            subject=Spread.one(min(excess, wait), "of packing"),
            result=min(excess, wait),
            target=Target(at_most=BETTER),
        ),
    ]


def _default_pool() -> PoolPolicy:
    """A pool whose configuration contains only its offers and its maximum."""
    pool = trace_pool()
    assert pool.scaling is not None
    return replace(pool, scaling=default_scaling("trace", pool.scaling.offers, max_instances=SLOTS_CAP))


def _defaults() -> list[Row]:
    """The whole trace with default settings."""
    figures = simulate(Setting(pool=_default_pool(), jobs=jobs_between(0, WHOLE_DAYS)), "resolute").figures
    return [
        Row(
            name="defaults: excess cost",
            subject=Spread.one(figures.excess, "of the bound"),
            result=figures.excess,
            target=Target(at_most=EXCESS),
            notes=f"{trace_name()}, whole; {figures.launches} launches",
        ),
        Row(
            name="defaults: mean wait",
            subject=Spread.one(figures.wait_mean_s, "s"),
            result=figures.wait_mean_s,
            unit="s",
            target=Target(at_most=WAIT_S),
        ),
    ]


def _bursts() -> list[Row]:
    """Short single-slot work, compared with a policy that knows every gap and has the same mean wait."""
    jobs = bursty_jobs(0)
    figures = simulate(Setting(pool=_default_pool(), jobs=jobs), "resolute").figures
    knowing = knows_every_gap(jobs, boot_s=DEFAULT_BOOT_S, wait_mean_s=figures.wait_mean_s)
    ahead = clairvoyant(jobs, boot_s=DEFAULT_BOOT_S, wait_mean_s=figures.wait_mean_s)
    words = f"mean wait {figures.wait_mean_s:.0f} s; {figures.launches} launches; {len(jobs)} jobs made from a seed"
    return [
        Row(
            name="defaults, short work in bursts: excess cost",
            subject=Spread.one(figures.excess, "of the work"),
            bound_name="knows every gap, same boots and wait",
            bound=Spread.one(knowing.excess, "of the work"),
            result=figures.excess / knowing.excess,
            target=Target(at_most=BEYOND_CLAIRVOYANT),
            notes=words,
        ),
        Row(
            name="defaults, short work in bursts: beside one that also boots ahead of each submission",
            subject=Spread.one(figures.excess, "of the work"),
            bound_name="knows every submission",
            bound=Spread.one(ahead.excess, "of the work"),
            result=figures.excess / ahead.excess,
        ),
    ]


def _month() -> Row:
    setting = _setting(None, MONTH, OURS)
    begun = time.process_time()
    figures = simulate(setting, "resolute").figures
    took_s = time.process_time() - begun
    return Row(
        name=f"{MONTH} days, {figures.jobs_completed} jobs, in processor time",
        subject=Spread.one(took_s, "s"),
        result=took_s,
        unit="s",
        target=Target(at_most=MONTH_S),
        notes=f"of which decisions {figures.decision_cpu_s:.0f} s",
    )


def draw(found: dict[str, Figures], path: Path) -> None:
    """Plots excess against mean wait without `static`, which is far outside."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "twin", "svg.fonttype": "none"}):
        figure = Figure(figsize=(7.2, 4.2), layout="tight")
        panel = figure.subplots()
        for words, each in found.items():
            if words == "static":
                continue
            baseline = words in BASELINES
            panel.plot(
                100 * each.excess,
                each.wait_mean_s,
                "s" if baseline else "o",
                color="#d1495b" if baseline else "#1b6ca8",
            )
            # Labels of our settings are on the left of their line, other labels on the right.
            left = not baseline and "nothing" not in words
            panel.annotate(
                words,
                (100 * each.excess, each.wait_mean_s),
                xytext=(-6 if left else 6, -3),
                ha="right" if left else "left",
                textcoords="offset points",
                fontsize=7,
            )
        furthest = max(100 * each.excess for words, each in found.items() if words != "static")
        panel.set_xlim(-0.3 * furthest, 1.2 * furthest)
        _line(panel, [each for words, each in found.items() if words not in BASELINES and "nothing" not in words])
        panel.set_xlabel("excess cost, % of the bound")
        panel.set_ylabel("mean wait, s")
        panel.grid(alpha=0.3)
        figure.savefig(path, metadata={"Date": None})


def _line(panel: object, ours: Sequence[Figures]) -> None:
    ordered = sorted(ours, key=lambda each: each.excess)
    panel.plot([100 * e.excess for e in ordered], [e.wait_mean_s for e in ordered], color="#1b6ca8", alpha=0.4)  # type: ignore[attr-defined]
