"""Several policies and settings on one trace, each in a process of its own; and the report as JSON.

The interface of `det simulate` to the simulation.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from resolute.errors import InvalidInput
from resolute_master.domain.copies import replace
from resolute_master.forecast.work import Overheads
from resolute_sim.twin.capacity import read_capacity
from resolute_sim.twin.figures import Report
from resolute_sim.twin.frontier import AS_IT_IS, frontier_of, other_settings
from resolute_sim.twin.jobs import DAY_S, between, read_jobs
from resolute_sim.twin.pools import read_pool
from resolute_sim.twin.synthetic import synthetic_jobs
from resolute_sim.twin.twin import DEFAULT_BOOT_S, POLICIES, Setting, check_jobs, check_prices, simulate

SYNTHETIC = "synthetic"
"""Instead of a file of jobs: a trace made from the seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The arguments of `det simulate`."""

    pool: Path
    jobs: Path
    """A CSV file, or `SYNTHETIC`."""
    resource_pool: str | None = None
    spot: tuple[Path, ...] = ()
    policies: tuple[str, ...] = (POLICIES[0],)
    seed: int = 0
    first_day: float | None = None
    last_day: float | None = None
    boot_s: float = DEFAULT_BOOT_S
    overheads: Overheads = field(default_factory=Overheads)
    processes: int = 2
    frontier: bool = False


def setting_of(request: Request) -> Setting:
    """Reads and checks all input. Raises `InvalidInput` with the place of an error and a remedy."""
    for policy in request.policies:
        if policy not in POLICIES:
            raise InvalidInput(f"--policy: {policy!r} is not known; use one of: {', '.join(POLICIES)}")
    pool = read_pool(request.pool, request.resource_pool)
    assert pool.scaling is not None
    all_jobs = synthetic_jobs(request.seed) if str(request.jobs) == SYNTHETIC else read_jobs(request.jobs)
    jobs = between(all_jobs, request.first_day, request.last_day)
    if not jobs:
        raise InvalidInput(
            f"--jobs: {request.jobs} has no job between --first-day and --last-day; its jobs are submitted between the days "
            f"{all_jobs[0].submit_s / DAY_S:.3g} and {all_jobs[-1].submit_s / DAY_S:.3g}"
        )
    check_jobs(pool, jobs)
    begin_s = DAY_S * (request.first_day or 0.0)
    capacity = tuple(replace(each, begin_s=begin_s) for each in read_capacity(request.spot, pool.scaling.offers))
    check_prices(pool, capacity)
    return Setting(
        pool=pool,
        jobs=jobs,
        capacity=capacity,
        boot_s=request.boot_s,
        overheads=request.overheads,
        seed=request.seed,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One simulation, and the name under which it is reported."""

    name: str
    setting: Setting
    policy: str


def variants_of(request: Request, setting: Setting) -> tuple[Variant, ...]:
    """The policies, and then the settings of the frontier if it is requested."""
    policies = (Variant(name=policy, setting=setting, policy=policy) for policy in request.policies)
    settings = dict(other_settings(setting.pool)) if request.frontier else {}
    if POLICIES[0] in request.policies:
        settings.pop(AS_IT_IS, None)  # the same simulation as that of the policy
    return (
        *policies,
        *(
            Variant(name=name, setting=replace(setting, pool=pool), policy=POLICIES[0])
            for name, pool in settings.items()
        ),
    )


def split(request: Request, found: Sequence[Report]) -> tuple[tuple[Report, ...], tuple[Report, ...]]:
    """The reports of `variants_of`: those of the policies, and those of the frontier."""
    policies, settings = tuple(found[: len(request.policies)]), tuple(found[len(request.policies) :])
    if request.frontier:
        ours = (replace(each, policy=AS_IT_IS) for each in policies if each.policy == POLICIES[0])
        settings = (*ours, *settings)
    return policies, settings


def compare(
    setting: Setting,
    policies: Sequence[str],
    *,
    processes: int = 2,
) -> tuple[Report, ...]:
    """One report a policy, in the order given."""
    return simulate_all([Variant(name=policy, setting=setting, policy=policy) for policy in policies], processes)


def simulate_all(
    variants: Sequence[Variant],
    processes: int = 2,
    *,
    tell: Callable[[str], None] = lambda line: None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Report, ...]:
    """One report a variant, in the order given. `tell` gets a line when a variant begins and one when it has ended, `progress`
    how many jobs have ended of how many, over all variants."""
    if len(variants) == 1 or processes <= 1:
        return tuple(_one_after_another(variants, tell, progress))
    in_all = sum(len(variant.setting.jobs) for variant in variants)
    reports: dict[int, Report] = {}
    waiting, running = list(range(len(variants))), dict[Future[Report], int]()
    # A fresh interpreter each, so that the heap of one simulation does not slow down the next.
    context = multiprocessing.get_context("spawn")
    ended_jobs = context.Array("l", len(variants), lock=False)
    with ProcessPoolExecutor(
        min(processes, len(variants)), mp_context=context, initializer=_share, initargs=(ended_jobs,)
    ) as pool:
        while waiting or running:
            while waiting and len(running) < processes:
                index = waiting.pop(0)
                tell(_begins(variants[index]))
                running[pool.submit(_simulate_sharing, variants[index], index)] = index
            ended = wait(running, timeout=None if progress is None else LOOKED_AT_S, return_when=FIRST_COMPLETED).done
            if progress is not None:
                progress(sum(ended_jobs), in_all)
            for future in ended:
                index = running.pop(future)
                reports[index] = future.result()
                tell(_ended(reports[index]))
    return tuple(reports[index] for index in range(len(variants)))


LOOKED_AT_S = 0.2
"""How often the progress of other processes is read."""

_shared: Any = None
"""In another process: how many jobs of each variant have ended."""


def _share(ended_jobs: Any) -> None:
    global _shared
    _shared = ended_jobs


def _simulate_sharing(variant: Variant, index: int) -> Report:
    def tell(part: float) -> None:
        _shared[index] = round(part * len(variant.setting.jobs))

    return _simulated(variant, tell)


def _one_after_another(
    variants: Sequence[Variant],
    tell: Callable[[str], None],
    progress: Callable[[int, int], None] | None,
) -> Iterator[Report]:
    before, in_all = 0, sum(len(variant.setting.jobs) for variant in variants)
    for variant in variants:
        jobs = len(variant.setting.jobs)

        def show(part: float, before: int = before, jobs: int = jobs) -> None:
            if progress is not None:
                progress(before + round(part * jobs), in_all)

        tell(_begins(variant))
        report = _simulated(variant, show)
        tell(_ended(report))
        before += jobs
        yield report


def _simulated(variant: Variant, tell: Callable[[float], None]) -> Report:
    return replace(simulate(variant.setting, variant.policy, tell=tell), policy=variant.name)


def _begins(variant: Variant) -> str:
    return f"{variant.name}: simulates {len(variant.setting.jobs)} job(s)"


def _ended(report: Report) -> str:
    last_s = max((span.ended_s for span in report.spans), default=0.0)
    return f"{report.policy}: simulated {last_s / 86_400:.1f} days, on {report.figures.launches} machine(s)"


def as_json(
    request: Request, setting: Setting, reports: Sequence[Report], settings: Sequence[Report] = ()
) -> dict[str, Any]:
    """The figures of each policy and of each setting of the frontier, and the input that they rest on."""
    report = {
        "pool": str(setting.pool.name),
        "jobs": str(request.jobs),
        "job_count": len(setting.jobs),
        "spot": [trace.name for trace in setting.capacity],
        "seed": request.seed,
        "boot_s": setting.boot_s,
        "overheads": asdict(setting.overheads),
        "policies": policies_json(reports),
    }
    if settings:
        best = frontier_of(settings)
        report["frontier"] = [
            {"setting": each.policy, "on_frontier": each in best, **asdict(each.figures)} for each in settings
        ]
    return report


def policies_json(reports: Sequence[Report]) -> Mapping[str, dict[str, Any]]:
    return {report.policy: asdict(report.figures) for report in reports}
