"""A pool that remembers: what users held lately counts beside what they hold, exactly, and in the long run evens out."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resolute_master.domain.ids import PoolName, UserId
from resolute_master.domain.pool import SchedulerKind
from resolute_master.domain.usage import FORGOTTEN, GRAIN, LEAST_INTERVAL_S, Usage, interval
from resolute_master.scheduler.job_states import job_states
from resolute_master.scheduler.schedule import schedule
from resolute_master.scheduler.snapshot import PoolSnapshot
from support.effort import examples
from support.pools import NOW, POOL, START, a_job, a_policy, an_agent, applied, at_rest, gone, on, waiting

H = 3600.0
ADA, BOB = UserId(1), UserId(2)

SPANS = st.lists(st.tuples(st.integers(0, 8), st.floats(0.0, 3 * H)), min_size=1, max_size=12)
"""How many slots were held for how many seconds, one after the other."""


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def fresh(owner: UserId = ADA) -> Usage:
    return Usage.none_yet(POOL, 1, owner, now=NOW)


def lived(spans: list[tuple[int, float]]) -> tuple[Usage, datetime]:
    usage, now = fresh(), NOW
    for held, seconds in spans:
        usage = usage.holding(held, now, H)
        now += timedelta(seconds=seconds)
    return usage.until(now, H), now


# -------------------------------------------------------------------------------------------------------- one average


@given(SPANS)
def test_the_average_is_the_decaying_integral(spans: list[tuple[int, float]]) -> None:
    usage, end = lived(spans)
    expected, begun = 0.0, NOW
    for held, seconds in spans:
        over = begun + timedelta(seconds=seconds)
        since_end, since_begin = (end - over).total_seconds(), (end - begun).total_seconds()
        expected += held * (0.5 ** (since_end / H) - 0.5 ** (since_begin / H))
        begun = over
    assert usage.average == pytest.approx(expected, abs=1e-9)


@given(SPANS, st.lists(st.floats(0.0, 1.0), max_size=5))
def test_looking_at_it_changes_nothing(spans: list[tuple[int, float]], looks: list[float]) -> None:
    """Bookings in between, as restarts and measurements make them, come to the same."""
    usage, now = fresh(), NOW
    for held, seconds in spans:
        usage = usage.holding(held, now, H)
        for part in sorted(looks):
            usage = usage.until(now + timedelta(seconds=seconds * part), H)
        now += timedelta(seconds=seconds)
    assert usage.until(now, H).average == pytest.approx(lived(spans)[0].average, abs=1e-9)


@given(st.integers(1, 100))
def test_who_holds_slots_for_ever_comes_to_their_number(slots: int) -> None:
    usage = fresh().holding(slots, NOW, H)
    assert usage.until(later(H), H).average == pytest.approx(slots / 2)
    charges = [measured.charged for n in range(1, 700) if (measured := usage.measured(later(n * H / 32), H))]
    assert charges == sorted(charges) and charges[-1] == slots


def test_what_runs_only_between_two_measurements_counts() -> None:
    usage = fresh().holding(8, later(10), H).holding(0, later(100), H)
    measured = usage.measured(later(112.5), H)
    assert measured is not None and measured.charged > 0


def test_small_uses_add_up_although_each_is_below_what_is_charged() -> None:
    usage, now = fresh(), NOW
    for _ in range(64):
        used = usage.holding(1, now, H).holding(0, now + timedelta(seconds=40), H)
        now += interval(H)
        kept = used.measured(now, H)
        assert kept is not None
        usage = kept
    assert usage.charged >= GRAIN


def test_what_was_long_ago_is_forgotten_and_a_clock_that_goes_back_adds_nothing() -> None:
    usage = fresh().holding(1, NOW, H).holding(0, later(H), H)
    assert usage.until(later(-60), H) == usage
    assert usage.measured(later(9 * H), H) is not None
    assert usage.measured(later(11 * H), H) is None
    assert FORGOTTEN * 2**10 == 1


def test_measurements_are_so_far_apart() -> None:
    assert interval(3600.0).total_seconds() == 112.5
    assert interval(1.0).total_seconds() == LEAST_INTERVAL_S


# ------------------------------------------------------------------------------------------------------------- a pool


def a_pool(
    slots: int, jobs: dict[str, UserId], used: dict[UserId, float] | None = None, **changes: object
) -> PoolSnapshot:
    policy = a_policy(
        scheduler=SchedulerKind.FAIR_SHARE, **{"hierarchical_shares": True, "usage_half_life_s": H, **changes}
    )
    return PoolSnapshot.build(
        policy,
        [an_agent("a", slots)],
        [a_job(name, owner=owner) for name, owner in jobs.items()],
        usage=[
            Usage(id=f"u{owner}", pool=POOL, workspace_id=1, owner=owner, at=NOW, measured_at=NOW, charged=charged)
            for owner, charged in (used or {}).items()
        ],
        now=NOW,
    )


def test_of_two_users_with_equal_slots_the_one_without_usage_comes_first() -> None:
    pool = a_pool(1, {"j1": ADA, "j2": BOB}, {ADA: 0.5})
    pool = pool.after(waiting("old", "j1", second=0)).after(waiting("new", "j2", second=60))
    assert [p.allocation for p in schedule(pool).place] == ["new.1"]
    assert list(job_states(pool)) == ["j2", "j1"], "and the queue says so"
    assert [
        p.allocation
        for p in schedule(
            a_pool(1, {"j1": ADA, "j2": BOB})
            .after(waiting("old", "j1", second=0))
            .after(waiting("new", "j2", second=60))
        ).place
    ] == ["old.1"]


def test_a_past_makes_leave_and_the_reason_says_so() -> None:
    pool = a_pool(3, {"j1": ADA, "j2": BOB}, {ADA: 0.0625})
    pool = pool.after(on(waiting("a1", "j1"), {"a": (0,)})).after(on(waiting("a2", "j1"), {"a": (1,)}))
    pool = pool.after(on(waiting("b1", "j2"), {"a": (2,)})).after(waiting("b2", "j2"))
    (preemption,) = schedule(pool).preempt
    assert preemption.for_allocation == "b2.1"
    assert "user 2 holds 1 slot(s), against 2 and is charged 0.0625 for the past" in preemption.reason
    plan = schedule(applied(pool, schedule(pool)))
    assert not plan.preempt, "nobody takes back what he left"


def test_a_past_in_another_pool_or_in_one_that_does_not_remember_counts_for_nobody() -> None:
    elsewhere = Usage.none_yet(PoolName("other"), 1, ADA, now=NOW)
    pool = a_pool(1, {"j1": ADA})
    assert pool.with_usage(elsewhere) == pool
    forgetful = a_pool(1, {"j1": ADA}, {ADA: 2.0}, usage_half_life_s=None)
    assert forgetful == a_pool(1, {"j1": ADA}, usage_half_life_s=None)


class Life:
    """A pool whose users always want more, from measurement to measurement, and what each got in slot-measurements."""

    def __init__(
        self, slots: int, jobs: dict[str, UserId], *, size: dict[str, int] | None = None, **policy: object
    ) -> None:
        self.snapshot = a_pool(slots, jobs, **policy)  # type: ignore[arg-type]
        self.owners = jobs
        self.size = size or {}
        self.now = NOW
        self.usage: dict[UserId, Usage] = {}
        self.got: Counter[UserId] = Counter()
        self.age: Counter[str] = Counter()
        self.asked = 0
        for job in jobs:
            self.want(job, slots)

    def want(self, job: str, tasks: int) -> None:
        for _ in range(tasks):
            self.asked += 1
            second = (self.now - START).total_seconds()
            self.snapshot = self.snapshot.after(
                waiting(f"{job}-{self.asked:05}", job, self.size.get(job, 1), second=second)
            )

    def leave(self, job: str) -> None:
        for id_ in list(self.snapshot.job_allocations.get(a_job(job).id) or ()):
            self.snapshot = self.snapshot.without_allocation(id_)

    def pass_by(self, half_lives: float) -> None:
        for _ in range(round(32 * half_lives)):
            self._end_what_is_done()
            self.snapshot = at_rest(self.snapshot.at(self.now))
            held = dict.fromkeys(self.owners.values(), 0)
            for job, owner in self.owners.items():
                held[owner] += self.snapshot.job_slots.get(a_job(job).id) or 0
            begun, self.now = self.now, self.now + interval(H)
            for owner, slots in held.items():
                self.got[owner] += slots
                usage = (self.usage.get(owner) or fresh(owner)).holding(slots, begun, H)
                self.usage[owner] = usage.measured(self.now, H) or usage
                self.snapshot = self.snapshot.with_usage(self.usage[owner])

    def _end_what_is_done(self) -> None:
        """A task runs for four to six measurements; there is always a next one."""
        for number, allocation in enumerate(list(self.snapshot.running())):
            self.age[allocation.id] += 1
            if self.age[allocation.id] >= 4 + number % 3:
                self.snapshot = self.snapshot.after(gone(allocation))
                self.want(allocation.job_id, 1)

    def part(self, owner: UserId) -> float:
        return self.got[owner] / self.got.total()


def test_users_who_cannot_hold_the_same_at_once_hold_the_same_in_the_long_run() -> None:
    """Five slots for two: the fifth goes to each in turn, without a past nearly so: who has waited longest goes first."""
    for half_life_s, most in ((H, 0.02), (None, 0.05)):
        life = Life(5, {"j1": ADA, "j2": BOB}, usage_half_life_s=half_life_s)
        life.pass_by(10)
        assert abs(life.part(ADA) - 0.5) < most


@pytest.mark.parametrize(("slots", "size"), [(8, (5, 5)), (5, (3, 3)), (5, (4, 3)), (8, (8, 1))])
def test_a_user_without_room_beside_a_gang_has_turns(slots: int, size: tuple[int, int]) -> None:
    """Without a past nobody starves, but whoever was there first has more of what only one of them can have."""
    jobs, sizes = {"j1": ADA, "j2": BOB}, {"j1": size[0], "j2": size[1]}
    forgetful = Life(slots, jobs, size=sizes, usage_half_life_s=None)
    forgetful.pass_by(3)
    assert 0.55 < forgetful.part(ADA) < 0.95
    remembering = Life(slots, jobs, size=sizes)
    remembering.pass_by(3)
    remembering.got.clear()
    remembering.pass_by(8)
    assert abs(remembering.part(ADA) - 0.5) < 0.06


@pytest.mark.parametrize("parts", [2, 5])
def test_splitting_work_over_more_experiments_wins_nothing_over_time(parts: int) -> None:
    whole = Life(5, {"j1": ADA, "j2": BOB})
    whole.pass_by(6)
    split = Life(5, {**{f"j1-{n}": ADA for n in range(parts)}, "j2": BOB})
    split.pass_by(6)
    assert abs(split.part(ADA) - whole.part(ADA)) < 0.02


def test_who_was_away_is_served_first_when_he_comes_back_and_then_evens_out() -> None:
    life = Life(8, {"j1": ADA, "j2": BOB})
    life.leave("j2")
    life.pass_by(4)
    life.want("j2", 8)
    life.pass_by(1 / 32)
    assert life.snapshot.job_slots.get(a_job("j2").id) == 8, "one who has used up to 8 against one who has used nothing"
    life.got.clear()
    life.pass_by(10)
    life.got.clear()
    life.pass_by(4)
    assert abs(life.part(BOB) - 0.5) < 0.02


def test_a_new_experiment_does_not_shed_the_past_of_its_user() -> None:
    life = Life(4, {"j1": ADA, "next": ADA, "j2": BOB})
    life.leave("j2")
    life.leave("next")
    life.pass_by(3)
    life.leave("j1")
    life.want("next", 4)
    life.want("j2", 4)
    life.pass_by(1 / 32)
    assert life.snapshot.job_slots.get(a_job("j2").id) == 4


@settings(max_examples=examples(40))
@given(
    st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=4),
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(1, 4), st.integers(0, 6)), min_size=1, max_size=6
    ),
    st.dictionaries(st.tuples(st.integers(1, 2), st.integers(1, 3)), st.integers(1, 160), max_size=6),
)
def test_between_two_measurements_a_pool_comes_to_rest(
    sizes: list[int], work: list[tuple[int, int, int, int]], past: dict[tuple[int, int], int]
) -> None:
    """Gangs of several sizes, of users with any past; `at_rest` fails when somebody makes leave who made him leave."""
    jobs = [a_job(f"j{n}", owner=UserId(owner), workspace_id=place) for n, (owner, place, _, _) in enumerate(work)]
    snapshot = PoolSnapshot.build(
        a_policy(scheduler=SchedulerKind.FAIR_SHARE, hierarchical_shares=True, usage_half_life_s=H),
        [an_agent(f"a{n}", size) for n, size in enumerate(sizes)],
        jobs,
        usage=[
            Usage(
                id=f"{place}/{owner}",
                pool=POOL,
                workspace_id=place,
                owner=UserId(owner),
                at=NOW,
                measured_at=NOW,
                charged=grains * GRAIN,
            )
            for (place, owner), grains in past.items()
        ],
        now=NOW,
    )
    for number, (_, _, size, tasks) in enumerate(work):
        for task in range(tasks):
            snapshot = snapshot.after(waiting(f"{number}-{task}", f"j{number}", size))
        snapshot = at_rest(snapshot)
