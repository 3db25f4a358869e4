"""Several policies on one setting, each in a process of its own; and the report as JSON.

The one door for `det simulate`.
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
from resolute_master.foresight.work import Frictions
from resolute_sim.twin.capacity import read_capacity
from resolute_sim.twin.figures import Report
from resolute_sim.twin.jobs import DAY_S, between, read_jobs
from resolute_sim.twin.pools import read_pool
from resolute_sim.twin.synthetic import synthetic_jobs
from resolute_sim.twin.twin import DEFAULT_BOOT_S, POLICIES, Setting, check_jobs, check_prices, simulate

SYNTHETIC = "synthetic"
"""Instead of a file of jobs: a trace made from the seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What `det simulate` was asked for."""

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
    frictions: Frictions = field(default_factory=Frictions)
    processes: int = 2


def setting_of(request: Request) -> Setting:
    """Everything read and checked. Raises `InvalidInput` naming what is wrong, where, and what to do."""
    for policy in request.policies:
        if policy not in POLICIES:
            raise InvalidInput(f"--policy: {policy!r} is not known; use one of: {', '.join(POLICIES)}")
    pool = read_pool(request.pool, request.resource_pool)
    assert pool.scaling is not None
    all_jobs = synthetic_jobs(request.seed) if str(request.jobs) == SYNTHETIC else read_jobs(request.jobs)
    jobs = between(all_jobs, request.first_day, request.last_day)
    if not jobs:
        raise InvalidInput(f"--jobs: {request.jobs} has no job in the days that --first-day and --last-day leave")
    check_jobs(pool, jobs)
    begin_s = DAY_S * (request.first_day or 0.0)
    capacity = tuple(replace(each, begin_s=begin_s) for each in read_capacity(request.spot, pool.scaling.offers))
    check_prices(pool, capacity)
    return Setting(
        pool=pool,
        jobs=jobs,
        capacity=capacity,
        boot_s=request.boot_s,
        frictions=request.frictions,
        seed=request.seed,
    )


def compare(
    setting: Setting,
    policies: Sequence[str],
    *,
    processes: int = 2,
    tell: Callable[[str], None] = lambda line: None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Report, ...]:
    """One report a policy, in the order given. `tell` gets a line when a policy begins and one when it has ended, `progress`
    how many jobs have ended of how many, over all policies."""
    if len(policies) == 1 or processes <= 1:
        return tuple(_one_after_another(setting, policies, tell, progress))
    reports: dict[str, Report] = {}
    waiting, running = list(policies), dict[Future[Report], str]()
    # A fresh interpreter each, so that what one course has built up is no burden for the next.
    context = multiprocessing.get_context("spawn")
    parts = context.Array("d", len(policies), lock=False)
    with ProcessPoolExecutor(
        min(processes, len(policies)), mp_context=context, initializer=_share, initargs=(parts,)
    ) as pool:
        while waiting or running:
            while waiting and len(running) < processes:
                policy = waiting.pop(0)
                tell(_begins(setting, policy))
                running[pool.submit(_simulate_sharing, setting, policy, policies.index(policy))] = policy
            ended = wait(running, timeout=None if progress is None else LOOKED_AT_S, return_when=FIRST_COMPLETED).done
            if progress is not None:
                progress(round(sum(parts) * len(setting.jobs)), len(policies) * len(setting.jobs))
            for future in ended:
                policy = running.pop(future)
                reports[policy] = future.result()
                tell(_ended(reports[policy]))
    return tuple(reports[policy] for policy in policies)


LOOKED_AT_S = 0.2
"""How often the progress of other processes is read."""

_shared: Any = None
"""In another process: how far each policy has come."""


def _share(parts: Any) -> None:
    global _shared
    _shared = parts


def _simulate_sharing(setting: Setting, policy: str, index: int) -> Report:
    def tell(part: float) -> None:
        _shared[index] = part

    return simulate(setting, policy, tell=tell)


def _one_after_another(
    setting: Setting,
    policies: Sequence[str],
    tell: Callable[[str], None],
    progress: Callable[[int, int], None] | None,
) -> Iterator[Report]:
    jobs = len(setting.jobs)
    for number, policy in enumerate(policies):

        def hear(part: float, before: int = number * jobs) -> None:
            if progress is not None:
                progress(before + round(part * jobs), len(policies) * jobs)

        tell(_begins(setting, policy))
        report = simulate(setting, policy, tell=hear)
        tell(_ended(report))
        yield report


def _begins(setting: Setting, policy: str) -> str:
    return f"{policy}: plays {len(setting.jobs)} job(s)"


def _ended(report: Report) -> str:
    last_s = max((span.ended_s for span in report.spans), default=0.0)
    return f"{report.policy}: has played {last_s / 86_400:.1f} days, on {report.figures.launches} machine(s)"


def as_json(request: Request, setting: Setting, reports: Sequence[Report]) -> dict[str, Any]:
    """The figures of each policy, and what they rest on."""
    return {
        "pool": str(setting.pool.name),
        "jobs": str(request.jobs),
        "job_count": len(setting.jobs),
        "spot": [trace.name for trace in setting.capacity],
        "seed": request.seed,
        "boot_s": setting.boot_s,
        "frictions": asdict(setting.frictions),
        "policies": policies_json(reports),
    }


def policies_json(reports: Sequence[Report]) -> Mapping[str, dict[str, Any]]:
    return {report.policy: asdict(report.figures) for report in reports}
