"""The workload of one world: pools and experiments, drawn from its seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from resolute.grace_period import LONGEST_S
from resolute_master.domain.administration import SetBudget
from resolute_master.domain.commands import CreateExperiment
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import PoolName, UserId
from resolute_master.domain.pool import Fitting, PoolPolicy, SchedulerKind
from resolute_provisioner.model import Market, Offer, PoolScaling

METRIC = "loss"
TIME_METRIC = "batches"

EPOCH = datetime(2029, 12, 31, 23, 30, tzinfo=UTC)
"""When each world begins: shortly before a new day, month and year, at which budgets begin again."""

OWNERS = (UserId(1), UserId(2))
"""The first users of each world."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    at_s: float
    config: Mapping[str, Any]
    pool: PoolName
    priority: int
    max_slots: int | None
    seed: int
    activate: bool
    owner: UserId = OWNERS[0]

    def command(self) -> CreateExperiment:
        return CreateExperiment(
            owner=self.owner,
            config=self.config,
            original_config="",
            context_hash="",
            pool=self.pool,
            priority=self.priority,
            weight=1.0,
            max_slots=self.max_slots,
            seed=self.seed,
            activate=self.activate,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    pools: Mapping[PoolName, PoolPolicy]
    submissions: tuple[Submission, ...]
    fixed_machines: tuple[tuple[PoolName, int], ...] = ()
    """Machines that no cloud gives and takes: their pool and their slots."""
    budgets: tuple[SetBudget, ...] = ()
    """Set before anything is submitted."""

    @property
    def minds_money(self) -> bool:
        """Whether anything in it has a limit."""
        budgets = [policy for policy in self.pools.values() if policy.budget]
        limits = [each for each in self.submissions if each.config["resources"].get("max_cost") is not None]
        return bool(budgets or limits or self.budgets)

    @property
    def serial_work_s(self) -> float:
        """How long everything would take one after the other, each run to its last restart."""
        return sum(_serial_s(each.config) for each in self.submissions)


def draw_workload(rng: random.Random, *, within_s: float) -> Workload:
    names = ("default",) if rng.random() < 0.75 else ("default", "other")
    pools = {PoolName(name): _draw_pool(rng, name) for name in names}
    fixed: list[tuple[PoolName, int]] = []
    if rng.random() < 0.2:
        name, slots = PoolName("fixed"), rng.choice((1, 2, 4))
        pools[name] = PoolPolicy(name=name, preemption=rng.random() < 0.6, agent_reconnect_wait_s=30.0)
        fixed = [(name, slots)] * rng.randint(1, 3)
    count = rng.randint(1, 5)
    sizes = {name: _sizes(policy, [size for pool, size in fixed if pool == name]) for name, policy in pools.items()}
    # What a job asks for can be had in every pool, so that it may move.
    possible = sorted(set.intersection(*sizes.values()))
    submissions = [_draw_submission(rng, n, sorted(pools), possible, within_s) for n in range(count)]
    pools = {name: _with_scheduler(rng, policy) for name, policy in pools.items()}
    pools = {name: _with_past(rng, policy) for name, policy in pools.items()}
    submissions = [replace(each, owner=rng.choice(OWNERS)) for each in submissions]
    return Workload(
        pools=pools,
        submissions=tuple(sorted(submissions, key=lambda each: each.at_s)),
        fixed_machines=tuple(fixed),
    )


def _with_scheduler(rng: random.Random, policy: PoolPolicy) -> PoolPolicy:
    kind = rng.choice((SchedulerKind.PRIORITY, SchedulerKind.PRIORITY, SchedulerKind.FAIR_SHARE))
    if kind is SchedulerKind.FAIR_SHARE:
        return replace(policy, scheduler=kind, preemption=False, hierarchical_shares=rng.random() < 0.5)
    return replace(policy, min_runtime_s=rng.choice((0.0, 0.0, 60.0)), preemption_grace_s=rng.choice((0.0, 0.0, 30.0)))


def _with_past(rng: random.Random, policy: PoolPolicy) -> PoolPolicy:
    """The half-lives are as short as the worlds: some pass, and what is used is measured many times."""
    if not policy.hierarchical_shares:
        return policy
    return replace(policy, usage_half_life_s=rng.choice((None, 60.0, 600.0, 3600.0)))


def _sizes(policy: PoolPolicy, fixed: Sequence[int]) -> set[int]:
    """What a task of the pool may ask for: a part of one machine, or whole machines of one size."""
    found = {0}
    if policy.scaling is None:
        return found | set(range(1, max(fixed) + 1)) | {fixed[0] * count for count in range(1, len(fixed) + 1)}
    for offer in policy.scaling.offers:
        found |= set(range(1, offer.slots + 1))
        found |= {offer.slots * machines for machines in range(1, policy.scaling.max_instances + 1)}
    return found


def _draw_pool(rng: random.Random, name: str) -> PoolPolicy:
    sizes = [rng.choice((1, 2, 4)) for _ in range(rng.choice((1, 1, 2, 3)))]
    offers = tuple(
        Offer(
            offer_id=f"{name}-{number}-of-{slots}",
            instance_type=f"type-{slots}",
            zone="zone",
            market=rng.choice(tuple(Market)),
            slots=slots,
            family=rng.choice(("", f"{name}-family")),
            price_per_hour=round(slots * rng.uniform(0.8, 1.2), 2) if rng.random() < 0.9 else None,
        )
        for number, slots in enumerate(sizes)
    )
    scaling = PoolScaling(
        pool=name,
        offers=offers,
        min_instances=rng.choice((0, 0, 0, 1)),
        max_instances=rng.randint(1, 4),
        idle_timeout_s=rng.choice((60.0, 180.0)),
        boot_timeout_s=400.0,
        reconnect_wait_s=30.0,
        disconnect_timeout_s=rng.choice((120.0, 300.0)),
        drain_timeout_s=300.0,
    )
    return PoolPolicy(
        name=PoolName(name),
        preemption=rng.random() < 0.6,
        fitting=rng.choice(tuple(Fitting)),
        agent_reconnect_wait_s=scaling.reconnect_wait_s,
        scaling=scaling,
    )


def _draw_submission(
    rng: random.Random, number: int, pools: Sequence[PoolName], possible: Sequence[int], within_s: float
) -> Submission:
    pool = rng.choice(pools)
    slots = rng.choice(possible)
    trials = rng.choice((1, 1, 2, 3))
    return Submission(
        at_s=rng.uniform(0.0, within_s * 0.6) if number else 0.0,
        config=_draw_config(rng, number, slots, trials),
        pool=pool,
        priority=rng.choice((10, 42, 42, 60)),
        max_slots=slots * rng.randint(1, 2) if slots and rng.random() < 0.2 else None,
        seed=rng.getrandbits(31),
        activate=rng.random() < 0.9,
    )


def _draw_config(rng: random.Random, number: int, slots: int, trials: int) -> dict[str, Any]:
    steps = rng.randint(3, 15)
    restarts = rng.choice((0, 1, 3))
    searcher: dict[str, Any] = {"name": "single", "metric": METRIC, "smaller_is_better": True}
    if trials > 1:
        searcher |= {"name": "random", "max_trials": trials, "max_concurrent_trials": rng.choice((0, 1, 2))}
    if trials > 1 and rng.random() < 0.3:
        searcher |= _draw_halving(rng, steps)
    failures = [rng.randint(1, steps) for _ in range(rng.choice((1, 2)))] if rng.random() < 0.3 else []
    preemption_timeout_s = rng.choice((60, 300))
    return {
        "name": f"simulated {number}",
        "hyperparameters": {"x": {"type": "double", "minval": 0.0, "maxval": 1.0}},
        "searcher": searcher,
        "resources": {"slots_per_trial": slots},
        "max_restarts": restarts,
        "preemption_timeout": preemption_timeout_s,
        "environment": {"environment_variables": [f"RESOLUTE_SCRIPT={_draw_launch(rng)}"]},
        "data": {
            "steps": steps,
            "step_s": rng.choice((5.0, 20.0, 60.0)),
            "save_every": rng.randint(1, 5),
            "save_s": rng.choice((0.5, 5.0)),
            "failures": sorted(failures),
            "worker_fails_after_s": rng.uniform(10.0, 200.0) if rng.random() < 0.1 else 0.0,
            "invalid_below": 0.3 if rng.random() < 0.1 else 0.0,
            "leaves_when_invalid": rng.random() < 0.5,
            "deaf": rng.random() < 0.08,
            "stuck_s": rng.choice((5.0, 90.0)) if rng.random() < 0.1 else 0.0,
            "floor_by_x": True,
            "by_length": "max_length" in searcher,
            # The others have not the time.
            "trains_on_after_notice": preemption_timeout_s > LONGEST_S,
        },
    }


def _draw_halving(rng: random.Random, steps: int) -> dict[str, Any]:
    """Trials are stopped by the time that they report, or given lengths and promoted."""
    searcher = {"name": "async_halving", "num_rungs": rng.choice((1, 2, 3)), "divisor": rng.choice((2, 3))}
    if rng.random() < 0.5:
        return searcher | {"max_time": steps, "time_metric": TIME_METRIC}
    return searcher | {"max_length": steps, "stop_once": rng.random() < 0.3}


def _draw_launch(rng: random.Random) -> str:
    draw = rng.random()
    if draw < 0.04:
        return "refuse such a task cannot run here"
    return f"pull {rng.choice((1, 5, 30))}s"


def _serial_s(config: Mapping[str, Any]) -> float:
    data = config["data"]
    one_s = data["steps"] * data["step_s"] + data["steps"] * data["save_s"] + 120.0
    trials = config["searcher"].get("max_trials", 1)
    return float(one_s * trials * (1 + config["max_restarts"]) * 2)
