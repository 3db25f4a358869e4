"""Trials: in which states they request slots, and the consequences of the end of an allocation.

A trial asks for an allocation whenever it is ACTIVE and has none, unless it waits for its search to decide about it. How an
allocation ends decides what becomes of the trial:

1. a stopping trial ends in the terminal state of its stopping state, or in ERROR when the allocation failed;
2. a trial that the search has stopped completes, or ends in ERROR when the allocation failed;
3. a failure that is the machine's (agent lost, not restored, not launched) costs no restart: it runs again;
4. what no agent can run, or no machine can be launched for, ends in ERROR at once: a restart would meet the same;
5. after any other failure a log policy that cancels retries ends the trial in ERROR, with the lines that matched in its log;
6. else the failure costs a restart; past `max_restarts` the trial ends in ERROR, and so it does when its pool can never hold it
   without the agents that log policies exclude (with `launch_error: false` it waits); before that it runs again;
7. a clean end by its own decision completes it; so does a clean end after invalid hyperparameters were reported;
8. otherwise (preempted, paused) it runs again as soon as it is ACTIVE.
"""

from __future__ import annotations

from datetime import timedelta

from resolute.errors import FailedPrecondition, InvalidInput, NotFound
from resolute.wire.states import STOPPING_ENDS, ExperimentState, FailureKind, TaskType
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation, remembered
from resolute_master.domain.copies import replace
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import AllocationId, TrialId, allocation_id
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy
from resolute_master.domain.trial import Trial
from resolute_master.domain.worth import ORDINARY
from resolute_master.lifecycle import allocations, searching, successors, unmanaged
from resolute_master.lifecycle.capacity import shortage
from resolute_master.lifecycle.failures import hint, next_failure, summary
from resolute_master.lifecycle.moves import SEVERITY
from resolute_master.lifecycle.step import Step

INVALID_HPARAMS_GRACE_S = 10.0
"""Time after which a trial with invalid hyperparameters is killed if it has not ended by itself."""

MAX_RETENTION_DAYS = 32767

S = ExperimentState


def open_allocation(step: Step, trial: Trial) -> Allocation | None:
    return next((a for a in step.find(Allocation, "allocations_of_task", trial.task_id) if not a.ended), None)


def set_state(step: Step, trial: Trial, wanted: ExperimentState) -> None:
    """Move the trial to the state that its experiment, its search or its user requests. Late and lesser requests are no-ops."""
    if trial.state.gone or wanted.gone or SEVERITY.get(wanted, 0) < SEVERITY.get(trial.state, 0):
        return
    moved = replace(trial, state=wanted)
    step.put(moved)
    allocation = open_allocation(step, moved)
    if allocation is None:
        if wanted in STOPPING_ENDS:
            _end(step, moved, STOPPING_ENDS[wanted], "")
        else:
            ask(step, moved)
        return
    match wanted:
        case S.PAUSED:
            allocations.preempt(step, allocation.id, "the experiment was paused")
        case S.STOPPING_CANCELED:
            allocations.preempt(step, allocation.id, "the experiment was canceled")
        case S.STOPPING_COMPLETED:
            allocations.preempt(step, allocation.id, "the search needs no more of this trial")
        case S.STOPPING_KILLED:
            allocations.kill(step, allocation.id, "killed by the user")
        case S.STOPPING_ERROR:
            allocations.kill(step, allocation.id, "the experiment failed")
        case _:
            pass


def ask(step: Step, trial: Trial) -> None:
    """Request slots for the next run, if the trial should run and has none."""
    if trial.state is not S.ACTIVE or trial.searcher_done or open_allocation(step, trial) is not None:
        return
    row = searching.row_of(step, trial)
    if row is not None and row.idle:
        return
    settings = step.need(Experiment, trial.experiment_id).settings
    slots = settings.slots_per_trial
    job = step.need(Job, trial.job_id)
    run_id = trial.run_id + 1
    id_ = allocation_id(trial.task_id, run_id)
    start = trial.latest_checkpoint
    step.put(replace(trial, run_id=run_id))
    step.put(
        Allocation(
            id=id_,
            task_id=trial.task_id,
            task_type=TaskType.TRIAL,
            job_id=job.id,
            pool=job.pool,
            slots_needed=slots,
            single_node=settings.single_node,
            deadline=settings.deadline,
            preemption_timeout_s=settings.preemption_timeout_s,
            requested_at=step.now,
            trial_id=trial.id,
            run_id=run_id,
            blocked_agents=trial.blocked_agents,
            evictions=trial.evictions,
            worth=ORDINARY if row is None else row.worth,
            resumed_steps=start.steps_completed if start else 0,
            resumed_checkpoint=start.uuid if start else trial.warm_start_checkpoint,
            history=(remembered("PENDING", step.now),),
        )
    )
    if trial.run_id:
        successors.inherit(step, allocation_id(trial.task_id, trial.run_id), id_)
    resume = f", to resume from step {start.steps_completed}" if start else ""
    step.log(trial.task_id, id_, f"Trial {trial.id} run {run_id} waits for {slots} slot(s) of pool {job.pool}{resume}")


def allocation_ended(step: Step, id_: AllocationId) -> None:
    """Apply the end of an allocation to its trial, by the rules in the module's list."""
    allocation = step.need(Allocation, id_)
    assert allocation.exit is not None
    if allocation.trial_id is None:
        return
    trial, evictions = step.need(Trial, allocation.trial_id), allocation.evictions_by_now
    if evictions != trial.evictions:
        trial = replace(trial, evictions=evictions)
        step.put(trial)
    failure, reason = allocation.exit.failure, allocation.exit.reason
    if failure is not None and failure.counts_as_restart:
        trial = replace(trial, failure=next_failure(trial.failure, allocation.exit))
        step.put(trial)
    if trial.state in STOPPING_ENDS:
        _end(step, trial, S.ERROR if failure and failure.counts_as_restart else STOPPING_ENDS[trial.state], reason)
    elif trial.searcher_done:
        _end(step, trial, S.ERROR if failure and failure.counts_as_restart else S.COMPLETED, reason)
    elif failure is not None:
        _failed(step, trial, failure, reason)
    elif allocation.exit.finished or trial.invalid_hparams:
        _end(step, trial, S.COMPLETED, reason)
    else:
        ask(step, trial)


def _failed(step: Step, trial: Trial, failure: FailureKind, reason: str) -> None:
    if not failure.counts_as_restart:
        ask(step, trial)
        return
    if failure is FailureKind.LAUNCH_REFUSED:
        _end(step, trial, S.ERROR, reason)
        return
    if trial.retries_canceled_by:
        for match in trial.retries_canceled_by:
            text = (
                f"No retry of trial {trial.id}: a line of its log matches the log policy '{match.pattern}': {match.line} "
                "(trial failed and matched logs to a don't retry policy)"
            )
            step.log(trial.task_id, None, text, level="ERROR")
        _end(step, trial, S.ERROR, f"{reason}; a log policy forbids a retry")
        return
    experiment = step.need(Experiment, trial.experiment_id)
    restarts = trial.restarts + 1
    trial = replace(trial, restarts=restarts, exit_message=reason)
    step.put(trial)
    if restarts > experiment.max_restarts:
        step.log(trial.task_id, None, f"Trial {trial.id} failed {restarts} times: no restart is left", level="ERROR")
        _end(step, trial, S.ERROR, reason)
    else:
        _restart(step, trial, experiment, reason)


def _restart(step: Step, trial: Trial, experiment: Experiment, reason: str) -> None:
    policy = step.pools.get(step.need(Job, trial.job_id).pool)
    missing = _room_missing(step, trial, experiment, policy) if policy is not None and trial.blocked_agents else ""
    if missing and policy is not None and policy.launch_error:
        step.log(trial.task_id, None, f"Trial {trial.id} cannot run again: {missing}", level="ERROR")
        _end(step, trial, S.ERROR, f"{reason}; it cannot run again: {missing}")
        return
    if missing:
        step.log(trial.task_id, None, f"Trial {trial.id} waits for other agents: {missing}", level="WARNING")
    told = summary(trial.failure) if trial.failure is not None else reason
    step.log(trial.task_id, None, f"Trial {trial.id} restarts ({trial.restarts} of {experiment.max_restarts}): {told}")
    if trial.failure is not None and trial.failure.times > 1:
        text = (
            f"Trial {trial.id} failed {trial.failure.times} times in a row with the same error: {hint(trial.failure)}"
        )
        step.log(trial.task_id, None, text, level="WARNING")
    ask(step, trial)


def _room_missing(step: Step, trial: Trial, experiment: Experiment, policy: PoolPolicy) -> str:
    """The reason why the pool can never hold the trial without the agents that log policies exclude; "" if it can."""
    settings = experiment.settings
    return shortage(
        policy,
        step.find(Agent, "agents_of_pool", policy.name),
        slots=settings.slots_per_trial,
        single_node=settings.single_node,
        blocked=trial.blocked_agents,
    )


def _end(step: Step, trial: Trial, state: ExperimentState, reason: str) -> None:
    step.put(
        replace(trial, state=state, ended_at=step.now, exit_message=reason if state is S.ERROR else "", kill_at=None)
    )
    step.ended_trials.append(trial.id)


def set_log_retention(step: Step, trial: Trial, days: int) -> None:
    """Sets the retention of the trial's log in days; -1 keeps it for ever, 0 until the next clean-up."""
    if not -1 <= days <= MAX_RETENTION_DAYS:
        raise InvalidInput(f"numDays: {days} must be from -1 (for ever) to {MAX_RETENTION_DAYS}")
    if not trial.state.gone:
        raise FailedPrecondition(
            f"trial {trial.id} is {trial.state}: how long its log is kept can be changed at its end"
        )
    step.put(replace(trial, log_retention_days=days))


def kill(step: Step, id_: TrialId) -> None:
    """Kills one trial; the others continue."""
    trial = step.get(Trial, id_)
    if trial is None:
        raise NotFound("trial", id_)
    unmanaged.refuse_control(step.need(Experiment, trial.experiment_id))
    set_state(step, trial, S.STOPPING_KILLED)


def report_early_exit(step: Step, id_: TrialId, *, invalid_hparams: bool) -> None:
    trial = step.get(Trial, id_)
    if trial is None:
        raise NotFound("trial", id_)
    if trial.state.gone or trial.invalid_hparams or not invalid_hparams:
        return
    kill_at = step.now + timedelta(seconds=INVALID_HPARAMS_GRACE_S)
    step.put(replace(trial, invalid_hparams=True, kill_at=kill_at))
    step.log(trial.task_id, None, f"Trial {trial.id} reports invalid hyperparameters", level="WARNING")
