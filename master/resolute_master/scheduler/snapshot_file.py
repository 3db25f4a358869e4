"""Reading and writing a snapshot as a file. The decision on either is the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count as endless
from itertools import islice
from typing import Any

import msgspec
from pydantic import ValidationError

from resolute.config.errors import MAX_NAMES, Location, Problem, problems_of, show_value
from resolute.errors import InvalidInput
from resolute.wire.agent_link import Device
from resolute.wire.states import AllocationState, ContainerState, NoticeKind, SlotKind, TaskType
from resolute_master.domain.agent import Agent, MachineNotice, Slot
from resolute_master.domain.allocation import Allocation, Container
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, AllocationId, ContainerId, InstanceId, JobId, PoolName, TaskId, UserId
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy
from resolute_master.domain.usage import Usage
from resolute_master.domain.worth import Worth
from resolute_master.scheduler.policy import policy_of
from resolute_master.scheduler.snapshot import PoolSnapshot, waits
from resolute_master.scheduler.snapshot_format import (
    AgentRow,
    JobRow,
    MachineRow,
    OfferRow,
    SnapshotRow,
    SupplyRow,
    TaskRow,
)
from resolute_master.scheduler.supply import AvailableOffer, ComingMachine, Supply, UnusedMachine
from resolute_provisioner.model import Market, Offer, PoolScaling

LONG_AGO = timedelta(hours=1)
"""Default age of a request, plus a second for each entry after it."""


def read_snapshot(data: object) -> PoolSnapshot:
    """The pool in a file; `data` is its parsed JSON.

    Raises `InvalidInput` with every problem: the key, the value, and a remedy.
    """
    _check_texts(data)
    try:
        row = SnapshotRow.model_validate(data)
    except ValidationError as error:
        raise _invalid(problems_of(error)) from None
    reader = _Reader(row)
    snapshot = reader.snapshot()
    if reader.problems:
        raise _invalid(reader.problems)
    return snapshot


def _check_texts(data: object) -> None:
    """Raises `InvalidInput` for lone surrogates, which JSON allows and which no output can encode."""
    try:
        msgspec.json.encode(data)
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start])[1:-1]
        raise InvalidInput(
            f"the snapshot has half of a surrogate pair in a text ({half}); write whole characters"
        ) from None
    except (TypeError, ValueError, OverflowError, RecursionError):
        pass  # other values that JSON cannot encode are refused by key


def _invalid(problems: tuple[Problem, ...] | list[Problem]) -> InvalidInput:
    lines = sorted({problem.line("<snapshot>") for problem in problems})
    count = "1 error" if len(lines) == 1 else f"{len(lines)} errors"
    return InvalidInput("\n".join([f"the snapshot has {count}:", *(f"  {line}" for line in lines)]))


# -------------------------------------------------------------------------------------------------------------- reading


@dataclass
class _Reader:
    """Converts rows to entities; inconsistencies between rows are collected in `problems`."""

    row: SnapshotRow
    problems: list[Problem] = field(default_factory=list)
    _used: dict[str, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    """Task by slot by agent, for tasks that list slot numbers."""
    _known: dict[str, dict[int, None] | None] = field(default_factory=dict)
    _left: dict[str, Iterator[int]] = field(default_factory=dict)
    """Slots by agent for tasks that give a count, the lowest first. A missing agent has any number."""

    def snapshot(self) -> PoolSnapshot:
        allocations = list(self._allocations())
        return PoolSnapshot.build(
            self._policy(),
            [self._agent(id_, agent) for id_, agent in self.row.agents.items() if agent is not None],
            self._jobs(allocations),
            allocations,
            self._supply(),
            now=self.row.now,
            usage=list(self._usage()),
        ).with_hold(self.row.held)

    def _wrong(self, path: Location, text: str) -> None:
        self.problems.append(Problem(path=path, message=text))

    def _default_time(self, number: int, count: int) -> datetime:
        return self.row.now - LONG_AGO - timedelta(seconds=count - number)

    def _policy(self) -> PoolPolicy:
        given, supply = self.row.policy, self.row.supply
        policy = policy_of(self.row.pool, given, max_aux_containers_per_agent=given.max_aux_containers_per_agent)
        return policy if supply is None else replace(policy, scaling=self._scaling(supply))

    def _scaling(self, supply: SupplyRow) -> PoolScaling:
        offers = tuple(
            Offer(
                offer_id=id_,
                instance_type=id_,
                zone="",
                market=Market.ON_DEMAND,
                slots=offer.slots,
                price_per_hour=offer.price_per_hour,
            )
            for id_, offer in supply.offers.items()
        )
        return PoolScaling(pool=self.row.pool, offers=offers, max_instances=supply.max_instances)

    def _supply(self) -> Supply:
        supply = self.row.supply
        if supply is None:
            return Supply()
        machines = tuple(
            ComingMachine(
                instance=InstanceId(id_), slots=machine.slots, expected_at=machine.expected_at, gangs=machine.tasks
            )
            for id_, machine in supply.machines.items()
        )
        offers = tuple(
            AvailableOffer(
                offer_id=id_,
                slots=offer.slots,
                price_per_hour=offer.price_per_hour,
                expected_s=offer.expected_s,
                room=offer.room,
                one_only=offer.one_only,
            )
            for id_, offer in supply.offers.items()
            if offer.available
        )
        present = sum(agent is not None for agent in self.row.agents.values())
        room = max(0, supply.max_instances - present - len(machines)) if supply.room is None else supply.room
        unused = tuple(UnusedMachine(instance=InstanceId(id_), gangs=tasks) for id_, tasks in supply.unused.items())
        return Supply(machines=machines, unused=unused, offers=offers, room=room, reason=supply.reason)

    def _usage(self) -> Iterator[Usage]:
        for name, charged in self.row.usage.items():
            workspace, _, user = name.partition("/")
            if not (workspace.isdecimal() and user.isdecimal()):
                self._wrong(("usage", name), "is not a user; write <workspace>/<user>, such as 1/2")
                continue
            pool, workspace_id, owner = PoolName(self.row.pool), int(workspace), UserId(int(user))
            yield replace(Usage.none_yet(pool, workspace_id, owner, now=self.row.now), charged=charged)

    # -- agents ------------------------------------------------------------------------------------------------

    def _agent(self, id_: str, row: AgentRow) -> Agent:
        numbers = _slot_numbers(row)
        if len(set(numbers)) < len(numbers):
            self._wrong(("agents", id_, "slots"), f"names a slot twice (value {show_value(numbers)}); name each once")
        there = dict.fromkeys(numbers)
        disabled, draining = set(row.disabled_slots), set(row.draining_slots)
        for key in ("disabled_slots", "draining_slots"):
            for number in getattr(row, key):
                if number not in there:
                    self._wrong(("agents", id_, key), f"{number} is not one of its slots; they are {_listed(there)}")
        now = self.row.now
        return Agent(
            id=AgentId(id_),
            pool=PoolName(self.row.pool),
            slots=tuple(
                Slot(
                    device=Device(index=number, kind=SlotKind.CPU, brand="", uuid=""),
                    enabled=number not in disabled,
                    draining=number in draining,
                )
                for number in numbers
            ),
            incarnation="",
            address="",
            version="",
            registered_at=now,
            connected_at=now,
            disconnected_at=None if row.connected else now,
            enabled=row.enabled,
            draining=row.draining,
            instance_id=None if row.instance is None else InstanceId(row.instance),
            notice=row.notice and MachineNotice(kind=NoticeKind(row.notice), deadline=None, reason="", received_at=now),
        )

    # -- jobs --------------------------------------------------------------------------------------------------

    def _jobs(self, allocations: list[Allocation]) -> Iterator[Job]:
        # A job was submitted with the first of its tasks. A task without a job has a job of its own name.
        came: dict[JobId, datetime] = {}
        for allocation in allocations:
            came[allocation.job_id] = min(allocation.requested_at, came.get(allocation.job_id, allocation.requested_at))
        count = len(self.row.jobs)
        for number, (id_, row) in enumerate(self.row.jobs.items()):
            if row is not None:
                default_time = came.get(JobId(id_)) or self._default_time(number, count)
                yield self._job(id_, row, row.submitted_at or default_time)
        for job in dict.fromkeys(a.job_id for a in allocations if self._names_no_job(a)):
            if job not in self.row.jobs:
                yield self._job(job, JobRow(), came[job])

    def _names_no_job(self, allocation: Allocation) -> bool:
        task = self.row.tasks[allocation.id]
        return task is not None and task.job is None

    def _job(self, id_: str, row: JobRow, submitted_at: datetime) -> Job:
        return Job(
            id=JobId(id_),
            kind="EXPERIMENT",
            name=id_,
            owner=UserId(row.owner),
            workspace_id=row.workspace,
            project_id=0,
            pool=PoolName(self.row.pool),
            priority=self.row.policy.default_priority if row.priority is None else row.priority,
            weight=row.weight,
            max_slots=row.max_slots,
            hold=row.held,
            submitted_at=submitted_at,
            queue_position=submitted_at.timestamp() if row.queue_position is None else row.queue_position,
        ).as_scheduled

    # -- tasks -------------------------------------------------------------------------------------------------

    def _allocations(self) -> Iterator[Allocation]:
        given = {id_: row for id_, row in self.row.tasks.items() if row is not None}
        for id_, row in given.items():
            self._check_names(id_, row)
            self._check_places(id_, row)
        # Tasks that list slot numbers come first; tasks that give a count get the lowest of the rest.
        containers = {id_: self._named(id_, row) for id_, row in given.items()}
        for id_, row in given.items():
            for agent, slots in (row.on or {}).items():
                if isinstance(slots, int):
                    containers[id_][agent] = self._lowest(id_, agent, slots)
        for number, (id_, row) in enumerate(given.items()):
            yield self._allocation(id_, row, containers[id_], self._default_time(number, len(given)))

    def _check_names(self, id_: str, row: TaskRow) -> None:
        if row.job is not None and row.job not in self.row.jobs:
            self._wrong(("tasks", id_, "job"), f"there is no job '{row.job}' here; {_choice(self.row.jobs)}")
        for key in ("blocked_agents", "reserved_agents", "on"):
            for agent in getattr(row, key) or ():
                if agent not in self.row.agents:
                    choice = _choice(self.row.agents)
                    self._wrong(("tasks", id_, key), f"there is no agent '{agent}' here; {choice}")

    def _check_places(self, id_: str, row: TaskRow) -> None:
        """Reports states that no pool can reach. A lowered limit, or an agent that was blocked later, is valid."""
        if row.leaving and row.on is None:
            text = (
                "is not possible for a pending task (value true); set where it runs (on), with {} if it holds nothing"
            )
            self._wrong(("tasks", id_, "leaving"), text)
        if row.single_node and len(row.on or {}) > 1:
            agents = ", ".join(row.on or {})
            text = f"is contradicted (value true): it runs on {agents}; name one of them, or omit single_node"
            self._wrong(("tasks", id_, "single_node"), text)

    def _named(self, id_: str, row: TaskRow) -> dict[str, tuple[int, ...]]:
        """The listed slot numbers of its agents; empty for agents with a count."""
        named: dict[str, tuple[int, ...]] = {}
        for agent, slots in (row.on or {}).items():
            named[agent] = () if isinstance(slots, int) else slots
            known = self._slots_of(agent)
            for number in named[agent]:
                other = self._used[agent].get(number)
                if other is not None:
                    self._wrong(("tasks", id_, "on", agent), f"slot {number} is used by '{other}'; name another")
                self._used[agent].setdefault(number, id_)
                if known is not None and number not in known:
                    text = f"{number} is not one of its slots; they are {_listed(known)}"
                    self._wrong(("tasks", id_, "on", agent), text)
        return named

    def _slots_of(self, agent: str) -> dict[int, None] | None:
        """Slot numbers of an agent, in the order of the file; None for a missing agent."""
        if agent not in self._known:
            there = self.row.agents.get(agent)
            self._known[agent] = None if there is None else dict.fromkeys(_slot_numbers(there))
        return self._known[agent]

    def _lowest(self, id_: str, agent: str, count: int) -> tuple[int, ...]:
        if agent not in self._left:
            known, used = self._slots_of(agent), self._used[agent]
            self._left[agent] = (number for number in (endless() if known is None else known) if number not in used)
        chosen = tuple(islice(self._left[agent], count))
        if len(chosen) < count:
            text = f"only {len(chosen)} of its slots are left (value {count}); run it elsewhere, or with fewer slots"
            self._wrong(("tasks", id_, "on", agent), text)
        return chosen

    def _allocation(
        self, id_: str, row: TaskRow, places: dict[str, tuple[int, ...]], default_time: datetime
    ) -> Allocation:
        held = sum(map(len, places.values()))
        slots = row.slots if row.slots is not None else held if row.on is not None else 1
        if held > slots:
            self._wrong(
                ("tasks", id_, "slots"), f"it holds {held} and needs fewer (value {slots}); give at least {held}"
            )
        requested_at = row.requested_at or default_time
        containers = tuple(
            Container(
                id=ContainerId(f"{id_}/{rank}"),
                rank=rank,
                agent=AgentId(agent),
                slots=numbers,
                state=ContainerState.RUNNING,
            )
            for rank, (agent, numbers) in enumerate(places.items())
        )
        if row.on is not None and not containers:
            ended = ContainerState.TERMINATED  # it was placed and no longer holds anything
            containers = (Container(id=ContainerId(f"{id_}/0"), rank=0, agent=AgentId(""), slots=(), state=ended),)
        state = AllocationState.PENDING if row.on is None else AllocationState.RUNNING
        return Allocation(
            id=AllocationId(id_),
            task_id=TaskId(id_),
            task_type=TaskType.TRIAL,
            job_id=JobId(row.job if row.job is not None else id_),
            pool=PoolName(self.row.pool),
            slots_needed=slots,
            requested_at=requested_at,
            single_node=row.single_node,
            preemptible=row.preemptible,
            blocked_agents=tuple(map(AgentId, row.blocked_agents)),
            reserved_agents=tuple(map(AgentId, row.reserved_agents)),
            state=AllocationState.TERMINATING if row.leaving else state,
            containers=containers,
            assigned_at=row.assigned_at,
            started_at=row.started_at,
            ready_at=row.ready_at,
            saved_at=row.saved_at,
            evictions=row.evictions,
            worth=Worth(likelihood=row.likelihood, rung=row.rung, score=row.score),
        )


def _slot_numbers(row: AgentRow) -> list[int]:
    return list(range(row.slots)) if isinstance(row.slots, int) else list(row.slots)


def _listed(numbers: Collection[int]) -> str:
    shown = ", ".join(map(str, islice(numbers, MAX_NAMES))) or "none"
    return f"{shown} and {len(numbers) - MAX_NAMES} more" if len(numbers) > MAX_NAMES else shown


def _choice(known: dict[str, Any]) -> str:
    shown = list(known)[:8]
    return (
        f"there are {', '.join(shown)}{' and more' if len(known) > len(shown) else ''}" if shown else "there are none"
    )


# -------------------------------------------------------------------------------------------------------------- writing


def write_snapshot(snapshot: PoolSnapshot) -> dict[str, Any]:
    """The file of a snapshot, as JSON values. It contains no names of users or experiments, and no addresses."""
    named = _named_agents(snapshot)
    row = SnapshotRow(
        pool=snapshot.policy.name,
        now=snapshot.now,
        held=snapshot.held,
        agents={id_: _agent_row(snapshot, id_) for id_ in named},
        jobs={id_: _job_row(snapshot, id_) for id_ in _named_jobs(snapshot)},
        tasks={allocation.id: _task_row(allocation) for allocation in snapshot.allocations.values()},
        usage=_usage_rows(snapshot),
        supply=_supply_row(snapshot),
        policy=_policy_row(snapshot.policy),  # type: ignore[arg-type]
    )
    written: dict[str, Any] = row.model_dump(mode="json", exclude_defaults=True)
    return {"version": row.version, "pool": row.pool, "now": row.model_dump(mode="json")["now"], **written}


def _policy_row(policy: PoolPolicy) -> dict[str, Any]:
    return {
        "type": policy.scheduler.value,
        "preemption": policy.preemption,
        "hierarchical_shares": policy.hierarchical_shares,
        "usage_half_life": policy.usage_half_life_s,
        "min_runtime": policy.min_runtime_s,
        "preemption_grace": policy.preemption_grace_s,
        "default_priority": policy.default_priority,
        "fitting_policy": policy.fitting.value,
        "allow_heterogeneous_fits": policy.heterogeneous_fits,
        "max_aux_containers_per_agent": policy.max_aux_containers_per_agent,
    }


def _named_agents(snapshot: PoolSnapshot) -> list[AgentId]:
    """Known agents, and those that other entries refer to."""
    found = set(snapshot.agents) | set(snapshot.occupancy)
    for allocation in snapshot.allocations.values():
        found.update(allocation.blocked_agents)
        found.update(allocation.reserved_agents)
    return sorted(found)


def _agent_row(snapshot: PoolSnapshot, id_: AgentId) -> AgentRow | None:
    agent = snapshot.agents.get(id_)
    if agent is None:
        return None
    # A slot that is used and no longer exists counts as disabled.
    used = {number for _, occupant in snapshot.occupancy.get(id_) or () for number in occupant.slots}
    lost = used - {slot.index for slot in agent.slots}
    numbers = tuple(sorted({slot.index for slot in agent.slots} | lost))
    return AgentRow(
        slots=len(numbers) if numbers == tuple(range(len(numbers))) else numbers,
        disabled_slots=tuple(sorted({slot.index for slot in agent.slots if not slot.enabled} | lost)),
        draining_slots=tuple(slot.index for slot in agent.slots if slot.draining),
        enabled=agent.enabled,
        draining=agent.draining,
        connected=agent.connected,
        notice=None if agent.notice is None else agent.notice.kind,
        instance=agent.instance_id,
    )


def _named_jobs(snapshot: PoolSnapshot) -> list[JobId]:
    """Jobs with allocations, in the order of submission."""

    def order(id_: JobId) -> tuple[bool, float, JobId]:
        job = snapshot.jobs.get(id_)
        return (True, 0.0, id_) if job is None else (False, job.submitted_at.timestamp(), id_)

    return sorted(snapshot.job_allocations, key=order)


def _job_row(snapshot: PoolSnapshot, id_: JobId) -> JobRow | None:
    job = snapshot.jobs.get(id_)
    if job is None:
        return None
    place = job.queue_position
    return JobRow(
        priority=job.priority,
        weight=job.weight,
        max_slots=None if job.hold else job.max_slots,
        held=job.hold,
        owner=job.owner,
        workspace=job.workspace_id,
        submitted_at=job.submitted_at,
        queue_position=None if place == job.submitted_at.timestamp() else place,
    )


def _task_row(allocation: Allocation) -> TaskRow:
    on = {str(c.agent): c.slots for c in sorted(allocation.containers, key=lambda c: c.rank) if not c.ended}
    return TaskRow(
        job=allocation.job_id,
        slots=allocation.slots_needed,
        single_node=allocation.single_node,
        preemptible=allocation.preemptible,
        blocked_agents=allocation.blocked_agents,
        reserved_agents=allocation.reserved_agents,
        requested_at=allocation.requested_at,
        on=None if waits(allocation) else on,  # type: ignore[arg-type]
        assigned_at=allocation.assigned_at if allocation.started_at else None,
        started_at=allocation.started_at or allocation.assigned_at,
        ready_at=allocation.ready_at,
        saved_at=allocation.saved_at,
        evictions=allocation.evictions_by_now,
        likelihood=allocation.worth.likelihood,
        rung=allocation.worth.rung,
        score=allocation.worth.score,
        leaving=allocation.leaving,
    )


def _usage_rows(snapshot: PoolSnapshot) -> dict[str, float]:
    used = () if snapshot.shares is None else snapshot.shares.used.items()
    return {"/".join(path): slots for path, slots in used if len(path) == 2}


def _supply_row(snapshot: PoolSnapshot) -> SupplyRow | None:
    scaling, supply = snapshot.policy.scaling, snapshot.supply
    if scaling is None:
        return None
    return SupplyRow(
        max_instances=scaling.max_instances,
        offers={
            **{
                offer.offer_id: OfferRow(slots=offer.slots, price_per_hour=offer.price_per_hour, available=False)
                for offer in scaling.offers
            },
            **{
                offer.offer_id: OfferRow(
                    slots=offer.slots,
                    price_per_hour=offer.price_per_hour,
                    expected_s=offer.expected_s,
                    room=offer.room,
                    one_only=offer.one_only,
                )
                for offer in supply.offers
            },
        },
        machines={
            machine.instance: MachineRow(slots=machine.slots, expected_at=machine.expected_at, tasks=machine.gangs)
            for machine in supply.machines
        },
        unused={machine.instance: machine.gangs for machine in supply.unused},
        room=supply.room,
        reason=supply.reason,
    )
