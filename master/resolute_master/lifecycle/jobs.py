"""Changes by users of a waiting or running job: priority, weight, cap, pool, and its place in the queue."""

from __future__ import annotations

from resolute.config.resources import LEAST_WEIGHT, MOST_WEIGHT
from resolute.errors import FailedPrecondition, InvalidInput, NotFound
from resolute_master.domain import commands as c
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import JobId, PoolName
from resolute_master.domain.job import Job
from resolute_master.domain.pool import SchedulerKind
from resolute_master.lifecycle import allocations, budget, queue, workspaces
from resolute_master.lifecycle.capacity import shortage
from resolute_master.lifecycle.cluster import line_of
from resolute_master.lifecycle.step import Step


def update(step: Step, command: c.UpdateJob) -> None:
    """Applies all of the command, or raises an error and changes nothing."""
    before = job = _living(step, command.job)
    if command.priority is not None:
        if not 1 <= command.priority <= 99:
            raise InvalidInput(
                f"priority: {command.priority} is out of range; give a number from 1 (first) to 99 (last)"
            )
        job = replace(job.at_its_time, priority=command.priority)
    if command.weight is not None:
        if not LEAST_WEIGHT <= command.weight <= MOST_WEIGHT:
            raise InvalidInput(
                f"weight: {command.weight} is out of range; give a number from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}"
            )
        job = replace(job, weight=command.weight)
    if command.max_slots is not None:
        _check_cap(step, job, command.max_slots)
        job = replace(job, max_slots=command.max_slots)
    if command.pool is not None:
        _check_pool_change(job, command)
        workspaces.check_pool(step, command.pool, workspaces.need_workspace(step, job.workspace_id), step.pools)
        if job.experiment_id is not None and step.need(Experiment, job.experiment_id).max_cost is not None:
            budget.check_priced(step, step.pools.get(command.pool), command.pool)
        _check_room(step, job, command.pool)
        job = budget.with_hold(step, job.moved_to(command.pool))
    step.put(job)
    anchor = command.ahead_of if command.ahead_of is not None else command.behind_of
    if anchor is not None:
        _move(step, job, anchor, ahead=command.ahead_of is not None)
    _keep_in_config(step, before, step.need(Job, job.id))
    if command.pool is not None:
        _move_pool(step, job)


def _living(step: Step, id_: JobId) -> Job:
    job = step.get(Job, id_)
    if job is None:
        raise NotFound("job", id_, "`det job list` shows the jobs that have not ended")
    refuse_unqueued(job)
    return job


def refuse_unqueued(job: Job) -> None:
    """Raises `FailedPrecondition` for a job that is in no queue."""
    if job.ended:
        raise FailedPrecondition(
            f"job '{job.id}' has ended or runs outside of the cluster, so it is in no queue; `det job list` shows "
            "the jobs that can be changed"
        )


def _check_cap(step: Step, job: Job, max_slots: int) -> None:
    """Checks the cap on slots, as at the creation: with fewer slots than one trial requests, the job would never start."""
    if max_slots < 0:
        raise InvalidInput(f"resources.max_slots: {max_slots} must not be negative; give a number of slots")
    needed = 0 if job.experiment_id is None else step.need(Experiment, job.experiment_id).settings.slots_per_trial
    if needed > max_slots:
        raise InvalidInput(
            f"resources.max_slots: {max_slots} is less than slots_per_trial {needed}, so no trial could run any more; "
            "raise it, or pause the experiment instead"
        )


# ----------------------------------------------------------------------------------------------------------- place


def _move(step: Step, job: Job, anchor_id: JobId, *, ahead: bool) -> None:
    """Moves the job right before or right behind the anchor, with its priority. A job that is there already is unchanged."""
    word = "aheadOf" if ahead else "behindOf"
    if anchor_id == job.id:
        raise InvalidInput(f"{word}: '{anchor_id}' is the job itself; name another job of its pool")
    anchor = step.get(Job, anchor_id)
    if anchor is None or anchor.ended:
        raise InvalidInput(
            f"{word}: job '{anchor_id}' not found among those that have not ended; `det job list` shows them"
        )
    if anchor.pool != job.pool:
        raise FailedPrecondition(
            f"{word}: job '{anchor_id}' is in pool '{anchor.pool}', this one in '{job.pool}'; move it to that pool first"
        )
    policy = step.pools.get(job.pool)
    if policy is not None and policy.scheduler is SchedulerKind.FAIR_SHARE:
        raise FailedPrecondition(
            f"{word}: pool '{job.pool}' uses fair-share scheduling, which has no places in a queue; change the weight instead"
        )
    moved = job if anchor.priority == job.priority else replace(job.at_its_time, priority=anchor.priority)
    found = step.find(Job, "jobs_of_line", line_of(anchor))
    others = sorted((each for each in found if each.id != job.id), key=lambda each: each.place)
    index = others.index(anchor) + (not ahead)
    if moved is job and _stands(others, job, index):
        return
    for each in queue.inserted(others, moved, index, now=step.now):
        step.put(each)


def _stands(others: list[Job], job: Job, index: int) -> bool:
    """Whether the position is strictly between those of its neighbours already."""
    behind_one = index == 0 or others[index - 1].queue_position < job.queue_position
    return behind_one and (index == len(others) or job.queue_position < others[index].queue_position)


# ------------------------------------------------------------------------------------------------------------ pool


def _check_pool_change(job: Job, command: c.UpdateJob) -> None:
    if command.pool == job.pool:
        raise FailedPrecondition(f"resourcePool: job '{job.id}' is in pool '{job.pool}' already")
    if job.experiment_id is None:
        raise FailedPrecondition(
            f"resourcePool: job '{job.id}' is a {job.kind.lower()}, and only experiments change pools; submit it again there"
        )


def _check_room(step: Step, job: Job, pool: PoolName) -> None:
    """Checks the size of the pool, as at the submission: running work must not end for a pool that can never hold it."""
    policy = step.pools.get(pool)
    if job.experiment_id is None or policy is None or not policy.launch_error:
        return
    settings, agents = step.need(Experiment, job.experiment_id).settings, step.find(Agent, "agents_of_pool", pool)
    why = shortage(policy, agents, slots=settings.slots_per_trial, single_node=settings.single_node)
    if why:
        raise InvalidInput(why)


def _move_pool(step: Step, job: Job) -> None:
    """Moves the allocations of the job: running ones are preempted and request slots in the new pool; pending ones move
    unchanged."""
    for allocation in step.find(Allocation, "allocations_of_job", job.id):
        if allocation.ended:
            continue
        if allocation.assigned_at is None:
            step.put(replace(allocation, pool=job.pool))
        else:
            allocations.preempt(step, allocation.id, f"its job moves to pool {job.pool}")


# ---------------------------------------------------------------------------------------------------- configuration


def _keep_in_config(step: Step, before: Job, job: Job) -> None:
    """Writes the changed values to the experiment's configuration, which shows those in force."""
    if job.experiment_id is None:
        return
    experiment = step.need(Experiment, job.experiment_id)
    was = {
        "priority": before.priority,
        "weight": before.weight,
        "max_slots": before.max_slots,
        "resource_pool": before.pool,
    }
    now = {"priority": job.priority, "weight": job.weight, "max_slots": job.max_slots, "resource_pool": job.pool}
    changed = {key: value for key, value in now.items() if value != was[key]}
    if changed:
        step.put(experiment.with_settings("resources", changed))
