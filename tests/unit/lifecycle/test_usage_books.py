"""The books of usage: who is charged, from when on, and when it is measured."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import pytest

from resolute.ids import SeededIds
from resolute_master.domain.change import Entity
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import PoolName, UserId
from resolute_master.domain.pool import PoolPolicy, SchedulerKind
from resolute_master.domain.usage import Usage, interval, usage_id
from resolute_master.lifecycle import usage
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.lifecycle.deadlines import deadline, expire
from resolute_master.lifecycle.step import Step
from support.pools import POOL, a_job, at, gone, leaving, on, waiting

H = 3600.0
OTHER = PoolName("other")
POOLS = {
    POOL: PoolPolicy(name=POOL, scheduler=SchedulerKind.FAIR_SHARE, hierarchical_shares=True, usage_half_life_s=H),
    OTHER: PoolPolicy(name=OTHER),
}
RUNNING = on(waiting("t", "j"), {"a": (0, 1, 2)})


class Books:
    def __init__(self, *entities: Entity) -> None:
        self.state = ClusterState(entities)

    def step(self, now: datetime) -> Step:
        return Step(self.state, now=now, ids=SeededIds(0), sequence=1, pools=POOLS)

    def write(self, now: datetime, *entities: Entity) -> dict[str, int]:
        """In one step, as the engine does; answers what is booked as held."""
        step = self.step(now)
        for entity in entities:
            step.put(entity)
        usage.book(step, self.state)
        return self.take(step)

    def take(self, step: Step) -> dict[str, int]:
        self.state.adopt(step.upserts())
        for kind, key in step.deletes():
            self.state.forget(kind, key)
        return {each.id: each.held for each in self.state.all(Usage)}

    def of(self, owner: int, workspace: int = 1) -> Usage:
        found = self.state.get(Usage, usage_id(POOL, workspace, UserId(owner)))
        assert found is not None
        return found


def ended(names: Iterable[str]) -> dict[str, int]:
    return dict.fromkeys(names, 0)


def test_slots_are_booked_from_their_assignment_to_their_end_also_while_they_are_being_left() -> None:
    books = Books(a_job("j"))
    assert books.write(at(0), waiting("t", "j", 3)) == {}
    assert books.write(at(10), RUNNING) == {"default/1/1": 3}
    assert books.write(at(20), leaving(RUNNING)) == {"default/1/1": 3}
    assert books.of(1).at == at(10), "nothing has changed about what is held"
    assert books.write(at(10 + H), gone(RUNNING)) == {"default/1/1": 0}
    assert books.of(1).average == pytest.approx(1.5)


def test_what_is_taken_up_and_given_back_in_one_step_leaves_no_trace() -> None:
    books = Books(a_job("j"), a_job("k"), RUNNING)
    successor = on(waiting("u", "k"), {"a": (0, 1, 2)})
    usage.count_anew(step := books.step(at(0)))
    books.take(step)
    assert books.write(at(9), gone(RUNNING), successor) == {"default/1/1": 3}
    assert books.of(1).at == at(0)


def test_a_pool_without_a_half_life_keeps_no_books() -> None:
    assert Books(a_job("j", pool=OTHER)).write(at(0), replace(RUNNING, pool=OTHER)) == {}


def test_a_job_that_passes_to_another_workspace_takes_what_it_holds_along_and_leaves_its_past() -> None:
    books = Books(a_job("j"))
    books.write(at(0), RUNNING)
    assert books.write(at(H), a_job("j", workspace_id=2)) == {"default/1/1": 0, "default/2/1": 3}
    assert books.of(1).average == pytest.approx(1.5)
    assert books.of(1, 2).average == 0.0
    assert books.write(at(2 * H), gone(RUNNING)) == ended(["default/1/1", "default/2/1"])
    assert books.of(1, 2).average == pytest.approx(1.5)


def test_what_a_job_still_holds_after_it_has_moved_to_another_pool_is_its_owners() -> None:
    books = Books(a_job("j"))
    books.write(at(0), RUNNING)
    assert books.write(at(5), a_job("j", pool=OTHER), leaving(RUNNING)) == {"default/1/1": 3}
    assert books.write(at(9), gone(RUNNING)) == {"default/1/1": 0}


def test_the_first_that_is_due_has_the_whole_pool_measured() -> None:
    books = Books(a_job("j"), a_job("k", owner=UserId(2)))
    books.write(at(0), RUNNING)
    books.write(at(60), on(waiting("u", "k"), {"b": (0,)}))
    first, second = (deadline(books.of(owner), POOLS) for owner in (1, 2))
    assert (first, second) == (at(0) + interval(H), at(60) + interval(H))
    assert first is not None
    step = books.step(first)
    expire(step, books.of(1))
    books.take(step)
    assert {books.of(owner).measured_at for owner in (1, 2)} == {first}
    assert deadline(books.of(2), POOLS) == first + interval(H)


def test_nothing_is_due_about_a_pool_that_is_configured_otherwise_now() -> None:
    books = Books(a_job("j"))
    books.write(at(0), RUNNING)
    assert deadline(books.of(1), {POOL: PoolPolicy(name=POOL)}) is None
    assert deadline(books.of(1), {}) is None
