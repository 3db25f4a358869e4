"""Accounts of spending: updated with each change of held and paid slots; work ends gracefully at a limit.

The accounts of an experiment and a workspace cover the slots that their work holds, from the assignment to the end, at the price of
the machines at each time. The account of a pool covers its machines, from the paid start to the end of the bill, including boots
and idle time. A booking is in the same commit as its cause: a master that is killed resumes with exact figures, including the time
of the outage.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from resolute.errors import FailedPrecondition, InvalidInput, NotFound
from resolute.wire.states import ExperimentState
from resolute_master.domain.account import NOTHING, Account, Limits, Owner, Rate, account_id
from resolute_master.domain.administration import SetBudget, SetMaxCost
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import AllocationId, ExperimentId, PoolName
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy
from resolute_master.domain.trial import Trial
from resolute_master.lifecycle import allocations, budget, experiments, workspaces
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.lifecycle.step import Step

State = Step | ClusterState

# ------------------------------------------------------------------------------------------------------------ booking


def book(step: Step, before: ClusterState) -> None:
    """Books the changes of spending by a step, relative to its initial state; the cost is proportional to the changes."""
    rates: defaultdict[str, Rate] = defaultdict(Rate)
    for touched in _touched(step, before):
        for owner, rate in _spending(before, before.get(Allocation, touched)):
            rates[owner] -= rate
        for owner, rate in _spending(step, step.get(Allocation, touched)):
            rates[owner] += rate
    for account, more in sorted(rates.items()):
        if more != NOTHING:
            step.put(_account(step, account).paying(more, step.now))
    for allocation in step.written_of(Allocation):
        if allocation.ended:
            _learn(step, allocation)
    for experiment in step.written_of(Experiment):
        if experiment.state.gone:
            # The books tell what it has cost.
            _close(step, account_id(Owner.EXPERIMENT, experiment.id))
    for instance in step.written_of(Instance):
        _book_machine(step, before.get(Instance, instance.id), instance)


def count_anew(step: Step) -> None:
    """At a start of the master, whose configuration may have changed: computes the rates again from held slots and paid
    machines."""
    rates: defaultdict[str, Rate] = defaultdict(Rate)
    for allocation in step.all(Allocation):
        for owner, rate in _spending(step, allocation):
            rates[owner] += rate
    for instance in step.all(Instance):
        if (rate := _rate_of_machine(instance)) != NOTHING:
            rates[account_id(Owner.POOL, instance.pool)] += rate
    for name, policy in step.pools.items():
        if policy.budget:
            rates[account_id(Owner.POOL, name)] += NOTHING
    known = {account.id for account in step.all(Account)}
    for id_ in sorted(known | rates.keys()):
        account = _configured(step, _account(step, id_))
        step.put(account.paying(rates[id_] - account.rate, step.now))


def _configured(step: Step, account: Account) -> Account:
    """The account with the configured limits. An operator's setting applies until the configured value changes."""
    policy = step.pools.get(PoolName(account.name)) if account.owner is Owner.POOL else None
    if policy is None or policy.budget == account.configured:
        return account
    return replace(account, limits=policy.budget, configured=policy.budget)


def _account(step: Step, id_: str) -> Account:
    known = step.get(Account, id_)
    return _configured(step, account_of(step, id_, step.now)) if known is None else known


def begun(policy: PoolPolicy, now: datetime) -> Account | None:
    """The initial account of a pool, from its configuration; None for one without a budget."""
    if not policy.budget:
        return None
    return Account(id=account_id(Owner.POOL, policy.name), at=now, limits=policy.budget, configured=policy.budget)


def account_of(state: State, id_: str, now: datetime) -> Account:
    """The stored account, or the initial one."""
    known = state.get(Account, id_)
    if known is not None:
        return known
    new = Account(id=id_, at=now)
    if new.owner is not Owner.EXPERIMENT:
        return new
    experiment = state.get(Experiment, int(new.name))
    return replace(new, limits=Limits(in_all=experiment.max_cost if experiment is not None else None))


def _close(step: Step, id_: str) -> None:
    account = step.get(Account, id_)
    if account is not None:
        step.delete(account)


def _touched(step: Step, before: ClusterState) -> list[AllocationId]:
    """Allocations that were changed, or whose job has another owner now."""
    found = {allocation.id for allocation in step.written_of(Allocation)}
    for job in step.written_of(Job):
        was = before.get(Job, job.id)
        if was is not None and was.workspace_id != job.workspace_id:
            found.update(each.id for each in step.find(Allocation, "allocations_of_job", job.id))
    return sorted(found)


def _rate(allocation: Allocation) -> Rate:
    """The rate of an allocation."""
    return NOTHING if allocation.ended else _at(allocation.price_per_hour, moves=allocation.price_moves)


def _spending(state: State, allocation: Allocation | None) -> Sequence[tuple[str, Rate]]:
    """The accounts that pay for the allocation, each with its rate; none while it costs nothing."""
    if allocation is None or (rate := _rate(allocation)) is NOTHING:
        return ()
    return [(owner, rate) for owner in _owners(state, allocation)]


def _at(price_per_hour: float | None, *, moves: bool) -> Rate:
    """The rate of a price; `NOTHING` itself for a price of 0."""
    if not price_per_hour:
        return NOTHING
    return Rate(per_hour=price_per_hour, moving_per_hour=price_per_hour if moves else 0.0)


def _owners(state: State, allocation: Allocation) -> tuple[str, ...]:
    job = state.get(Job, allocation.job_id)
    assert job is not None, f"{allocation.id} holds slots for a job that is not there"
    return owners_of(job)


def owners_of(job: Job) -> tuple[str, ...]:
    workspace = account_id(Owner.WORKSPACE, job.workspace_id)
    if job.experiment_id is None:
        return (workspace,)
    return (account_id(Owner.EXPERIMENT, job.experiment_id), workspace)


def _book_machine(step: Step, before: Instance | None, after: Instance) -> None:
    """Books a machine from its paid start to the end of its bill, both of which become known later."""
    more = _rate_of_machine(after) - (NOTHING if before is None else _rate_of_machine(before))

    def unreported(since: datetime | None) -> float:
        return _billed(after, since, step.now) - (0.0 if before is None else _billed(before, since, step.now))

    if more == NOTHING and not unreported(None):
        return
    account = _account(step, account_id(Owner.POOL, after.pool))
    step.put(account.corrected(unreported, step.now).paying(more, step.now))


def _rate_of_machine(instance: Instance) -> Rate:
    paying = instance.paid_from is not None and instance.paid_until is None and not instance.over
    return _at(instance.price_per_hour, moves=instance.price_moves) if paying else NOTHING


def _billed(instance: Instance, since: datetime | None, now: datetime) -> float:
    """Cost of a machine from a moment (None: from its beginning) until now."""
    if instance.paid_from is None:
        return 0.0
    begin = instance.paid_from if since is None else max(instance.paid_from, since)
    return instance.cost(begin, min(instance.paid_until or now, now))


def _learn(step: Step, ended: Allocation) -> None:
    """Records how long its save and end took, if it was preempted."""
    request = ended.preempt
    if request is None or request.acknowledged_at is None or ended.ended_at is None or ended.ended_at != step.now:
        return
    took_s = (ended.ended_at - request.requested_at).total_seconds()
    for id_ in (*_owners(step, ended), account_id(Owner.POOL, ended.pool)):
        account = step.get(Account, id_)
        if account is not None:
            step.put(account.having_saved(took_s))


# ------------------------------------------------------------------------------------------------------------- limits


def payers(state: State, allocation: Allocation, now: datetime) -> tuple[Account, ...]:
    """The accounts with limits that pay for the allocation, or would if it had slots."""
    job = state.get(Job, allocation.job_id)
    known = (account_of(state, owner, now) for owner in (() if job is None else owners_of(job)))
    return tuple(account for account in known if account.limits)


def refuse_start(step: Step, id_: str, more: Rate, found: budget.Reached | None, unpriced: str = "") -> None:
    """Winds an account down, because a start would reach the limit `found`, or because its cost is unknown on the agents
    `unpriced`."""
    account = _account(step, id_)
    if unpriced:
        _wind_down(step, account, _unpriced(account, unpriced), None)
    elif found is not None:
        _wind_down(step, account, _reason(step, account, found), found.until, more=more)
    elif account.wind_down is not None:
        _wind_down(step, account, account.wind_down.reason, account.wind_down.until)


def _unpriced(account: Account, agents: str) -> str:
    return (
        f"experiment {account.name} has a max_cost, and the price of {agents} is unknown; give the offer a price, or remove "
        f"the limit with `det experiment set max-cost {account.name} none`, then activate the experiment"
    )


def fall_due(step: Step, account: Account) -> None:
    """Checks the limits of an account."""
    wind_down = account.wind_down
    if wind_down is not None and wind_down.until is None:
        for allocation in _work(step, account):
            allocations.kill(step, allocation.id, f"it did not save and end before its limit: {wind_down.reason}")
        return
    if wind_down is not None:
        account = _resumed(step, account)
    current = account.until(step.now)
    step.put(current)
    found = budget.reached(current, step.now)
    if found is not None:
        _wind_down(step, current, _reason(step, current, found), found.until)


def _wind_down(step: Step, account: Account, reason: str, until: datetime | None, *, more: Rate = NOTHING) -> None:
    """Winds an account down: no new work starts, and running work saves and ends. `more`: the rate that the refused work would
    add."""
    if account.wind_down is None:
        step.put(budget.wound_down(account, reason, until, step.now, more=more))
        _log(step, account, reason)
    wound_down, hard = step.need(Account, account.id), account.owner is Owner.EXPERIMENT
    _hold_jobs(step, account)
    for allocation in _work(step, account):
        step.log(allocation.task_id, allocation.id, reason, level="WARNING")
        allocations.preempt(step, allocation.id, reason, deadline=budget.deadline(wound_down) if hard else None)
    if hard:
        experiment = step.need(Experiment, ExperimentId(int(account.name)))
        if experiment.state is ExperimentState.ACTIVE:
            experiments.set_state(step, experiment, ExperimentState.PAUSED)


def _resumed(step: Step, account: Account) -> Account:
    """Ends the wind-down: the next period has begun, or the limit was raised."""
    going_on = budget.resumed(account, step.now)
    step.put(going_on)
    _log(step, account, "the budget has funds again: work resumes")
    _hold_jobs(step, account)
    return going_on


def _reason(step: Step, account: Account, found: budget.Reached) -> str:
    of_workspace = account.owner is Owner.WORKSPACE
    called = workspaces.need_workspace(step, int(account.name)).name if of_workspace else account.name
    return budget.reason(account, found, called)


def _log(step: Step, account: Account, reason: str) -> None:
    match account.owner:
        case Owner.POOL:
            pool = account.name
        case Owner.EXPERIMENT:
            pool = step.need(Job, step.need(Experiment, int(account.name)).job_id).pool
        case Owner.WORKSPACE:
            pool = ""
    step.decide("budget", pool=pool, subject=account.id, reason=reason)


def _hold_jobs(step: Step, account: Account) -> None:
    if account.owner is Owner.WORKSPACE:
        for job in step.all(Job):
            if str(job.workspace_id) == account.name and not job.ended:
                step.put(budget.with_hold(step, job))


def _work(step: Step, account: Account) -> list[Allocation]:
    """The allocations that the account pays for, or that keep its machines from ending; of an experiment also the pending ones."""
    match account.owner:
        case Owner.EXPERIMENT:
            trials = step.find(Trial, "trials_of_experiment", int(account.name))
            found = [a for trial in trials for a in step.find(Allocation, "allocations_of_task", trial.task_id)]
        case Owner.WORKSPACE:
            found = [a for a in step.all(Allocation) if _rate(a) != NOTHING and account.id in _owners(step, a)]
        case Owner.POOL:
            found = [a for a in step.all(Allocation) if a.pool == account.name and a.assigned_at is not None]
    return [allocation for allocation in found if not allocation.ended]


# ------------------------------------------------------------------------------------------------- what people ask for


def go_on(step: Step, experiment: Experiment) -> None:
    """Ends the wind-down of an experiment that is activated. Raises `FailedPrecondition` if it would reach its limit again at
    once."""
    account = step.get(Account, account_id(Owner.EXPERIMENT, experiment.id))
    if account is None or account.wind_down is None:
        return
    if budget.exhausted(account, step.now):
        raise FailedPrecondition(account.wind_down.reason)
    _resumed(step, account)


def set_max_cost(step: Step, command: SetMaxCost) -> None:
    """Sets the limit of an experiment. It includes the spending so far."""
    experiment = experiments.need(step, command.experiment)
    if experiment.state.stopping or experiment.state.gone:
        raise FailedPrecondition(f"experiment {experiment.id} is {experiment.state}: its cost is what it is")
    limit = command.max_cost
    if limit is not None:
        check_amount("max_cost", limit)
        pool = step.need(Job, experiment.job_id).pool
        budget.check_priced(step, step.pools.get(pool), pool)
    step.put(experiment.with_settings("resources", {"max_cost": limit}))
    before = step.get(Account, account_id(Owner.EXPERIMENT, experiment.id))
    if before is None:
        return
    account = replace(before.until(step.now), limits=Limits(in_all=limit))
    if limit is not None and limit <= account.in_all:
        raise InvalidInput(
            f"max_cost: {limit:g} is not more than the {account.in_all:.4f} that experiment {experiment.id} has spent; give more, "
            "or pause the experiment"
        )
    step.put(account)
    if account.wind_down is not None and not budget.exhausted(account, step.now):
        _resumed(step, account)


def set_budget(step: Step, command: SetBudget) -> None:
    """Sets the limits of a pool or a workspace. They include the spending so far in the same day and month."""
    if command.owner not in tuple(Owner):
        raise InvalidInput(f"owner: '{command.owner[:80]}' has no budget; name one of {', '.join(Owner)}")
    owner = Owner(command.owner)
    match owner:
        case Owner.POOL:
            policy = step.pools.get(PoolName(command.name))
            if policy is None:
                raise NotFound("resource pool", command.name)
            if policy.scaling is None:
                raise InvalidInput(f"budget: pool '{command.name}' starts no machines, so that nothing is paid for it")
        case Owner.WORKSPACE:
            if not (command.name.isascii() and command.name.isdigit()):
                raise NotFound("workspace", command.name[:80])
            workspaces.need_workspace(step, int(command.name[:20]))
        case Owner.EXPERIMENT:
            raise InvalidInput("budget: an experiment has a max_cost; use `det experiment set max-cost`")
    for key, amount in (("per_day", command.per_day), ("per_month", command.per_month)):
        if amount is not None:
            check_amount(key, amount)
    limits = Limits(per_day=command.per_day, per_month=command.per_month)
    account = replace(_account(step, account_id(owner, command.name)).until(step.now), limits=limits)
    step.put(account)
    found = budget.reached(account, step.now)
    if account.wind_down is not None:
        account = _resumed(step, account)
    if found is not None:
        _wind_down(step, account, _reason(step, account, found), found.until)


def check_amount(key: str, amount: float) -> None:
    """Raises `InvalidInput` for an invalid amount of money."""
    if not 0 < amount < float("inf"):
        raise InvalidInput(f"{key}: {amount:g} must be greater than 0, and finite; omit it for no limit")
