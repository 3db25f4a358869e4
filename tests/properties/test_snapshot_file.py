"""A snapshot that went through a file is the one that the scheduler saw."""

from __future__ import annotations

import json
from dataclasses import replace
from inspect import signature
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_master.scheduler.snapshot_file import read_snapshot, write_snapshot
from support.effort import examples
from support.random_pools import World, worlds

NOT_IN_IT: dict[type, set[str]] = {
    PoolPolicy: {"agent_reconnect_wait_s", "description", "launch_error", "budget"},
    Agent: {"address", "version", "incarnation", "registered_at", "connected_at"},
    Job: {"kind", "name", "project_id", "experiment_id", "ended", "hold"},
    Allocation: {
        *("task_id", "task_type", "trial_id", "run_id", "preemption_timeout_s", "ports", "ended_at"),
        *("kill_reason", "first_failure", "exit", "resumed_steps", "resumed_checkpoint", "history"),
        *("deadline", "price_per_hour", "price_moves"),
    },
}
"""What no decision looks at: names, addresses, what a task says and how it is shown."""

IN_IT: dict[type, set[str]] = {
    PoolPolicy: {
        *("name", "scheduler", "preemption", "hierarchical_shares", "usage_half_life_s", "min_runtime_s", "scaling"),
        *("preemption_grace_s", "default_priority", "fitting", "heterogeneous_fits", "max_aux_containers_per_agent"),
    },
    Agent: {"id", "pool", "slots", "disconnected_at", "enabled", "draining", "instance_id", "notice"},
    Job: {
        *("id", "owner", "workspace_id", "pool", "priority", "weight", "max_slots", "submitted_at", "queue_position"),
    },
    Allocation: {
        *("id", "job_id", "pool", "slots_needed", "requested_at", "single_node", "preemptible", "blocked_agents"),
        *("reserved_agents", "state", "containers", "assigned_at", "started_at", "preempt", "killed_at"),
        *("ready_at", "saved_at", "evictions", "worth"),
    },
}


def derived(snapshot: PoolSnapshot) -> dict[str, Any]:
    """Everything that decisions are made from, without the entities themselves."""
    names = (
        "supply",
        "now",
        "occupancy",
        "rooms",
        "groups",
        "later_groups",
        "sizes",
        "queue",
        "evictable",
        "losses",
        "shares",
    )
    return {name: getattr(snapshot, name) for name in (*names, "job_slots", "job_allocations", "places")}


def through_a_file(snapshot: PoolSnapshot) -> PoolSnapshot:
    return read_snapshot(json.loads(json.dumps(write_snapshot(snapshot))))


@settings(max_examples=examples(50), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(worlds(), st.floats(0, 5000), st.booleans())
def test_a_file_holds_all_that_a_decision_is_made_from(world: World, period_s: float, lost: bool) -> None:
    seen = replace(
        world,
        policy=replace(world.policy, min_runtime_s=period_s, preemption_grace_s=period_s / 2),
        agents=world.agents[1:] if lost else world.agents,
        jobs=world.jobs[1:] if lost else world.jobs,
        # An offer has one price, whether it may be asked for now or not.
        supply=replace(world.supply, offers=tuple(replace(o, price_per_hour=1.0) for o in world.supply.offers)),
    ).snapshot()
    read = through_a_file(seen)
    assert schedule(read) == schedule(seen)
    assert derived(read) == derived(seen)
    assert write_snapshot(read) == write_snapshot(seen)


def test_every_fact_of_the_domain_is_in_a_file_or_left_out_on_purpose() -> None:
    """A new field fails here: put it into the format, or say that no decision looks at it."""
    for type_, names in IN_IT.items():
        assert set(signature(type_).parameters) == names | NOT_IN_IT[type_], type_.__name__
