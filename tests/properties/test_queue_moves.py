"""Moving jobs by hand is moving things in a list, however often, and whatever the numbers behind it."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resolute.errors import FailedPrecondition, InvalidInput
from resolute.ids import SeededIds
from resolute_master.domain.change import Change, JournalEntry
from resolute_master.domain.commands import UpdateJob
from resolute_master.domain.ids import JobId, PoolName
from resolute_master.domain.job import Job
from resolute_master.lifecycle.apply import apply
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.lifecycle.step import Step
from support.effort import examples
from support.pools import NOW, a_job

MOVES = 1500


class Queue:
    """Jobs in a state of the cluster, and beside it the lists that they ought to be."""

    def __init__(self, jobs: list[Job], now: datetime = NOW) -> None:
        self.state = ClusterState(jobs)
        self.now = now
        self.lines: dict[int, list[str]] = {}
        for job in sorted(jobs, key=lambda job: job.place):
            self.lines.setdefault(job.priority, []).append(job.id)

    def tell(self, command: UpdateJob) -> tuple[Job, ...]:
        """Carry it out as the engine does; answers the jobs that it changed."""
        step = Step(self.state, now=self.now, ids=SeededIds(0), sequence=1)
        apply(step, command)
        changed = tuple(entity for entity in step.upserts() if isinstance(entity, Job))
        entry = JournalEntry(sequence=1, at=self.now, entropy="", commands=b"", adopted=b"", digest="")
        self.state.absorb(Change(journal=entry, upserts=step.upserts()))
        return changed

    def move(self, job: str, anchor: str, *, ahead: bool) -> tuple[Job, ...]:
        line = next(line for line in self.lines.values() if anchor in line)
        for each in self.lines.values():
            if job in each:
                each.remove(job)
        line.insert(line.index(anchor) + (not ahead), job)
        return self.tell(
            UpdateJob(
                job=JobId(job),
                ahead_of=JobId(anchor) if ahead else None,
                behind_of=None if ahead else JobId(anchor),
            )
        )

    def arrive(self, job: Job) -> None:
        self.state.adopt([job])
        self.lines.setdefault(job.priority, []).append(job.id)

    def read(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for job in sorted(self.state.all(Job), key=lambda job: (job.priority, *job.place)):
            found.setdefault(job.priority, []).append(job.id)
        return found

    def expected(self) -> dict[int, list[str]]:
        return {priority: line for priority, line in self.lines.items() if line}


def some_jobs(count: int, gap_s: float, priorities: int = 1) -> list[Job]:
    return [a_job(f"j{n:03}", second=n * gap_s, priority=42 + n % priorities, experiment_id=None) for n in range(count)]


@pytest.mark.parametrize("gap_s", [0.0, 1e-6, 1.0, 3600.0])
@pytest.mark.parametrize("style", ["anywhere", "one gap", "two by turns", "the ends"])
def test_thousands_of_moves_are_those_of_a_list(gap_s: float, style: str) -> None:
    """Gaps from none (all came at one moment) to hours; neither the time nor the queue goes on meanwhile."""
    rng = random.Random(f"{gap_s} {style}")
    queue = Queue(some_jobs(24, gap_s), now=a_job("", second=24 * gap_s).submitted_at)
    changed = 0
    for number in range(MOVES):
        names = queue.lines[42]
        if style == "anywhere":
            job, anchor = rng.sample(names, 2)
            ahead = rng.random() < 0.5
        elif style == "one gap":
            job, anchor, ahead = names[-1], names[1], False
        elif style == "two by turns":
            job, anchor, ahead = names[12], names[11], True
        else:
            ahead = rng.random() < 0.5
            job, anchor = (names[-1], names[0]) if ahead else (names[0], names[-1])
        changed += len(queue.move(job, anchor, ahead=ahead))
        if number % 50 == 0 or number > MOVES - 5:
            assert queue.read() == queue.expected()
    assert queue.read() == queue.expected()
    assert changed < 3 * MOVES, "a move changes few others"


@settings(max_examples=examples(60))
@given(st.data(), st.sampled_from([0.0, 2e-7, 1e-3, 1.0]))
def test_moves_between_lines_arrivals_and_time(data: st.DataObject, gap_s: float) -> None:
    queue = Queue(some_jobs(8, gap_s, priorities=2))
    for number in range(40):
        queue.now += timedelta(seconds=data.draw(st.sampled_from([0.0, 0.0, 1e-6, 5.0])))
        if data.draw(st.integers(0, 4)) == 0:
            second = (queue.now - a_job("").submitted_at).total_seconds()
            queue.arrive(a_job(f"new{number:03}", second=second, experiment_id=None))
            continue
        names = sorted(job.id for job in queue.state.all(Job))
        job, anchor = data.draw(st.permutations(names))[:2]
        queue.move(job, anchor, ahead=data.draw(st.booleans()))
        assert queue.read() == queue.expected()


def test_a_repeated_move_takes_effect_once() -> None:
    queue = Queue(some_jobs(4, 1.0))
    assert len(queue.move("j003", "j001", ahead=True)) == 1
    assert queue.move("j003", "j001", ahead=True) == ()
    assert queue.move("j000", "j003", ahead=True) == (), "it stands there already"


def test_another_priority_is_taken_over_with_the_place() -> None:
    queue = Queue(some_jobs(4, 1.0, priorities=2))
    (moved,) = queue.move("j001", "j002", ahead=True)
    assert (moved.priority, queue.read()) == (42, {42: ["j000", "j001", "j002"], 43: ["j003"]})


@pytest.mark.parametrize("priority", [42, 7])
def test_a_change_of_priority_takes_the_place_back(priority: int) -> None:
    queue = Queue(some_jobs(2, 1.0))
    queue.move("j001", "j000", ahead=True)
    (moved,) = queue.tell(UpdateJob(job=JobId("j001"), priority=priority))
    assert moved.queue_position == moved.submitted_at.timestamp()


def test_only_experiments_change_pools() -> None:
    queue = Queue([a_job("j", kind="NOTEBOOK")])
    with pytest.raises(FailedPrecondition, match="is a notebook, and only experiments change pools"):
        queue.tell(UpdateJob(job=JobId("j"), pool=PoolName("other")))
    with pytest.raises(FailedPrecondition, match="in pool 'default' already"):
        queue.tell(UpdateJob(job=JobId("j"), pool=PoolName("default")))


def test_what_cannot_be_a_neighbour_is_refused() -> None:
    queue = Queue([*some_jobs(2, 1.0), a_job("there", pool=PoolName("other")), a_job("over", ended=True)])
    before = queue.read()
    for anchor, error, text in (
        ("j000", InvalidInput, "aheadOf: 'j000' is the job itself"),
        ("none", InvalidInput, "aheadOf: job 'none' not found"),
        ("over", InvalidInput, "aheadOf: job 'over' not found"),
        ("there", FailedPrecondition, "is in pool 'other', this one in 'default'"),
    ):
        with pytest.raises(error, match=text):
            queue.tell(UpdateJob(job=JobId("j000"), ahead_of=JobId(anchor)))
    with pytest.raises(FailedPrecondition, match="job 'over' has ended"):
        queue.tell(UpdateJob(job=JobId("over"), behind_of=JobId("j000")))
    assert queue.read() == before


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_weight_is_a_number_above_zero(weight: float) -> None:
    queue = Queue(some_jobs(1, 1.0))
    with pytest.raises(InvalidInput, match="weight"):
        queue.tell(UpdateJob(job=JobId("j000"), weight=weight))
