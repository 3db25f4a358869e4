"""Each key of a pool's configuration changes a simulation of the twin, is refused by name, or is none that a decision reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from resolute.config.base import ConfigModel
from resolute.config.budgets import Budget
from resolute.config.consolidation import ConsolidationPolicy
from resolute.config.disruption import DisruptionPolicy
from resolute.config.pools import ResourcePool, Scheduler
from resolute.config.spot_policy import SpotFallbackPolicy
from resolute.errors import InvalidInput
from resolute_master.domain.ids import PoolName
from resolute_master.domain.pool import PoolPolicy
from resolute_master.forecast.pool_simulation import SimulationStuck
from resolute_master.forecast.trace_job import TraceJob
from resolute_provisioner.clouds.local.configuration import LocalProvider
from resolute_provisioner.model import Market, Offer, PoolScaling
from resolute_sim.twin.capacity import CapacityTrace
from resolute_sim.twin.pools import NOT_SIMULATED, NOT_SIMULATED_OF_PROVIDER, read_pool
from resolute_sim.twin.twin import Setting, simulate

HOUR = 3600.0
FOREVER = 1e9

PARTS: Mapping[str, type[ConfigModel]] = {
    "": ResourcePool,
    "scheduler.": Scheduler,
    "budget.": Budget,
    "provider.": LocalProvider,
    "provider.consolidation.": ConsolidationPolicy,
    "provider.disruption.": DisruptionPolicy,
    "provider.spot_fallback.": SpotFallbackPolicy,
}
"""Where each block of a pool stands."""

NOT_READ = {
    "pool_name",
    "description",
    "task_container_defaults",
    "shared_file_system",
    "provider.type",
    "provider.master_url",
    "provider.master_cert_name",
    "provider.agent_reconnect_attempts",
    "provider.agent_reconnect_backoff",
    "provider.master_timeout",
    "provider.slot_type",
    "provider.visible_gpus",
    "provider.container_runtime",
    "provider.docker_host",
}
"""No decision of a master depends on these."""

BASE: dict[str, Any] = {
    "pool_name": "p",
    "provider": {
        "type": "local",
        "slots_per_instance": 2,
        "max_instances": 3,
        "max_idle_agent_period": "5m",
        "price_per_hour": 3.6,
        "spot_price_per_hour": 1.2,
    },
}


def jobs(*rows: tuple[float, float, int, Mapping[str, Any]]) -> tuple[TraceJob, ...]:
    """Jobs from (submit_s, duration_s, slots, more)."""
    return tuple(
        replace(TraceJob(job_id=f"j{number}", submit_s=at, duration_s=length, slots=slots, group="a"), **more)
        for number, (at, length, slots, more) in enumerate(rows)
    )


def series(market: str, *values: tuple[float, float]) -> CapacityTrace:
    """How many machines can be had until when."""
    return CapacityTrace(
        name=market,
        kind="availability",
        values=tuple(value for value, _ in values),
        ends=tuple(end for _, end in values),
        offer_id="local/spot" if market == "spot" else "local",
    )


MIXED = jobs(
    (0.0, 3000.0, 1, {}),
    (10.0, 2000.0, 2, {"priority": 60}),
    (400.0, 2500.0, 1, {"group": "b"}),
    (1000.0, 900.0, 2, {"priority": 5}),
    (1100.0, 500.0, 2, {"group": "b", "priority": 90}),
    (1200.0, 700.0, 1, {"group": "c"}),
    (4000.0, 600.0, 1, {}),
)
CROWDED = jobs(
    *((10.0 * n, 6000.0, 2, {"group": "a", "priority": 80}) for n in range(4)),
    *((500.0 + 10 * n, 900.0, 2, {"group": "b", "priority": 10}) for n in range(4)),
    (700.0, 900.0, 2, {"group": "c", "workspace": "w"}),
    (710.0, 900.0, 2, {"group": "d", "workspace": "w"}),
)
ONE = jobs((0.0, 3000.0, 1, {}))
BESIDE_AN_IDLE_ONE = jobs((0.0, 5000.0, 1, {}), (0.0, 400.0, 2, {}), (700.0, 100.0, 1, {}))
HALF_EMPTY = jobs((0.0, 600.0, 1, {}), (1.0, 40_000.0, 1, {}), (2.0, 600.0, 1, {}), (3.0, 40_000.0, 1, {}))
NO_SPOT = (series("spot", (0.0, FOREVER)),)
SPOT_LATER = (series("spot", (0.0, 1500.0), (9.0, FOREVER)),)
NOTHING_AT_FIRST = (series("spot", (0.0, 900.0), (9.0, FOREVER)), series("on_demand", (0.0, 900.0), (9.0, FOREVER)))
PREEMPTS = {"scheduler": {"type": "priority", "preemption": True}}
FAIR = {"scheduler": {"type": "fair_share"}}
MOVES = {"provider": {"consolidation": {"margin": 1.0, "restart_cost": "1s"}}}
RETURNS = {"provider": {"spot_fallback": {"return_after": "5m"}}}
GIVES_UP = {"provider": {"launch_error_timeout": "10m"}}

Scene = tuple[object, Sequence[TraceJob], Sequence[CapacityTrace], Mapping[str, Any]]
"""A value for the key, and the jobs, the series and the rest of the configuration with which it makes a difference."""

SCENES: Mapping[str, Scene] = {
    "scheduler.type": ("fair_share", CROWDED, (), {}),
    "scheduler.preemption": (True, CROWDED, (), {}),
    "scheduler.default_priority": (99, MIXED, (), {"provider": {"max_instances": 1}}),
    "scheduler.fitting_policy": ("worst", BESIDE_AN_IDLE_ONE, (), {}),
    "scheduler.hierarchical_shares": (True, CROWDED, (), FAIR),
    "scheduler.usage_half_life": (
        "1h",
        CROWDED,
        (),
        {"scheduler": {"type": "fair_share", "hierarchical_shares": True}},
    ),
    "scheduler.min_runtime": ("2h", CROWDED, (), PREEMPTS),
    "scheduler.preemption_grace": ("30m", CROWDED, (), PREEMPTS),
    "budget.per_day": (0.5, MIXED, (), {}),
    "budget.per_month": (0.5, MIXED, (), {}),
    "provider.min_instances": (1, ONE, (), {}),
    "provider.max_instances": (1, MIXED, (), {}),
    "provider.max_idle_agent_period": ("1m", MIXED, (), {}),
    "provider.max_idle_cost": (5.0, MIXED, (), {}),
    "provider.consolidation": (None, HALF_EMPTY, (), {}),
    "provider.consolidation.margin": (1e6, HALF_EMPTY, (), MOVES),
    "provider.consolidation.restart_cost": ("100h", HALF_EMPTY, (), MOVES),
    "provider.disruption.max_per_hour": (0, ONE, SPOT_LATER, RETURNS),
    "provider.disruption.windows": ([{"start": "03:00", "end": "04:00"}], ONE, SPOT_LATER, RETURNS),
    "provider.max_agent_starting_period": ("100s", ONE, (), {}),
    "provider.launch_error_timeout": ("10m", ONE, NOTHING_AT_FIRST, {}),
    "provider.launch_error_retries": (9, ONE, NOTHING_AT_FIRST, GIVES_UP),
    "provider.spot_fallback.after": ("20m", ONE, NO_SPOT, {}),
    "provider.spot_fallback.return_after": (None, ONE, SPOT_LATER, {}),
    "provider.slots_per_instance": (4, MIXED, (), {}),
    "provider.price_per_hour": (0.6, ONE, (), {}),
    "provider.spot_price_per_hour": (None, ONE, (), {}),
}


def merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(base)
    for key, value in more.items():
        known = found.get(key)
        found[key] = merged(known, value) if isinstance(known, dict) and isinstance(value, Mapping) else value
    return found


def with_key(config: Mapping[str, Any], key: str, value: object) -> dict[str, Any]:
    first, _, rest = key.partition(".")
    inner = with_key(config.get(first) or {}, rest, value) if rest else value
    return {**config, first: inner}


def simulation(
    config: Mapping[str, Any], work: Sequence[TraceJob], capacity: Sequence[CapacityTrace], path: Path
) -> str:
    """What comes of it: the digest, or why there is none."""
    path.write_text(json.dumps(config))
    setting = Setting(pool=read_pool(path), jobs=tuple(work), capacity=tuple(capacity))
    try:
        return simulate(setting, "resolute").figures.digest
    except (SimulationStuck, InvalidInput) as error:
        return str(error)


def keys() -> Iterator[str]:
    for where, model in PARTS.items():
        for name in model.model_fields:
            if f"{where}{name}." not in PARTS or f"{where}{name}" in SCENES:
                yield f"{where}{name}"


def test_every_key_of_a_pool_is_played_refused_or_read_by_no_decision() -> None:
    refused = {*NOT_SIMULATED, *(f"provider.{name}" for name in NOT_SIMULATED_OF_PROVIDER)}
    elsewhere = {"scheduler.allow_heterogeneous_fits"}  # below: the local provider has machines of one size
    groups = (set(SCENES), refused, NOT_READ, elsewhere)
    assert sorted(keys()) == sorted(set().union(*groups)) and sum(map(len, groups)) == len(set().union(*groups))


@pytest.mark.parametrize("key", SCENES)
def test_a_key_changes_a_course(key: str, tmp_path: Path) -> None:
    value, work, capacity, more = SCENES[key]
    config = merged(BASE, more)
    without = simulation(config, work, capacity, tmp_path / "pool.json")
    assert simulation(with_key(config, key, value), work, capacity, tmp_path / "pool.json") != without


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("agent_reconnect_wait", "1m"),
        ("max_aux_containers_per_agent", 3),
        ("provider.boot_delay", "5s"),
        ("provider.refuse", [{"launch": 1, "error": "no_capacity"}]),
        ("provider.interruptions", [{"instance": 1, "after": "90s"}]),
    ],
)
def test_a_key_that_cannot_be_played_is_refused_by_name(key: str, value: object, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=rf"p\.{key} has no effect in a simulation: .*; remove it"):
        simulation(with_key(BASE, key, value), ONE, (), tmp_path / "pool.json")


def test_after_a_refusal_the_twin_goes_on_asking_for_spot_as_the_live_pool_does(tmp_path: Path) -> None:
    """It bought on demand, whatever `spot_fallback.after` said."""
    path = tmp_path / "pool.json"
    path.write_text(json.dumps(merged(BASE, {"provider": {"spot_fallback": {"after": "20m"}}})))
    late = (series("spot", (0.0, 600.0), (9.0, FOREVER)),)
    report = simulate(Setting(pool=read_pool(path), jobs=ONE, capacity=late), "resolute")
    assert {span.offer for span in report.spans} == {"local/spot"}
    assert report.figures.wait_mean_s > 600.0


def test_a_job_with_a_deadline_leaves_spot_in_time_and_one_without_waits(tmp_path: Path) -> None:
    path = tmp_path / "pool.json"
    path.write_text(json.dumps(merged(BASE, {"provider": {"spot_fallback": {"after": "10h"}}})))
    late = (series("spot", (0.0, 5 * HOUR), (9.0, FOREVER)),)
    for deadline_s, offer in ((3 * HOUR, "local"), (None, "local/spot")):
        work = jobs((0.0, HOUR, 1, {"deadline_s": deadline_s}))
        report = simulate(Setting(pool=read_pool(path), jobs=work, capacity=late), "resolute")
        assert {span.offer for span in report.spans} == {offer}
        assert report.figures.deadlines_missed == 0
        assert (report.figures.wait_mean_s > 5 * HOUR) == (deadline_s is None)


def test_a_deadline_that_cannot_be_kept_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "pool.json"
    path.write_text(json.dumps(BASE))
    work = jobs((0.0, HOUR, 1, {"deadline_s": 0.5 * HOUR}))
    assert simulate(Setting(pool=read_pool(path), jobs=work), "resolute").figures.deadlines_missed == 1


def test_machines_of_several_sizes_may_serve_one_job_where_the_pool_allows_it() -> None:
    """`scheduler.allow_heterogeneous_fits`, on machines of 4 and of 8 slots."""
    offers = tuple(
        Offer(
            offer_id=f"o{slots}",
            instance_type="t",
            zone="z",
            market=Market.ON_DEMAND,
            slots=slots,
            price_per_hour=float(slots),
        )
        for slots in (4, 8)
    )
    scaling = PoolScaling(pool="p", offers=offers, max_instances=9, idle_timeout_s=3600.0)
    work = jobs((0.0, 600.0, 8, {}), (0.0, 600.0, 4, {}), (1000.0, 600.0, 12, {}))
    waits = [
        simulate(
            Setting(pool=PoolPolicy(name=PoolName("p"), scaling=scaling, heterogeneous_fits=fits), jobs=work),
            "resolute",
        ).waits_s
        for fits in (False, True)
    ]
    assert waits == [(180.0, 180.0, 180.0), (0.0, 180.0, 180.0)]


def test_a_job_is_stopped_at_its_cost_limit_with_what_it_has_saved(tmp_path: Path) -> None:
    path = tmp_path / "pool.json"
    path.write_text(json.dumps(BASE))
    figures = [
        simulate(Setting(pool=read_pool(path), jobs=jobs((0.0, 10 * HOUR, 2, {"max_cost": limit}))), "resolute").figures
        for limit in (3.0, None)
    ]
    stopped, free = figures
    assert (stopped.jobs_stopped, stopped.jobs_completed, free.jobs_completed) == (1, 0, 1)
    assert 2.0 < stopped.cost < 3.5 < free.cost


def test_work_waits_for_the_budget_of_the_next_day(tmp_path: Path) -> None:
    path = tmp_path / "pool.json"
    path.write_text(json.dumps(merged(BASE, {"budget": {"per_day": 2.0}})))
    work = jobs((0.0, 2 * HOUR, 2, {}), (HOUR, 2 * HOUR, 2, {}))
    report = simulate(Setting(pool=read_pool(path), jobs=work), "resolute")
    assert report.figures.jobs_completed == 2
    assert max(span.ended_s for span in report.spans) > 24 * HOUR
