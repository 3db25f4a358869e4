"""The fair queue: order within a share, turns between shares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resolute_master.store.fair_queue import FairQueue


def test_shares_take_turns() -> None:
    queue: FairQueue[str] = FairQueue()
    for item in ("a1", "a2", "a3", "b1", "c1", "b2"):
        queue.put(item, item[0])
    assert queue.holds("b") and not queue.holds("d")
    assert [queue.take() for _ in range(6)] == ["a1", "b1", "c1", "a2", "b2", "a3"]
    assert not queue
    with pytest.raises(LookupError):
        queue.first()


@given(st.lists(st.one_of(st.none(), st.sampled_from("abc"))))
def test_nothing_is_lost_and_no_share_is_passed_over(steps: list[str | None]) -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue()
    waiting: dict[str, list[int]] = {}
    passed: dict[str, int] = {}
    for number, share in enumerate(steps):
        if share is not None:
            queue.put((share, number), share)
            waiting.setdefault(share, []).append(number)
        elif queue:
            first, taken = queue.first(), queue.take()
            assert first == taken
            assert waiting[taken[0]].pop(0) == taken[1]
            for other in waiting:
                passed[other] = passed.get(other, 0) + 1 if other != taken[0] and waiting[other] else 0
                assert passed[other] < 3
    assert sorted(number for _, number in queue) == sorted(n for numbers in waiting.values() for n in numbers)
