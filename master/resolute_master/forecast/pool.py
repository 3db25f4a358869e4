"""The state of one pool under virtual time: pending and running work, its machines, and what was learnt of its offers.

A driver reports events to it. A decision reads it and is applied here, as the engine would apply it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from resolute.wire.agent_link import Device
from resolute.wire.states import NoticeKind, SlotKind
from resolute_master.decision.budgets import rate_of
from resolute_master.decision.plan import GiveUp, PoolPlan, Unaffordable
from resolute_master.decision.view import (
    NO_BUDGETS,
    Budgets,
    PoolBudget,
    PoolView,
    Progress,
    ReadWhenAsked,
    SlotPrice,
)
from resolute_master.domain.account import NOTHING, Account, Limits, Owner, Rate, account_id
from resolute_master.domain.agent import Agent, MachineNotice, Slot
from resolute_master.domain.allocation import Allocation, PreemptRequest
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import AgentId, AllocationId, InstanceId, JobId
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy
from resolute_master.domain.worth import Worth
from resolute_master.forecast.accounts import Accounts
from resolute_master.forecast.usage_book import UsageBook
from resolute_master.lifecycle.spending import begun, owners_of
from resolute_master.scheduler.carried_out import placed
from resolute_master.scheduler.plan import Placement, Preemption, Reservation
from resolute_master.scheduler.rooms import Occupant
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_provisioner import launch_errors, risk
from resolute_provisioner.model import (
    InstanceNotice,
    InstanceView,
    Intent,
    Launch,
    Observed,
    Offer,
    OfferBelief,
    PoolLaunch,
    RefusalKind,
    Resident,
    Termination,
)
from resolute_provisioner.offers import priced
from resolute_provisioner.planning.markets import MOVE_PREFIX, REPLACEMENT_PREFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The changes of one decision; none if all fields are empty."""

    place: tuple[Placement, ...] = ()
    preempt: tuple[Preemption, ...] = ()
    reserve: tuple[Reservation, ...] = ()
    launches: tuple[Launch, ...] = ()
    terminations: tuple[Termination, ...] = ()
    unaffordable: tuple[Unaffordable, ...] = ()
    give_ups: tuple[GiveUp, ...] = ()
    cut: bool = False
    """Whether more allocations can be placed."""
    revisit_at: datetime | None = None

    @staticmethod
    def of(plan: PoolPlan) -> Decision:
        return Decision(
            place=plan.starts,
            preempt=plan.preempt,
            reserve=plan.reserve,
            launches=plan.launches,
            terminations=plan.endings,
            unaffordable=plan.unaffordable,
            give_ups=plan.give_ups,
            cut=plan.schedule.cut,
            revisit_at=plan.revisit_at,
        )

    def __bool__(self) -> bool:
        return bool(self.place or self.preempt or self.reserve or self.launches or self.terminations or self.give_ups)

    @property
    def unfinished(self) -> bool:
        """Whether another decision follows at once (`PoolPlan.unfinished`)."""
        return bool(self.preempt or self.terminations or self.unaffordable or self.give_ups or self.cut)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Consequences of limits for allocations: those that are preempted, those that end before they started, and those that are
    killed."""

    asked: tuple[AllocationId, ...] = ()
    stopped: tuple[AllocationId, ...] = ()
    killed: tuple[AllocationId, ...] = ()


def _no_progress(id_: AllocationId) -> Progress | None:
    return None


@dataclass(slots=True, kw_only=True)
class VirtualPool:
    """`machines` are those that are not gone, by id; each has an agent of the same name from its join on."""

    policy: PoolPolicy
    now: datetime
    snapshot: PoolSnapshot
    offers: Mapping[str, Offer]
    machines: dict[InstanceId, InstanceView] = field(default_factory=dict)
    beliefs: dict[str, OfferBelief] = field(default_factory=dict)
    queued: int = 0
    """Number of times that an allocation entered the queue."""
    accounts: Accounts | None = None
    """Accounts, if the pool or one of its jobs has a limit."""
    usage: UsageBook | None = None
    """Past usage, if the pool has a usage half-life."""
    progress_of: Callable[[AllocationId], Progress | None] = _no_progress
    """Progress of an allocation with a deadline."""
    deadlines: set[AllocationId] = field(default_factory=set)
    """Allocations with a deadline."""
    stopped: set[JobId] = field(default_factory=set)
    """Jobs that have reached their own limit: their interrupted work does not continue."""
    _held_jobs: dict[JobId, Job] = field(default_factory=dict)
    """Jobs of a workspace that has reached its limit, before it did."""
    _launched: int = 0

    @staticmethod
    def empty(policy: PoolPolicy, now: datetime) -> VirtualPool:
        offers = policy.scaling.offers if policy.scaling is not None else ()
        half_life_s = policy.usage_half_life_s
        return VirtualPool(
            policy=policy,
            now=now,
            snapshot=PoolSnapshot.build(policy, now=now),
            offers={offer.offer_id: offer for offer in offers},
            accounts=_account_of_pool(policy, now),
            usage=None if half_life_s is None else UsageBook(pool=policy.name, half_life_s=half_life_s),
        )

    def copy(self) -> VirtualPool:
        """A copy in the same state. Changes of one do not affect the other."""
        return replace(
            self,
            machines=dict(self.machines),
            beliefs=dict(self.beliefs),
            accounts=None if self.accounts is None else self.accounts.copy(),
            usage=None if self.usage is None else self.usage.copy(),
            deadlines=set(self.deadlines),
            stopped=set(self.stopped),
            _held_jobs=dict(self._held_jobs),
        )

    # -- what a decision looks at ------------------------------------------------------------------------------

    def view(self, *, learns: bool = True) -> PoolView:
        """The view of the pool. Without `learns`, refusals, boots and interruptions have no effect."""
        snapshot = self.snapshot.at(self.now)
        if self.policy.scaling is None:
            return PoolView(snapshot=snapshot)
        return PoolView(
            snapshot=snapshot,
            machines=tuple(self.machines.values()),
            beliefs=self.beliefs if learns else {},
            budgets=NO_BUDGETS if self.accounts is None else self._budgets(self.accounts),
            progress=ReadWhenAsked(self.deadlines, self.progress_of),
        )

    def _budgets(self, accounts: Accounts) -> Budgets:
        def payers(id_: AllocationId) -> tuple[Account, ...]:
            return accounts.limited(self._payers(self.snapshot.allocations[id_]))

        def price(id_: AgentId) -> SlotPrice | None:
            view = self.machines.get(InstanceId(id_))
            if view is None:
                return None
            per_hour, slots = self._price(view.offer_id), max(1, self.offers[view.offer_id].slots)
            moves = self.offers[view.offer_id].price_moves
            return SlotPrice(per_hour=None if per_hour is None else per_hour / slots, moves=moves)

        own = accounts.of_pool
        pool = None
        if own is not None and own.limits and own.wind_down is None:
            wanted = (view for view in self.machines.values() if view.intent is Intent.RUN)
            pool = PoolBudget(account=own, machines=sum((self._rate(view.offer_id) for view in wanted), NOTHING))
        return Budgets(
            pool=pool,
            payers=ReadWhenAsked(self.snapshot.allocations, payers),
            prices=ReadWhenAsked(self.snapshot.agents, price),
        )

    def _payers(self, allocation: Allocation) -> tuple[str, ...]:
        job = self.snapshot.jobs.get(allocation.job_id)
        return () if job is None else owners_of(job)

    def _price(self, offer_id: str) -> float | None:
        return priced(self.offers[offer_id], self.beliefs.get(offer_id)).per_hour

    def _rate(self, offer_id: str) -> Rate:
        return rate_of(self._price(offer_id), moves=self.offers[offer_id].price_moves)

    # -- what happens to work ----------------------------------------------------------------------------------

    def submitted(self, job: Job, allocation: Allocation, *, max_cost: float | None = None) -> None:
        self.snapshot = self.snapshot.with_job(job)
        if max_cost is not None and job.experiment_id is not None:
            self.accounts = self.accounts or Accounts(pool=self.policy.name)
            account = Account(
                id=account_id(Owner.EXPERIMENT, job.experiment_id), at=self.now, limits=Limits(in_all=max_cost)
            )
            self.accounts.known[account.id] = account
        self._queue(allocation)

    def requeued(self, allocation: Allocation, last: Allocation) -> None:
        """Another run of work that was cut. The machines that come for its last run, or in the place of that run's machines, are
        for this one (`lifecycle.successors`)."""
        names = {MOVE_PREFIX + last.id, *(REPLACEMENT_PREFIX + container.agent for container in last.containers)}
        for id_, view in self.machines.items():
            if not names.isdisjoint(view.reserved_for) and allocation.id not in view.reserved_for:
                self.machines[id_] = replace(view, reserved_for=(*view.reserved_for, allocation.id))
        self._queue(allocation)

    def _queue(self, allocation: Allocation) -> None:
        self.queued += 1
        self.snapshot = self.snapshot.with_allocation(allocation)
        if allocation.deadline is not None:
            self.deadlines.add(allocation.id)

    def ranked(self, id_: AllocationId, worth: Worth) -> None:
        """Sets the worth of an allocation to its search."""
        allocation = replace(self.snapshot.allocations[id_], worth=worth)
        self.snapshot = self.snapshot.with_allocation(allocation)
        self._refresh_occupants({container.agent for container in allocation.containers})

    @property
    def moves_work(self) -> bool:
        """Whether it may move work to save money."""
        scaling = self.policy.scaling
        return scaling is not None and (
            scaling.consolidation is not None or scaling.spot_fallback.return_after_s is not None
        )

    def saved(self, id_: AllocationId) -> None:
        """Records a committed checkpoint."""
        allocation = replace(self.snapshot.allocations[id_], saved_at=self.now)
        self.snapshot = self.snapshot.with_allocation(allocation)
        self._refresh_occupants({container.agent for container in allocation.containers})

    def ended(self, id_: AllocationId) -> None:
        """Records the end of a run, whose slots become free."""
        allocation = self.snapshot.allocations[id_]
        self.snapshot = self.snapshot.without_allocation(id_)
        self.deadlines.discard(id_)
        self._book_slots(allocation, -1)
        self._refresh_occupants({container.agent for container in allocation.containers})

    def job_ended(self, job: Job) -> None:
        self.snapshot = self.snapshot.without_job(job.id)
        self._held_jobs.pop(job.id, None)
        if self.accounts is not None and job.experiment_id is not None:
            self.accounts.known.pop(account_id(Owner.EXPERIMENT, job.experiment_id), None)

    def left(self, id_: AllocationId) -> None:
        """Records that a preempted allocation has saved and is about to end."""
        request = self.snapshot.allocations[id_].preempt
        if self.accounts is not None and request is not None:
            self.accounts.saved(id_, (self.now - request.requested_at).total_seconds())

    # -- what happens to machines ------------------------------------------------------------------------------

    def joined(self, id_: InstanceId) -> None:
        view = self.machines[id_]
        took_s = (self.now - view.requested_at).total_seconds()
        self._learn(view.offer_id, lambda belief: risk.joined(belief, join_time_s=took_s, now=self.now))
        self.machines[id_] = replace(view, joined_at=self.now, agent_connected=True, idle_since=self.now)
        self.snapshot = self.snapshot.with_agent(virtual_agent(self.policy, id_, view.slots, self.now))

    def launched(self, id_: InstanceId) -> None:
        """Records a launch that the cloud has confirmed; the machine is paid for from now on."""
        view = self.machines[id_]
        self._learn(view.offer_id, lambda belief: risk.launched(belief, now=self.now))
        if self.policy.scaling is not None:
            self._counted(view.offer_id, launch_errors.after_success(self.policy.scaling, self.now))
        self.machines[id_] = replace(view, observed=Observed.RUNNING, launched_at=self.now)
        if self.accounts is not None:
            self.accounts.machine_costs(id_, self._rate(view.offer_id))

    def refused(self, view: InstanceView, kind: RefusalKind, message: str) -> None:
        """Records a refused launch. `view` is the machine as requested. The answer to a withdrawn request counts as well."""
        self.machines.pop(InstanceId(view.instance_id), None)
        self._learn(
            view.offer_id,
            lambda belief: risk.refused(
                belief, kind, message, asked_at=view.requested_at, now=self.now, token=view.token
            ),
        )
        if self.policy.scaling is not None:
            beliefs, asked_at = self.beliefs, view.requested_at
            failure = launch_errors.after_failure(
                self.policy.scaling, beliefs, view.offer_id, asked_at=asked_at, now=self.now
            )
            self._counted(view.offer_id, failure)

    def noticed(self, id_: InstanceId, deadline: datetime) -> list[AllocationId]:
        """Records a notice of the machine; returns its allocations, which are preempted."""
        view, kind = self.machines[id_], NoticeKind.INTERRUPTION
        self.machines[id_] = replace(view, notice=InstanceNotice(kind=kind, deadline=deadline))
        agent = self.snapshot.agents.get(AgentId(id_))
        if agent is not None:
            notice = MachineNotice(kind=kind, deadline=deadline, reason="", received_at=self.now)
            self.snapshot = self.snapshot.with_agent(replace(agent, notice=notice))
        return self.ask_to_leave(AgentId(id_), "its machine is taken away")

    def gone(self, id_: InstanceId, *, taken: bool) -> list[AllocationId]:
        """Records the end of a machine; returns its allocations, which the driver ends. `taken`: the pool did not order the end."""
        view = self.machines.pop(id_)
        if self.accounts is not None:
            self.accounts.machine_costs(id_, NOTHING)
        if view.joined_at is not None:
            exposure_s = (self.now - view.joined_at).total_seconds()
            interrupted = taken or (view.notice is not None and view.notice.kind is NoticeKind.INTERRUPTION)
            self._learn(
                view.offer_id,
                lambda belief: risk.ended(belief, exposure_s=exposure_s, interrupted=interrupted, now=self.now),
            )
        elif taken:
            self._learn(view.offer_id, lambda belief: risk.never_joined(belief, now=self.now))
        cut = [allocation for allocation, _ in self.snapshot.occupancy.get(AgentId(id_)) or ()]
        self.snapshot = self.snapshot.without_agent(AgentId(id_))
        return cut

    def repriced(self, offer_id: str, price_per_hour: float) -> None:
        self._learn(offer_id, lambda belief: risk.repriced(belief, price_per_hour, source="the trace", as_of=self.now))
        if self.accounts is None or not self.offers[offer_id].price_moves:
            return
        for id_ in [id_ for id_, view in self.machines.items() if view.offer_id == offer_id]:
            if self.machines[id_].launched_at is not None:
                self.accounts.machine_costs(id_, self._rate(offer_id))
            for occupant, _ in self.snapshot.occupancy.get(AgentId(id_)) or ():
                self._book_slots(self.snapshot.allocations[occupant], 0)

    # -- limits ------------------------------------------------------------------------------------------------

    def due(self) -> datetime | None:
        """When limits or usage must be checked again; None for never."""
        moments = [None if each is None else each.due() for each in (self.accounts, self.usage)]
        return min((at for at in moments if at is not None), default=None)

    def book(self) -> None:
        """Books the changes of spending by a decision and the events before it."""
        if self.accounts is not None:
            self.accounts.book(self.now)

    def fall_due(self) -> Ends:
        """Apply due limits and measurements, before a decision."""
        if self.usage is not None and (at := self.usage.due()) is not None and at <= self.now:
            for row, kept in self.usage.measure(self.now):
                self.snapshot = self.snapshot.with_usage(row) if kept else self.snapshot.without_usage(row)
        if self.accounts is None:
            return Ends()
        wound_down, overdue = self.accounts.fall_due(self.now)
        self._hold()
        ends = [self._wound_down(account) for account in wound_down]
        killed = [a.id for account in overdue for a in self._work_of(account) if a.assigned_at is not None]
        return Ends(
            asked=tuple(id_ for each in ends for id_ in each.asked),
            stopped=tuple(id_ for each in ends for id_ in each.stopped),
            killed=tuple(killed),
        )

    def refuse(self, refused: Unaffordable) -> Ends:
        """Winds down the account that a refused start would bring to its limit."""
        assert self.accounts is not None
        account = self.accounts.refuse(refused.account, refused.more, refused.reached, refused.unpriced, self.now)
        self._hold()
        return self._wound_down(account)

    def _wound_down(self, account: Account) -> Ends:
        assert account.wind_down is not None
        work = self._work_of(account)
        asked = [each for each in work if each.assigned_at is not None and not each.leaving]
        for each in asked:
            self._leave(each.id, account.wind_down.reason)
        stopped = [each for each in work if each.assigned_at is None] if account.owner is Owner.EXPERIMENT else []
        if account.owner is Owner.EXPERIMENT:
            self.stopped.update(each.job_id for each in work)
        return Ends(asked=tuple(each.id for each in asked), stopped=tuple(each.id for each in stopped))

    def _work_of(self, account: Account) -> list[Allocation]:
        everything = self.snapshot.allocations.values()
        if account.owner is Owner.POOL:
            return list(everything)
        return [each for each in everything if account.id in self._payers(each)]

    def _hold(self) -> None:
        """Holds work that may not start: the whole pool, or the jobs of a workspace."""
        assert self.accounts is not None
        self.snapshot = self.snapshot.with_hold(self.accounts.hold)
        closed = {
            account.name
            for account in self.accounts.known.values()
            if account.owner is Owner.WORKSPACE and account.wind_down is not None
        }
        for id_, before in list(self._held_jobs.items()):
            if str(before.workspace_id) not in closed:
                del self._held_jobs[id_]
                self.snapshot = self.snapshot.with_job(before)
        for job in list(self.snapshot.jobs.values()) if closed else ():
            if str(job.workspace_id) in closed and job.id not in self._held_jobs:
                self._held_jobs[job.id] = job
                self.snapshot = self.snapshot.with_job(replace(job, max_slots=0))

    # -- what was decided --------------------------------------------------------------------------------------

    def apply_schedule(
        self, place: Iterable[Placement], preempt: Iterable[Preemption], reserve: Iterable[Reservation]
    ) -> None:
        for preemption in preempt:
            self._leave(preemption.allocation, preemption.reason, for_another=True)
        for placement in place:
            self._assign(placement)
        for reservation in reserve:
            waits = self.snapshot.allocations[reservation.allocation]
            self.snapshot = self.snapshot.with_allocation(replace(waits, reserved_agents=reservation.agents))

    def apply_launches(self, launches: Sequence[Launch]) -> list[InstanceId]:
        """Adds requested machines, in the order of the launches; returns their ids."""
        asked: list[InstanceId] = []
        for launch in launches:
            self._launched += 1
            id_ = InstanceId(f"m{self._launched:06d}")
            self.machines[id_] = InstanceView(
                instance_id=id_,
                token=id_,
                offer_id=launch.offer_id,
                slots=self.offers[launch.offer_id].slots,
                intent=Intent.RUN,
                observed=Observed.PENDING,
                requested_at=self.now,
                reserved_for=launch.gang_tokens,
            )
            asked.append(id_)
        return asked

    def drain(self, end: Termination) -> list[AllocationId]:
        """Drain the machine; returns its allocations, which are preempted."""
        id_, reason = InstanceId(end.instance_id), end.reason
        view = self.machines[id_]
        if view.draining_since is not None:
            return []
        self._learn(view.offer_id, lambda belief: risk.ordered(belief, end, now=self.now))
        self.machines[id_] = replace(view, draining_since=self.now, disabled=True)
        agent = self.snapshot.agents[AgentId(id_)]
        self.snapshot = self.snapshot.with_agent(replace(agent, draining=True))
        return self.ask_to_leave(agent.id, reason)

    def ordered_to_end(self, end: Termination) -> None:
        """Updates the facts about the offer after an order to end; the end itself is `gone`."""
        view = self.machines[InstanceId(end.instance_id)]
        self._learn(view.offer_id, lambda belief: risk.ordered(belief, end, now=self.now, idle_since=view.idle_since))

    def ask_to_leave(self, agent: AgentId, reason: str) -> list[AllocationId]:
        """Preempts the allocations on the agent; returns those that were not preempted before."""
        here = [id_ for id_, _ in self.snapshot.occupancy.get(agent) or ()]
        asked = [id_ for id_ in here if not self.snapshot.allocations[id_].leaving]
        for id_ in asked:
            self._leave(id_, reason)
        return asked

    # -- within ------------------------------------------------------------------------------------------------

    def _leave(self, id_: AllocationId, reason: str, *, for_another: bool = False) -> None:
        allocation = self.snapshot.allocations[id_]
        request = PreemptRequest(reason=reason, requested_at=self.now, deadline=self.now, for_another=for_another)
        self.snapshot = self.snapshot.with_allocation(replace(allocation, preempt=request))
        self._refresh_occupants([container.agent for container in allocation.containers])

    def _assign(self, placement: Placement) -> None:
        waits = self.snapshot.allocations[placement.allocation]
        runs = placed(waits, placement, self.now)
        self.snapshot = self.snapshot.with_allocation(runs)
        self._book_slots(runs, 1)
        self._refresh_occupants(placement.agents)

    def _book_slots(self, allocation: Allocation, sign: int) -> None:
        """Books that an allocation got its slots (1), lost them (-1), or that their price has changed (0)."""
        slots = [(container.agent, len(container.slots)) for container in allocation.containers]
        job = self.snapshot.jobs.get(allocation.job_id)
        if self.usage is not None and job is not None and slots and sign:
            self.usage.holds(job, sign * sum(count for _, count in slots), self.now)
        if self.accounts is None or not slots:
            return
        per_hour, moves = 0.0, False
        for agent, count in slots if sign >= 0 else ():
            view = self.machines.get(InstanceId(agent))
            if view is not None:
                offer = self.offers[view.offer_id]
                per_hour += (self._price(offer.offer_id) or 0.0) / max(1, offer.slots) * count
                moves = moves or offer.price_moves
        rate = rate_of(per_hour, moves=moves)
        self.accounts.slots_cost(allocation.id, rate, self._payers(allocation))

    def _refresh_occupants(self, agents: Iterable[AgentId]) -> None:
        for agent in agents:
            view = self.machines.get(InstanceId(agent))
            if view is None:
                continue
            here = self.snapshot.occupancy.get(agent) or ()
            busy = bool(here)
            if busy and view.idle_since is not None and view.idle_since < self.now:
                self._learn_use(view.offer_id, view.idle_since)
            in_use = [index for _, occupant in here for index in occupant.slots]
            known = self.snapshot.agents.get(agent)
            usable = known.usable_slots if known is not None else frozenset[int]()
            self.machines[InstanceId(agent)] = replace(
                view,
                slots_in_use=len(in_use),
                closed_slots_in_use=sum(index not in usable for index in in_use),
                aux_in_use=sum(occupant.aux for _, occupant in here),
                occupants=tuple(id_ for id_, _ in here),
                residents=tuple(self._resident(id_, occupant) for id_, occupant in here if not occupant.leaving),
                idle_since=None if busy else (view.idle_since or self.now),
            )

    def _resident(self, id_: AllocationId, occupant: Occupant) -> Resident:
        allocation = self.snapshot.allocations[id_]
        return Resident(
            token=id_,
            slots=len(occupant.slots),
            since=allocation.assigned_at or self.now,
            movable=allocation.movable and len(allocation.containers) == 1,
            likelihood=allocation.worth.likelihood,
        )

    def _learn_use(self, offer_id: str, idle_since: datetime) -> None:
        self._learn(offer_id, lambda belief: risk.used_again(belief, idle_since, now=self.now))

    def _learn(self, offer_id: str, update: Callable[[OfferBelief], OfferBelief]) -> None:
        belief = self.beliefs.get(offer_id) or OfferBelief(offer_id=offer_id)
        if (learnt := update(belief)) != belief:
            self.beliefs[offer_id] = learnt

    def _counted(self, offer_id: str, launch: PoolLaunch | None) -> None:
        """Records the outcome of a launch for the whole pool."""
        if launch is not None:
            self._learn(offer_id, lambda belief: replace(belief, pool_launch=launch))


def _account_of_pool(policy: PoolPolicy, now: datetime) -> Accounts | None:
    own = begun(policy, now)
    return None if own is None else Accounts(pool=policy.name, known={own.id: own})


def virtual_agent(policy: PoolPolicy, id_: InstanceId, slots: int, now: datetime) -> Agent:
    """The agent of a machine that joins."""
    return Agent(
        id=AgentId(id_),
        pool=policy.name,
        slots=_devices(slots),
        incarnation="1",
        address="",
        version="",
        registered_at=now,
        connected_at=now,
        instance_id=id_,
    )


_DEVICES: dict[int, tuple[Slot, ...]] = {}


def _devices(count: int) -> tuple[Slot, ...]:
    """Equal devices are one value, so that snapshots of many machines stay small."""
    if count not in _DEVICES:
        _DEVICES[count] = tuple(
            Slot(device=Device(index=index, kind=SlotKind.CUDA, brand="", uuid="")) for index in range(count)
        )
    return _DEVICES[count]
