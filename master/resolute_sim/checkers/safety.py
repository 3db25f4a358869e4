"""No slot used twice, gangs whole, one run of a trial at a time, and states that only move as they may."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from resolute_master.domain.agent import Agent, SlotRef
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import Change, Entity
from resolute_master.domain.commands import RegisterAgent, ReportContainer, ReportNotice
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import PoolName
from resolute_master.domain.instance import Instance
from resolute_master.domain.pool import PoolPolicy
from resolute_master.domain.trial import Trial
from resolute_master.engine.journal import decode_commands
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.lifecycle.moves import EXPERIMENT_MOVES
from resolute_provisioner.model import Intent
from resolute_sim.event_log import EventLog, LiveTask

LEASE_SLACK_S = 6.0
"""A lease counts from the last answered heartbeat, and a message takes its time."""


def slots_used_once(state: ClusterState) -> Iterator[str]:
    """In the master's belief."""
    users: dict[SlotRef, str] = {}
    for allocation in state.all(Allocation):
        for slot in allocation.held_slots:
            if slot in users:
                yield f"slot {slot.index} of {slot.agent} is held by {users[slot]} and by {allocation.id}"
            users[slot] = allocation.id
            agent = state.get(Agent, slot.agent)
            if agent is not None and all(s.index != slot.index for s in agent.slots):
                yield f"{allocation.id} holds slot {slot.index} of {slot.agent}, which has no such slot"


def gangs_are_whole(state: ClusterState) -> Iterator[str]:
    """All of its slots, or none, on machines that differ; one container a machine."""
    for allocation in state.all(Allocation):
        given = sum(len(c.slots) for c in allocation.containers)
        if allocation.containers and given != allocation.slots_needed:
            yield f"{allocation.id} needs {allocation.slots_needed} slot(s) and was given {given}"
        if bool(allocation.containers) != (allocation.assigned_at is not None):
            yield f"{allocation.id} is {allocation.state} with {len(allocation.containers)} container(s)"
        agents = [c.agent for c in allocation.containers]
        if len(set(agents)) != len(agents):
            yield f"{allocation.id} has two containers on one machine"
        if allocation.single_node and len(agents) > 1:
            yield f"{allocation.id} was to run on one machine and runs on {len(agents)}"


def pools_within_bounds(state: ClusterState, pools: Mapping[PoolName, PoolPolicy]) -> Iterator[str]:
    """A machine under notice does not count beside its replacement, and a stray was unknown at the launch of its replacement."""
    for name, policy in sorted(pools.items()):
        if policy.scaling is None:
            continue
        there = [i for i in state.find(Instance, "instances_of_pool", name) if not i.over and i.notice is None]
        counted = [i.id for i in there if i.found_again_at is None]
        if len(counted) > policy.scaling.max_instances:
            yield f"pool {name} may have {policy.scaling.max_instances} machine(s) and has {', '.join(counted)}"


class Moves:
    """Compares what a change writes with what was there before."""

    def __init__(self) -> None:
        self._before: dict[tuple[type[Entity], object], Entity] = {}

    def check(self, change: Change) -> Iterator[str]:
        for entity in change.upserts:
            match entity:
                case Allocation():
                    yield from self._allocation(self._known(Allocation, entity.id), entity)
                case Trial():
                    yield from self._trial(self._known(Trial, entity.id), entity)
                case Experiment():
                    yield from self._experiment(self._known(Experiment, entity.id), entity)
                case Instance():
                    yield from self._instance(self._known(Instance, entity.id), entity)
                case _:
                    continue
            self._before[(type(entity), entity.id)] = entity

    def _known(self, type_: type, key: object) -> Entity | None:
        return self._before.get((type_, key))

    def _allocation(self, before: Entity | None, now: Allocation) -> Iterator[str]:
        if not isinstance(before, Allocation):
            return
        if now.state.order < before.state.order or (before.ended and now != before):
            yield f"allocation {now.id} went from {before.state} to {now.state}"
        if before.containers and [c.id for c in before.containers] != [c.id for c in now.containers]:
            yield f"the members of allocation {now.id} changed"

    def _trial(self, before: Entity | None, now: Trial) -> Iterator[str]:
        if not isinstance(before, Trial):
            return
        if not before.run_id <= now.run_id <= before.run_id + 1:
            yield f"trial {now.id} went from run {before.run_id} to run {now.run_id}"
        if before.state.gone and now.state is not before.state:
            yield f"trial {now.id} went from {before.state} to {now.state}"
        old, new = before.latest_checkpoint, now.latest_checkpoint
        if old is not None and (new is None or new.steps_completed < old.steps_completed):
            yield f"trial {now.id} forgot its checkpoint at step {old.steps_completed}"

    def _experiment(self, before: Entity | None, now: Experiment) -> Iterator[str]:
        if isinstance(before, Experiment) and now.state is not before.state:
            reachable = {before.state}
            while True:  # one cycle may carry several moves
                more = {to for state in reachable for to in EXPERIMENT_MOVES[state]} - reachable
                if not more:
                    break
                reachable |= more
            if now.state not in reachable:
                yield f"experiment {now.id} went from {before.state} to {now.state}"

    def _instance(self, before: Entity | None, now: Instance) -> Iterator[str]:
        if not isinstance(before, Instance):
            return
        # What counted as gone and is found all the same is taken up again, to be ended and for nothing else.
        is_stray = now.found_again_at not in (None, before.found_again_at) and now.intent is Intent.STOP
        if now.observed.order < before.observed.order and not is_stray:
            yield f"instance {now.id} went from {before.observed} to {now.observed}"
        if before.intent is not now.intent and before.intent is Intent.STOP:
            yield f"instance {now.id} was ordered to run again after it was stopped"


class Incarnations:
    """Only reports of the newest process of an agent are accepted."""

    def __init__(self) -> None:
        self._newest: dict[str, str] = {}

    def check(self, change: Change) -> Iterator[str]:
        for command in decode_commands(change.journal.commands):
            if isinstance(command, RegisterAgent):
                self._newest[command.agent] = command.incarnation
            elif isinstance(command, ReportContainer | ReportNotice):
                newest = self._newest.get(command.agent)
                if command.incarnation != newest:
                    yield f"a {type(command).__name__} of an outdated process of {command.agent} was taken"


class Ownership:
    """The runs that the world runs now, whatever the master's state."""

    def __init__(self, event_log: EventLog, lease_s: Mapping[PoolName, float]) -> None:
        self._event_log = event_log
        self._lease_s = lease_s
        self._ended: dict[str, tuple[datetime, float]] = {}

    def started(self, task: LiveTask) -> Iterator[str]:
        for other in self._event_log.live.values():
            if other.trial == task.trial and other.run != task.run:
                yield f"run {task.run} of trial {task.trial} starts while run {other.run} still runs on {other.machine}"
            if other.trial == task.trial and other.run == task.run and other.allocation != task.allocation:
                yield f"run {task.run} of trial {task.trial} has two allocations"
            shared = set(other.slots) & set(task.slots)
            if other.machine == task.machine and shared:
                yield f"{task.allocation} and {other.allocation} run on slots {sorted(shared)} of {task.machine}"

    def note(self, change: Change) -> None:
        for entity in change.upserts:
            if isinstance(entity, Allocation) and entity.ended:
                self._ended.setdefault(entity.id, (change.journal.at, self._lease_s[entity.pool]))

    def outlived(self, now: datetime) -> Iterator[str]:
        """A task whose allocation is over ends at the latest with its lease."""
        for task in self._event_log.live.values():
            known = self._ended.get(task.allocation)
            if known is None:
                continue
            since, lease_s = known
            over_s = (now - since).total_seconds()
            if over_s > lease_s + LEASE_SLACK_S:
                yield f"{task.container} on {task.machine} runs {over_s:.0f} s after its allocation {task.allocation} ended"
