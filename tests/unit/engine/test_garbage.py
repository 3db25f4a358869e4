"""What survives a full collection is looked at no more, and dead cycles among it are found all the same, later."""

from __future__ import annotations

import asyncio
import gc
import weakref
from dataclasses import dataclass

import pytest

from resolute_master import garbage
from resolute_master.garbage import begin, look_at_everything, put_off, survivors_set_aside


@dataclass(eq=False)
class Knot:
    other: Knot | None = None


def a_knot() -> Knot:
    knot = Knot()
    knot.other = knot
    return knot


def test_survivors_are_set_aside_and_given_back_at_the_end() -> None:
    gc.unfreeze()
    kept, lost = a_knot(), a_knot()
    with survivors_set_aside():
        gone = weakref.ref(lost)
        del lost
        gc.collect(1)
        assert gone() is None, "a dead cycle that is young is collected"
        assert gc.get_freeze_count() > 0
        late = weakref.ref(kept)
        del kept
        gc.collect()
        assert late() is not None, "it was set aside"
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert late() is None


async def test_what_died_late_is_found_when_everything_is_looked_at() -> None:
    with survivors_set_aside():
        knot = a_knot()
        gc.collect()
        found = asyncio.Event()
        watch = weakref.finalize(knot, found.set)
        del knot
        looking = asyncio.create_task(look_at_everything(0.001))
        await asyncio.wait_for(found.wait(), 10)
        looking.cancel()
        assert not watch.alive


def test_nothing_is_collected_until_the_start_is_over() -> None:
    with survivors_set_aside():
        assert not gc.isenabled()
        loaded = [a_knot() for _ in range(10)]
        begin()
        assert gc.isenabled() and gc.get_freeze_count() > len(loaded)
        count = gc.get_freeze_count()
        begin()
        assert gc.get_freeze_count() <= count, "it begins once"
    assert gc.isenabled() and gc.get_freeze_count() == 0


def test_collections_that_are_put_off_begin_again_when_the_last_is_done() -> None:
    gc.enable()
    with put_off():
        assert not gc.isenabled()
        with put_off():
            assert not gc.isenabled()
        assert not gc.isenabled(), "one is not done"
    assert gc.isenabled()


def test_before_collections_have_begun_nobody_makes_them_begin() -> None:
    with survivors_set_aside():
        with put_off():
            pass
        assert not gc.isenabled()


def test_collections_are_not_put_off_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.enable()
    now = 0.0
    monkeypatch.setattr(garbage.time, "monotonic", lambda: now)
    first, second = put_off(), put_off()
    with second:
        with first:
            now += 2 * garbage.LONGEST_PUT_OFF_S
        late = put_off()
        with late:
            pass
        assert not gc.isenabled(), "the one who came in time is not done"
        late = put_off()
        late.__enter__()
    assert gc.isenabled(), "who came late puts nothing off"
    late.__exit__(None, None, None)
    assert gc.isenabled()
