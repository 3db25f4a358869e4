"""Builders of the domain's values with defaults, so that a test sets only the relevant fields."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from resolute.wire.agent_link import Device, Exit
from resolute.wire.states import AllocationState, ContainerState, SlotKind, TaskType
from resolute_master.domain.agent import Agent, Slot
from resolute_master.domain.allocation import Allocation, Container
from resolute_master.domain.ids import AgentId, AllocationId, ContainerId, InstanceId, JobId, PoolName, TaskId, TrialId
from resolute_master.domain.instance import Instance
from resolute_provisioner.model import Observed

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """A time of the test."""
    return T0 + timedelta(seconds=seconds)


def device(index: int) -> Device:
    return Device(index=index, kind=SlotKind.CPU, brand="Artificial", uuid=f"device-{index}")


def an_agent(name: str = "agent-1", *, slots: int = 4, **changes: Any) -> Agent:
    given: dict[str, Any] = {
        "id": AgentId(name),
        "pool": PoolName("default"),
        "slots": tuple(Slot(device=device(i)) for i in range(slots)),
        "incarnation": "first",
        "address": "10.0.0.1",
        "version": "0",
        "registered_at": T0,
        "connected_at": T0,
    }
    return Agent(**{**given, **changes})


def an_allocation(name: str = "1.aaaa.1", **changes: Any) -> Allocation:
    """Pending, of trial 1, one slot."""
    task, _, number = name.rpartition(".")
    given: dict[str, Any] = {
        "id": AllocationId(name),
        "task_id": TaskId(task),
        "task_type": TaskType.TRIAL,
        "job_id": JobId("job-1"),
        "pool": PoolName("default"),
        "slots_needed": 1,
        "requested_at": T0,
        "trial_id": TrialId(1),
        "run_id": int(number),
    }
    return Allocation(**{**given, **changes})


def a_container(rank: int = 0, agent: str = "agent-1", **changes: Any) -> Container:
    given: dict[str, Any] = {
        "id": ContainerId(f"container-{rank}"),
        "rank": rank,
        "agent": AgentId(agent),
        "slots": (0,),
    }
    return Container(**{**given, **changes})


def a_running_allocation(members: int = 1, **changes: Any) -> Allocation:
    """One container per agent, all RUNNING."""
    containers = tuple(a_container(r, f"agent-{r + 1}", state=ContainerState.RUNNING) for r in range(members))
    given: dict[str, Any] = {
        "state": AllocationState.RUNNING,
        "slots_needed": members,
        "containers": containers,
        "assigned_at": T0,
        "started_at": T0,
    }
    return an_allocation(**{**given, **changes})


def an_instance(name: str = "instance-1", **changes: Any) -> Instance:
    given: dict[str, Any] = {
        "id": InstanceId(name),
        "pool": PoolName("default"),
        "token": f"token-of-{name}",
        "offer_id": "local",
        "slots": 1,
        "price_per_hour": 3.6,
        "requested_at": T0,
        "observed": Observed.RUNNING,
        "agent_id": AgentId("agent-1"),
    }
    return Instance(**{**given, **changes})


def clean_exit() -> Exit:
    return Exit(code=0)
