"""What a search says of the worth of its trials, and what scheduler and planner make of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.pool import SchedulerKind
from resolute_master.domain.worth import Worth
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_master.searcher.events import ExitReason
from resolute_master.searcher.halving import HalvingSearch
from resolute_provisioner.model import Cause, InstanceView, Intent, Observed, Resident
from resolute_provisioner.planning.plan import plan_scale
from support.effort import examples
from support.pools import NOW, a_job, a_policy, an_agent, elastic, on, waiting
from support.searches import SearchRun

BASE = {
    "name": "async_halving",
    "metric": "loss",
    "smaller_is_better": True,
    "num_rungs": 3,
    "divisor": 2,
    "max_trials": 16,
    "max_concurrent_trials": 6,
}
FORMS: dict[str, dict[str, Any]] = {
    "time": {**BASE, "max_time": 4, "time_metric": "batches"},
    "stop": {**BASE, "max_length": 4, "stop_once": True},
    "promote": {**BASE, "max_length": 4},
    "brackets": {**BASE, "name": "adaptive_asha", "mode": "conservative", "max_rungs": 3, "max_length": 4},
}
TURNS = st.lists(st.tuples(st.integers(0, 40), st.sampled_from([0.1, 0.2, 0.3, 0.4]), st.integers(0, 9)), max_size=80)
WORTHS = st.builds(
    Worth,
    likelihood=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    rung=st.integers(0, 3),
    score=st.sampled_from([0.1, 0.2, 0.3]),
)


def play(run: SearchRun, turns: list[tuple[int, float, int]]) -> Any:
    """One event after the other; after each the search is given out."""
    times: dict[str, int] = {}
    for turn, metric, how in turns:
        live = [each for each in run.open if each not in run.stopped and not run.row(each).idle]
        if not live:
            return
        trial = live[turn % len(live)]
        if how < 2:
            run.end(trial, ExitReason.INVALID_HPARAMS if how else ExitReason.ERRORED)
        elif run.row(trial).length is not None:
            run.complete(trial, metric)
        else:
            times[trial] = times.get(trial, 0) + 1
            run.validate(trial, metric, times[trial])
        yield run


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=examples(60))
@given(turns=TURNS)
def test_worth_is_that_of_the_places_as_they_are_now(form: str, turns: list[tuple[int, float, int]]) -> None:
    """An event changes few rows, and yet all are as a look at every result says: also those of trials that have said nothing."""
    for run in play(SearchRun(FORMS[form], reload=False), turns):
        method = run.method
        assert isinstance(method, HalvingSearch)
        for trial in run.open:
            row = run.row(trial)
            if row.stopped or row.idle:
                continue
            before = sorted(
                (standing.score, standing.order)
                for other in run.records.rows.values()
                for standing in other.standings
                if standing.board == f"{row.own['bracket']}/{row.own['rung'] - 1}"
            )
            rungs = method.stage(row, run.records).rungs or 1
            if row.own["rung"] == 0:
                assert row.worth.likelihood == (0.5 if rungs > 1 else 1.0)
                continue
            mine = row.standings[-1]
            place, kept = before.index((mine.score, mine.order)), max(len(before) // 2, 1)
            sure = row.own["rung"] == rungs - 1 or place < max(kept // 2, 1)
            assert row.worth.likelihood == (0.0 if place >= kept else 1.0 if sure else 0.5)
            assert (row.worth.rung, row.worth.score) == (row.own["rung"], mine.score)


def trials(worths: list[Worth], *, seconds: int = 0) -> list[Allocation]:
    """Trials of one search, each on an agent of its own."""
    running = [on(waiting(f"t{n}", "search"), {f"a{n}": (0,)}, second=seconds + n) for n in range(len(worths))]
    return [replace(each, worth=worth) for each, worth in zip(running, worths, strict=True)]


@pytest.mark.parametrize("kind", [SchedulerKind.PRIORITY, SchedulerKind.FAIR_SHARE])
@settings(max_examples=examples(80))
@given(worths=st.lists(WORTHS, min_size=2, max_size=20))
def test_what_its_search_would_stop_anyway_makes_room_first(kind: SchedulerKind, worths: list[Worth]) -> None:
    jobs = [a_job("search", priority=50), a_job("other", priority=1)]
    agents = [an_agent(f"a{number}", 1) for number in range(len(worths))]
    work = [*trials(worths), waiting("claim", "other")]
    policy = a_policy(scheduler=kind, preemption=True)
    snapshot = PoolSnapshot.build(policy, agents, jobs, work, now=NOW)
    (victim,) = (snapshot.allocations[each.allocation] for each in schedule(snapshot).preempt)
    needless = [each.id for each in work if each.worth.likelihood == 0.0]
    assert not needless or victim.id in needless


@settings(max_examples=examples(80))
@given(worths=st.lists(WORTHS, min_size=1, max_size=12), waits=st.lists(WORTHS, min_size=1, max_size=12))
def test_trials_of_one_search_make_room_for_each_other_only_where_they_are_needless(
    worths: list[Worth], waits: list[Worth]
) -> None:
    agents = [an_agent(f"a{number}", 1) for number in range(len(worths))]
    waiters = [waiting(f"w{n}", "search", worth=worth) for n, worth in enumerate(waits)]
    snapshot = PoolSnapshot.build(
        a_policy(preemption=True), agents, [a_job("search")], [*trials(worths), *waiters], now=NOW
    )
    plan = schedule(snapshot)
    needless, hopeful = (sum(w.likelihood == 0.0 for w in worths), sum(w.likelihood > 0.0 for w in waits))
    assert all(snapshot.allocations[each.allocation].worth.likelihood == 0.0 for each in plan.preempt)
    assert len(plan.preempt) == min(needless, hopeful)
    served = sorted(snapshot.allocations[each.for_allocation].worth.turn for each in plan.preempt)
    assert served == sorted(w.turn for w in waits)[: len(served)], "those that are worth most get the room"


@settings(max_examples=examples(60))
@given(waits=st.lists(WORTHS, min_size=1, max_size=12), free=st.integers(1, 6))
def test_what_may_go_on_begins_first(waits: list[Worth], free: int) -> None:
    waiters = [waiting(f"w{n}", "search", worth=worth, second=n) for n, worth in enumerate(waits)]
    agents = [an_agent(f"a{number}", 1) for number in range(free)]
    snapshot = PoolSnapshot.build(a_policy(), agents, [a_job("search")], waiters, now=NOW)
    placed = [snapshot.allocations[each.allocation].worth.turn for each in schedule(snapshot).place]
    assert sorted(placed) == sorted(w.turn for w in waits)[:free]


@settings(max_examples=examples(60))
@given(waits=st.lists(WORTHS, min_size=1, max_size=12), room=st.integers(1, 6))
def test_a_pool_that_grows_buys_for_what_may_go_on(waits: list[Worth], room: int) -> None:
    waiters = {f"w{n}.1": waiting(f"w{n}", "search", worth=worth, second=n) for n, worth in enumerate(waits)}
    scaling = elastic(slots=1, max_instances=room)
    snapshot = PoolSnapshot.build(a_policy(scaling=scaling), [], [a_job("search")], waiters.values(), now=NOW)
    demand = schedule(snapshot).demand
    plan = plan_scale(scaling, (), demand, {}, NOW)
    bought = sorted(waiters[token].worth.turn for launch in plan.launches for token in launch.gang_tokens)
    assert bought == sorted(w.turn for w in waits)[: len(bought)]
    assert bought, "and it does buy"


@settings(max_examples=examples(60))
@given(likelihoods=st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=2, max_size=10), data=st.data())
def test_a_pool_that_shrinks_ends_the_machines_of_what_would_be_stopped_anyway(
    likelihoods: list[float], data: st.DataObject
) -> None:
    most = data.draw(st.integers(1, len(likelihoods) - 1))
    scaling = elastic(slots=1, max_instances=most)
    machines = [
        InstanceView(
            instance_id=f"m{number}",
            token=f"m{number}",
            offer_id="m",
            slots=1,
            intent=Intent.RUN,
            observed=Observed.RUNNING,
            requested_at=NOW - timedelta(seconds=900 - number),
            launched_at=NOW - timedelta(seconds=800),
            joined_at=NOW - timedelta(seconds=700),
            agent_connected=True,
            slots_in_use=1,
            occupants=(f"t{number}",),
            residents=(Resident(token=f"t{number}", slots=1, since=NOW, movable=True, likelihood=likelihood),),
        )
        for number, likelihood in enumerate(likelihoods)
    ]
    plan = plan_scale(scaling, machines, schedule(PoolSnapshot.build(a_policy(), now=NOW)).demand, {}, NOW)
    ended = {each.instance_id for each in plan.terminations if each.cause is Cause.OVER_MAXIMUM}
    gone = sorted(likelihood for number, likelihood in enumerate(likelihoods) if f"m{number}" in ended)
    assert gone == sorted(likelihoods)[: len(likelihoods) - most]
