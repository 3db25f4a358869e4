"""Whatever happened on the machines: every slot-second is on one line, and the lines sum to the bill."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from itertools import pairwise
from math import ceil, floor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resolute.wire.states import AllocationState, FailureKind
from resolute_master.domain.allocation import Allocation, AllocationExit, Container
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import (
    AgentId,
    ContainerId,
    ExperimentId,
    JobId,
    PoolName,
    TrialId,
    UserId,
)
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job
from resolute_master.domain.metrics import StepMark
from resolute_master.lifecycle.cost import Grouping, Line, cost_by, total
from resolute_master.lifecycle.ledger import Books, Run, kept_steps, runs
from support.cluster import an_allocation, an_instance, at
from support.effort import examples
from support.pools import a_job

NOW = at(1000)
JOBS = 3


@st.composite
def machines(draw: st.DrawFn) -> list[Instance]:
    found = []
    for number in range(draw(st.integers(1, 4))):
        paid_from, life_s = draw(st.integers(0, 500)), draw(st.integers(0, 600))
        joined_s = draw(st.one_of(st.none(), st.integers(0, 100)))
        found.append(
            draw(
                moved(
                    an_instance(
                        f"machine-{number}",
                        pool=PoolName(draw(st.sampled_from(("a", "b")))),
                        slots=draw(st.integers(1, 3)),
                        price_per_hour=draw(st.one_of(st.none(), st.sampled_from((0.0, 1.0, 3.6, 40.0)))),
                        paid_from=at(paid_from),
                        paid_until=draw(st.sampled_from((None, at(paid_from + life_s)))),
                        joined_at=None if joined_s is None else at(paid_from + joined_s),
                        agent_id=AgentId(f"agent-{number}"),
                    )
                )
            )
        )
    return found


@st.composite
def moved(draw: st.DrawFn, machine: Instance) -> Instance:
    """With a price that the market has moved, also before the machine was paid for and after its end."""
    moments = sorted(draw(st.lists(st.integers(0, 1000), max_size=5)))
    for moment in moments:
        machine = machine.at_price(draw(st.sampled_from((0.0, 0.4, 3.6, 7.2))), at(moment))
    return machine


def price_at(machine: Instance, second: int) -> float | None:
    """As the row says it, looked up from the beginning."""
    return next((e.per_hour for e in machine.earlier_prices if at(second) < e.until), machine.price_per_hour)


def asked_for(machine: Instance, begin: datetime, end: datetime) -> float:
    """What the machine costs in this time, second by second: moves are at whole ones."""
    first, last = (begin - at(0)).total_seconds(), (end - at(0)).total_seconds()
    parts = ((s, min(s + 1.0, last) - max(float(s), first)) for s in range(floor(first), ceil(last)))
    return sum((price_at(machine, second) or 0.0) / 3600.0 * part for second, part in parts)


@st.composite
def attempts(draw: st.DrawFn, machines: list[Instance]) -> list[Allocation]:
    """Also such as cannot be: on the same slot at the same time, and outside of a machine's life."""
    found = []
    for number in range(draw(st.integers(0, 8))):
        begin, length = draw(st.integers(0, 900)), draw(st.integers(0, 300))
        members = draw(st.lists(st.sampled_from(machines), min_size=1, max_size=2, unique_by=lambda m: m.id))
        ended = draw(st.booleans())
        exit_ = draw(
            st.sampled_from(
                (
                    AllocationExit(reason="finished", finished=True),
                    AllocationExit(reason="gone", failure=FailureKind.AGENT_FAILED),
                    AllocationExit(reason="preempted"),
                )
            )
        )
        trial = draw(st.integers(1, 3))
        found.append(
            an_allocation(
                f"1.{trial}.{number}",
                trial_id=TrialId(trial),
                job_id=JobId(f"job-{draw(st.integers(0, JOBS))}"),  # one of them is not known
                resumed_steps=draw(st.integers(0, 30)),
                state=AllocationState.TERMINATED if ended else AllocationState.RUNNING,
                requested_at=at(draw(st.integers(0, begin))),
                assigned_at=at(begin),
                ended_at=at(begin + length) if ended else None,
                exit=exit_ if ended else None,
                containers=tuple(
                    Container(
                        id=ContainerId(f"c-{number}-{rank}"),
                        rank=rank,
                        agent=machine.agent_id or AgentId(""),
                        slots=tuple(range(draw(st.integers(0, machine.slots)))),
                    )
                    for rank, machine in enumerate(members)
                ),
            )
        )
    return found


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Instance], tuple[Run, ...]]:
    there = draw(machines())
    held = draw(attempts(there))
    marks = [
        StepMark(
            allocation_id=each.id,
            steps_completed=each.resumed_steps + steps,
            at=(each.assigned_at or NOW) + (at(after) - at(0)),
            checkpointing_s=draw(st.floats(0, 60)),
        )
        for each in held
        for steps, after in draw(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 300)), max_size=4))
    ]
    return there, runs(held, marks, kept_steps(held, {TrialId(1): draw(st.integers(0, 40))}))


def known_jobs() -> dict[JobId, Job]:
    jobs = [
        replace(a_job(f"job-{n}"), owner=UserId(n % 2), workspace_id=n, experiment_id=ExperimentId(n))
        for n in range(JOBS)
    ]
    return {job.id: job for job in jobs}


def bill(machines: list[Instance]) -> float:
    """As the cloud writes it: from the paid start to the end, for the whole machine."""
    return sum(
        asked_for(each, each.paid_from, each.paid_until or NOW) for each in machines if each.paid_from is not None
    )


def seconds(machines: list[Instance], *, unpriced: bool = False) -> float:
    """Slot-seconds; `unpriced`: those at an unknown price."""
    return sum(
        machine.slots
        for machine in machines
        if machine.paid_from is not None
        for second in range(_second(machine.paid_from), _second(machine.paid_until or NOW))
        if not unpriced or price_at(machine, second) is None
    )


def _second(moment: datetime) -> int:
    return int((moment - at(0)).total_seconds())


@given(moves=st.lists(st.tuples(st.integers(-50, 1000), st.sampled_from((0.4, 3.6, 7.2))), max_size=8))
def test_a_machine_has_the_price_of_its_last_move(moves: list[tuple[int, float]]) -> None:
    """Told in the order of time, or by a clock that goes back."""
    machine, clock, series = an_instance(requested_at=at(0)), 0, [(0, 3.6)]
    for moment, price in moves:
        machine = machine.at_price(price, at(moment))
        if price != series[-1][1]:
            clock = max(clock, moment)
            series.append((clock, price))
    for second in range(0, 1100, 7):
        assert [price for _, _, price in machine.prices(at(second), at(second + 0.5))] == [
            [price for begin, price in series if begin <= second][-1]
        ]
    assert len(machine.earlier_prices) <= len(moves)


@given(history=histories())
def test_the_lines_of_every_grouping_sum_to_the_bill(history: tuple[list[Instance], tuple[Run, ...]]) -> None:
    there, found = history
    amount, paid_s, unpriced_s = bill(there), seconds(there), seconds(there, unpriced=True)
    for grouping in Grouping:
        summed = total(cost_by(grouping, there, Books(found), known_jobs(), now=NOW).values())
        assert summed.booking.paid_s == pytest.approx(paid_s, abs=1e-6)
        assert summed.cost == pytest.approx(amount, abs=1e-9)
        assert summed.cost_unknown_s == pytest.approx(unpriced_s, abs=1e-6)


@given(history=histories())
@settings(max_examples=examples(25))
def test_a_job_costs_what_its_slots_cost_at_each_second(history: tuple[list[Instance], tuple[Run, ...]]) -> None:
    there, found = history
    expected: defaultdict[str, float] = defaultdict(float)
    for machine in there:
        for span in Books(found).spans(machine, NOW):
            if span.allocation is not None:
                expected[span.allocation.job_id] += asked_for(machine, span.begin, span.end) / machine.slots
    lines = cost_by(Grouping.JOB, there, Books(found), known_jobs(), now=NOW)
    assert {key: line.cost for key, line in lines.items() if key} == pytest.approx(dict(expected), abs=1e-9)


@given(history=histories(), cuts=st.lists(st.integers(0, 1000), min_size=1, max_size=4))
def test_what_was_spent_in_parts_of_a_time_sums_to_what_was_spent_in_all_of_it(
    history: tuple[list[Instance], tuple[Run, ...]], cuts: list[int]
) -> None:
    there, found = history
    edges = [None, *(at(cut) for cut in sorted(cuts)), None]

    def lines(since: object, until: object) -> dict[str, Line]:
        window = {"since": since, "until": until}
        return cost_by(Grouping.USER, there, Books(found), known_jobs(), now=NOW, **window)  # type: ignore[arg-type]

    whole = lines(None, None)
    parts = [lines(*window) for window in pairwise(edges)]
    for key, line in whole.items():
        summed = total(part[key] for part in parts if key in part)
        for account in ("useful_s", "starting_s", "checkpointing_s", "lost_s", "idle_s"):
            expected = getattr(line.booking, account)
            assert getattr(summed.booking, account) == pytest.approx(expected, abs=1e-6)
        assert summed.cost == pytest.approx(line.cost, abs=1e-9)


@given(history=histories())
def test_nothing_is_ever_booked_below_zero(history: tuple[list[Instance], tuple[Run, ...]]) -> None:
    there, found = history
    for line in cost_by(
        Grouping.TRIAL, there, Books(found), known_jobs(), now=NOW, since=at(100), until=at(700)
    ).values():
        assert min(line.costs.values()) >= -1e-9
        assert line.booking.idle_s >= 0
        assert line.booking.useful_s >= -1e-9
