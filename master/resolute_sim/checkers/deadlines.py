"""No deadline is missed that could be kept: waiting for spot, or staying there for too long, must never be what misses one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from resolute.wire.states import ExperimentState
from resolute_master.domain.account import Account, Owner, account_id
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import Change, PoolBelief
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import PoolName
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy
from resolute_master.domain.trial import Trial
from resolute_master.lifecycle.cluster import ClusterState
from resolute_provisioner.model import Market, PoolScaling
from resolute_sim.event_log import Event, EventLog

MARGIN_S = 600.0
"""Margin of a deadline: the boot of the first machine, the margin that the rule itself keeps, and late orders."""

OVERHEAD_S = 2.0
"""Time of one step that its report takes."""

ROUNDS = 2
"""Saves besides the regular ones: at a move, and at the end."""


@dataclass(slots=True, kw_only=True)
class _Tracked:
    """One trial with a deadline, since it was first asked for. `excuse`: what but the choice of a market made it late."""

    deadline: datetime
    since: datetime
    pool: PoolName
    length_s: float
    steps: int
    excuse: str = ""


class Deadlines:
    """Checks the deadlines of trials with a correct or unknown length that only the choice of a market could delay."""

    def __init__(self, pools: Mapping[PoolName, PoolPolicy], event_log: EventLog) -> None:
        self._pools = pools
        self._event_log = event_log
        self._tracked: dict[int, _Tracked] = {}
        self._away_s = 0.0

    @property
    def judged(self) -> int:
        """Deadlines that are checked."""
        return len(list(self._done()))

    def excuse(self, seconds: float) -> None:
        """Time for which no part could act."""
        self._away_s += seconds

    def silent(self, machine: str) -> None:
        """It froze or was unreachable: the loss of its work is detected late."""
        for task in self._event_log.live.values():
            if task.machine == machine and task.trial in self._tracked:
                self._excuse(self._tracked[task.trial], f"{machine} was silent")

    def note(self, state: ClusterState, change: Change) -> None:
        """After each commit."""
        for allocation in state.all(Allocation):
            if allocation.deadline is None or allocation.trial_id is None or allocation.ended:
                continue
            tracked = self._tracked.get(allocation.trial_id) or self._begun(state, allocation)
            if tracked is None or tracked.excuse:
                continue
            self._excuse(tracked, self._held_up(state, allocation, tracked))
        for trial_id, tracked in self._tracked.items():
            if _paused(state, trial_id):  # nothing of it waits or runs then
                self._excuse(tracked, "its user held it up")
        made_leave = {each.subject for each in change.decisions if each.kind == "preempt" and _for_another(each.reason)}
        for id_ in sorted(made_leave):
            left = state.get(Allocation, id_)
            if left is not None and left.trial_id in self._tracked:
                self._excuse(self._tracked[left.trial_id], "others were more important")

    def check(self) -> Iterator[str]:
        """At the end, of what has come to its last step."""
        for trial, tracked, done in self._done():
            late_s = (done - tracked.deadline).total_seconds() - self._away_s
            if late_s > 0:
                yield (
                    f"trial {trial} had {(tracked.deadline - tracked.since).total_seconds():.0f} s for "
                    f"{tracked.length_s:.0f} s of work, nothing was refused to it, and it is {late_s:.0f} s late"
                )

    def _done(self) -> Iterator[tuple[int, _Tracked, datetime]]:
        """Times of the last step of trials without an excuse, of which no run was lost without a notice."""
        for trial, tracked in sorted(self._tracked.items()):
            entries = self._event_log.of_trial[trial]
            done = next((e.at for e in entries if e.event is Event.STEP and e.step == tracked.steps), None)
            lost = any(e.event is Event.END and not e.why.startswith("exit 0") for e in entries)
            if done is not None and not lost and not tracked.excuse:
                yield trial, tracked, done

    def _begun(self, state: ClusterState, allocation: Allocation) -> _Tracked | None:
        """None of what may be late for other reasons by what it is."""
        assert allocation.trial_id is not None
        trial = state.get(Trial, allocation.trial_id)
        experiment = None if trial is None else state.get(Experiment, trial.experiment_id)
        scaling = self._pools[allocation.pool].scaling
        if experiment is None or scaling is None or allocation.deadline is None or allocation.slots_needed == 0:
            return None
        data, length_s = experiment.config["data"], declared_length_s(experiment.config["data"])
        tracked = _Tracked(
            deadline=allocation.deadline,
            since=allocation.requested_at,
            pool=allocation.pool,
            length_s=length_s,
            steps=data["steps"],
        )
        estimate_s = experiment.estimated_duration_s
        given_s = (tracked.deadline - tracked.since).total_seconds()
        if {offer.market for offer in scaling.offers} != set(Market):
            tracked.excuse = "there is one market"
        elif given_s < length_s * 1.01 + MARGIN_S:
            tracked.excuse = "it never had the time"
        elif estimate_s is not None and estimate_s < length_s:
            tracked.excuse = "its estimated length was too short"
        elif (
            data["failures"] or data["worker_fails_after_s"] or data["invalid_below"] or data["deaf"] or data["stuck_s"]
        ):
            tracked.excuse = "it fails, or does not listen"
        self._tracked[allocation.trial_id] = tracked
        return tracked

    def _held_up(self, state: ClusterState, allocation: Allocation, tracked: _Tracked) -> str:
        """What but the choice of a market is in its way now, or empty."""
        job = state.get(Job, allocation.job_id)
        scaling = self._pools[tracked.pool].scaling
        if job is None or scaling is None or allocation.pool != tracked.pool:
            return "it was moved"
        experiment = None if job.experiment_id is None else state.get(Experiment, job.experiment_id)
        if experiment is None or experiment.state is not ExperimentState.ACTIVE or job.max_slots is not None:
            return "its user held it up"
        if _limited(state, job, tracked.pool):
            return "money held it up"
        if _refused(state, scaling):
            return "a machine on demand was refused, or did not come"
        rows = [each for each in state.find(Instance, "instances_of_pool", tracked.pool) if not each.over]
        if allocation.assigned_at is None:
            return "the pool had no room" if len(rows) >= scaling.max_instances else ""
        return self._shares(state, allocation)

    def _shares(self, state: ClusterState, allocation: Allocation) -> str:
        """Work that shares a machine stays there: other work would have to move with it."""
        for container in allocation.containers:
            on_it = state.find(Allocation, "allocations_on_agent", container.agent)
            if any(other.id != allocation.id and not other.ended for other in on_it):
                return "it shared a machine"
            if state.get(Agent, container.agent) is None:
                return "its agent was gone"
        return ""

    @staticmethod
    def _excuse(tracked: _Tracked, words: str) -> None:
        tracked.excuse = tracked.excuse or words


def _paused(state: ClusterState, trial_id: int) -> bool:
    trial = state.get(Trial, trial_id)
    experiment = None if trial is None else state.get(Experiment, trial.experiment_id)
    return experiment is not None and experiment.state is ExperimentState.PAUSED


def _for_another(reason: str) -> bool:
    return "its slots go to" in reason


def declared_length_s(data: Mapping[str, Any]) -> float:
    """With its saves, and as long as nothing takes its machine."""
    saves = data["steps"] // data["save_every"] + ROUNDS
    return float(data["steps"] * (data["step_s"] + OVERHEAD_S) + saves * data["save_s"])


def _limited(state: ClusterState, job: Job, pool: PoolName) -> bool:
    owners = [account_id(Owner.POOL, pool), account_id(Owner.WORKSPACE, job.workspace_id)]
    if job.experiment_id is not None:
        owners.append(account_id(Owner.EXPERIMENT, job.experiment_id))
    accounts = (state.get(Account, owner) for owner in owners)
    return any(account is not None and bool(account.limits) for account in accounts)


def _refused(state: ClusterState, scaling: PoolScaling) -> bool:
    on_demand = {offer.offer_id for offer in scaling.offers if offer.market is Market.ON_DEMAND}
    beliefs = (known.belief for known in state.find(PoolBelief, "beliefs_of_pool", scaling.pool))
    return any(
        belief.last_refusal is not None or belief.consecutive_boot_failures > 0 or belief.partial_gangs > 0
        for belief in beliefs
        if belief.offer_id in on_demand
    )
