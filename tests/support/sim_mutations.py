"""Deliberate bugs in the production code, which the checkers must detect.

Each mutation replaces one function object during a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest

from resolute_master.domain.account import Rate
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.commands import RecordObservation
from resolute_master.domain.copies import replace
from resolute_master.domain.effects import Effect
from resolute_master.domain.ids import PoolName
from resolute_master.domain.instance import Instance
from resolute_master.domain.trial import Trial
from resolute_master.engine.price_watch import PriceWatch
from resolute_master.engine.reporting import Reporting
from resolute_master.lifecycle import agents, allocation_fsm, deadlines, instances, ledger, prices, spending, trials
from resolute_master.lifecycle.apply import RULES
from resolute_master.lifecycle.step import Step
from resolute_master.scheduler import snapshot
from resolute_provisioner.clouds.base import LaunchRequest
from resolute_provisioner.model import InstanceView, Observed, Offer, PoolScaling
from resolute_provisioner.planning import deadline, keep_warm, plan
from resolute_provisioner.planning.deadline import SPOT, MarketChoice
from resolute_provisioner.planning.standing import Fleet
from resolute_provisioner.reconcile import InstanceLaunched, LaunchRefused, Reconciler
from resolute_sim.fault_plan import NO_FAULTS, RELIABLE_CLOUD, Fault, FaultPlan, PriceMoves

Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """`caught_by` contains the rules that may detect it first; `fault_plan` provokes it if ordinary worlds rarely do."""

    name: str
    apply: Callable[[Patch], None]
    caught_by: tuple[str, ...]
    fault_plan: FaultPlan | None = None
    seeds: int = field(default=25)
    first: int = 0
    """The first seed, which detected the mutation in the last search."""
    deadlines: bool = False
    """It needs worlds with feasible deadlines."""


# -- mutations of the architecture -------------------------------------------------------------------------------------


def forget_used_slots(patch: Patch) -> None:
    room = snapshot.room_of
    patch.setattr(snapshot, "room_of", lambda agent, occupants: room(agent, ()))


def requeue_without_stopping(patch: Patch) -> None:
    """An agent without contact counts as lost at once, although its tasks run until their lease expires."""
    deadline = deadlines.deadline

    def at_once(entity: Any, pools: Any) -> datetime | None:
        return entity.disconnected_at if isinstance(entity, Agent) else deadline(entity, pools)

    patch.setattr(deadlines, "deadline", at_once)
    patch.setattr("resolute_master.engine.memory.deadline", at_once)


def never_terminate_idle_machines(patch: Patch) -> None:
    patch.setattr(plan, "idle_ones", lambda *arguments: [])


def ignore_starting_machines(patch: Patch) -> None:
    """Starting machines count towards the maximum only: no limit is violated, but money is wasted."""
    judge = plan.judge

    def blind(pool: PoolScaling, instances: Iterable[InstanceView], now: datetime) -> Fleet:
        fleet = judge(pool, instances, now)
        seen = [replace(each, capacity=each.capacity and each.view.joined_at is not None) for each in fleet.others]
        return replace(fleet, others=seen)

    patch.setattr(plan, "judge", blind)


def keep_agents_of_gone_machines(patch: Patch) -> None:
    def gone(step: Step, instance: Instance, command: RecordObservation) -> None:
        step.decide("gone", pool=instance.pool, subject=instance.id, reason="the cloud reports that it is gone")

    patch.setattr(instances, "_gone", gone)


# -- further mutations -------------------------------------------------------------------------------------------------


def drop_an_outbox_row(patch: Patch) -> None:
    emit = Step.emit
    count = 0

    def forgetful(step: Step, effects: Iterable[Effect]) -> None:
        nonlocal count
        for effect in effects:
            count += 1
            if count % 5:
                emit(step, [effect])

    patch.setattr(Step, "emit", forgetful)


def believe_any_incarnation(patch: Patch) -> None:
    patch.setattr(agents, "_fence", lambda step, id_, incarnation: agents.need(step, id_))


def launch_twice_after_a_lost_reply(patch: Patch) -> None:
    ask = Reconciler._ask

    async def ask_again(self: Reconciler, request: LaunchRequest) -> InstanceLaunched | LaunchRefused:
        settings = self._settings
        self._settings = replace(settings, launch_attempts=1)
        answer = await ask(self, request)
        self._settings = settings
        if isinstance(answer, LaunchRefused) and answer.kind == "transient":
            again = replace(request, token=request.token + "-again", instance_id=request.instance_id + "-again")
            second = await ask(self, again)
            return replace(second, instance_id=request.instance_id)
        return answer

    patch.setattr(Reconciler, "_ask", ask_again)


def resume_one_step_off(patch: Patch) -> None:
    ask = trials.ask

    def ask_off_by_one(step: Step, trial: Trial) -> None:
        ask(step, trial)
        asked = trials.open_allocation(step, step.need(Trial, trial.id))
        if asked is not None and asked.assigned_at is None and asked.resumed_steps:
            step.put(replace(asked, resumed_steps=asked.resumed_steps + 1))

    patch.setattr(trials, "ask", ask_off_by_one)


def leak_a_gang_member(patch: Patch) -> None:
    kills = allocation_fsm._kills
    patch.setattr(allocation_fsm, "_kills", lambda allocation: kills(allocation)[:1])


def pay_from_when_it_is_heard_of(patch: Patch) -> None:
    """The cost of a machine before the cloud's confirmation is lost."""
    patch.setattr(spending, "_billed", lambda instance, since, now: 0.0)


def count_half_of_what_work_costs(patch: Patch) -> None:
    """The accounts of experiments and workspaces are consistent, but too low."""
    rate = spending._rate

    def half(allocation: Allocation) -> Rate:
        whole = rate(allocation)
        return Rate(per_hour=whole.per_hour / 2, moving_per_hour=whole.moving_per_hour / 2)

    patch.setattr(spending, "_rate", half)


def forget_machines_that_were_never_seen_running(patch: Patch) -> None:
    """Row and account agree that a machine between two lists has cost nothing."""
    observed = instances.observed

    def forgetful(step: Step, command: RecordObservation) -> None:
        row = step.get(Instance, command.instance)
        if row is not None and row.paid_from is None and command.observed is Observed.GONE:
            command = replace(command, paid_from=None, paid_until=None)
        observed(step, command)

    patch.setitem(RULES, RecordObservation, forgetful)


def leave_idle_time_out_of_the_books(patch: Patch) -> None:
    spans = ledger.Books.spans

    def busy_ones(self: ledger.Books, instance: Instance, now: datetime) -> Iterator[ledger.Span]:
        return (span for span in spans(self, instance, now) if not span.booking.idle_s)

    patch.setattr(ledger.Books, "spans", busy_ones)


def keep_machines_warm_for_longer_than_they_may_cost(patch: Patch) -> None:
    idle_period_s = keep_warm.IdlePeriods.of

    def longer(self: keep_warm.IdlePeriods, offer_id: str, price: float | None) -> float:
        return idle_period_s(self, offer_id, price) * (1 if self.pool.max_idle_cost is None else 20)

    patch.setattr(keep_warm.IdlePeriods, "of", longer)


def book_machines_at_the_price_of_their_launch(patch: Patch) -> None:
    patch.setattr(prices, "follow_the_market", lambda step, pool, offers: None)


def let_work_pay_the_price_of_its_start(patch: Patch) -> None:
    """Machines and pools follow the market; experiments and workspaces do not."""
    follow = prices.follow_the_market

    def machines_alone(step: Step, pool: PoolName, offers: Iterable[Offer]) -> None:
        before = step.all(Allocation)
        follow(step, pool, offers)
        for allocation in before:
            step.put(allocation)

    patch.setattr(prices, "follow_the_market", machines_alone)


def ask_for_prices_once(patch: Patch) -> None:
    patch.setattr(PriceWatch, "wait_s", lambda self: 1e9)


def accept_reports_of_older_runs(patch: Patch) -> None:
    patch.setattr(Reporting, "check_run", lambda self, report: None)


def wait_for_spot_for_ever(patch: Patch) -> None:
    """Regardless of the deadline."""
    patch.setattr(deadline, "while_waiting", lambda work, now: MarketChoice(markets=SPOT, reason="spot alone"))


def keep_one_machine_too_many(patch: Patch) -> None:
    """Applies to pools with `min_instances`."""
    idle_ones = plan.idle_ones

    def one_less(pool: PoolScaling, spare: Any, warm: int, *rest: Any) -> Any:
        return idle_ones(pool, spare, warm - 1 if pool.min_instances else warm, *rest)

    patch.setattr(plan, "idle_ones", one_less)


CRASHES = replace(
    NO_FAULTS,
    faults_s=1800.0,
    gaps={Fault.CRASH_AGENT: 15.0, Fault.USER: 60.0},
    commit_s=(0.5, 4.0),
)
"""Agents reconnect while the messages of their last process still wait for a slow store."""

LOST_REPLIES = replace(NO_FAULTS, faults_s=900.0, cloud=replace(RELIABLE_CLOUD, lost_reply_rate=0.5))

BRIEF_MACHINES = replace(
    NO_FAULTS, faults_s=900.0, cloud=replace(RELIABLE_CLOUD, losses_per_hour=400.0, noticed_share=0.0)
)
"""Many machines end before a list contains them."""

LATE_WORDS = replace(NO_FAULTS, faults_s=3600.0, gaps={Fault.USER: 60.0, Fault.INTERRUPT: 400.0}, late_repeat_rate=0.5)

MOVING_MARKET = replace(NO_FAULTS, faults_s=1800.0, prices=PriceMoves(mean_gap_s=60.0, asked_every_s=20.0))

NO_SPOT = replace(
    NO_FAULTS,
    faults_s=3600.0,
    cloud=replace(
        RELIABLE_CLOUD,
        capacity={
            f"{pool}-{n}-of-{size}-spot": 0 for pool in ("default", "other") for n in range(3) for size in (1, 2, 4)
        },
    ),
)
"""Spot has no capacity for a while; on-demand requests are never refused."""

MUTATIONS = (
    Mutation(
        name="forget to subtract used slots",
        apply=forget_used_slots,
        caught_by=("safety: a slot is used once", "reference: the snapshot equals its source"),
    ),
    Mutation(
        name="requeue a lost allocation without stopping its container",
        first=20,
        apply=requeue_without_stopping,
        caught_by=("safety: one run of a trial at a time",),
    ),
    Mutation(
        name="never terminate idle machines",
        apply=never_terminate_idle_machines,
        caught_by=(
            "liveness: everything settles",
            "economy: machines are given back",
        ),
    ),
    Mutation(
        name="ignore machines that are still starting",
        first=2,
        apply=ignore_starting_machines,
        caught_by=("economy: launches are needed",),
    ),
    Mutation(
        name="keep an agent after its machine was terminated",
        apply=keep_agents_of_gone_machines,
        caught_by=("reference: agents have instances",),
    ),
    Mutation(name="drop an outbox row", apply=drop_an_outbox_row, caught_by=("reference: orders are in the outbox",)),
    Mutation(
        name="accept a stale incarnation",
        apply=believe_any_incarnation,
        caught_by=("safety: reports of outdated agents are refused",),
        fault_plan=CRASHES,
    ),
    Mutation(
        name="launch twice after a lost reply",
        apply=launch_twice_after_a_lost_reply,
        caught_by=("economy: every machine is recorded",),
        fault_plan=LOST_REPLIES,
    ),
    Mutation(
        name="resume one step off",
        apply=resume_one_step_off,
        caught_by=("resume: runs resume from the latest checkpoint",),
    ),
    Mutation(
        name="leak a member of a gang",
        apply=leak_a_gang_member,
        caught_by=("reference: orders are in the outbox",),
    ),
    Mutation(
        name="count what a machine costs from when it is heard of",
        apply=pay_from_when_it_is_heard_of,
        caught_by=("economy: accounts are booked",),
    ),
    Mutation(
        name="count half of what work costs",
        first=12,
        apply=count_half_of_what_work_costs,
        caught_by=("economy: limits are kept",),
        fault_plan=NO_FAULTS,
        seeds=60,
    ),
    Mutation(
        name="forget machines that were never seen running",
        apply=forget_machines_that_were_never_seen_running,
        caught_by=("economy: accounts equal the bill",),
        fault_plan=BRIEF_MACHINES,
    ),
    Mutation(
        name="keep machines warm for longer than they may cost",
        first=12,
        apply=keep_machines_warm_for_longer_than_they_may_cost,
        caught_by=("economy: machines are given back",),
        fault_plan=NO_FAULTS,
        seeds=60,
    ),
    Mutation(
        name="leave idle time out of the books",
        apply=leave_idle_time_out_of_the_books,
        caught_by=("economy: the books equal the bill",),
    ),
    Mutation(
        name="book machines at the price of their launch",
        first=2,
        apply=book_machines_at_the_price_of_their_launch,
        caught_by=("economy: accounts equal the bill",),
        fault_plan=MOVING_MARKET,
    ),
    Mutation(
        name="let work pay the price of its start",
        first=3,
        apply=let_work_pay_the_price_of_its_start,
        caught_by=("reference: work pays what its machines cost",),
        fault_plan=MOVING_MARKET,
    ),
    Mutation(
        name="ask for prices once",
        apply=ask_for_prices_once,
        caught_by=("economy: the market is followed",),
        fault_plan=MOVING_MARKET,
    ),
    Mutation(
        name="wait for spot for ever",
        first=5,
        apply=wait_for_spot_for_ever,
        caught_by=("economy: deadlines are kept",),
        fault_plan=NO_SPOT,
        seeds=60,
        deadlines=True,
    ),
    Mutation(
        name="keep one machine more than the pool is to keep",
        first=8,
        apply=keep_one_machine_too_many,
        caught_by=("economy: machines are given back", "liveness: everything settles"),
        fault_plan=NO_FAULTS,
        seeds=60,
    ),
    Mutation(
        name="accept reports of older runs",
        apply=accept_reports_of_older_runs,
        caught_by=("safety: reports of older runs are refused",),
        fault_plan=LATE_WORDS,
    ),
)
