"""What survives a full collection is looked at no more, and dead cycles among it are found all the same, later."""

from __future__ import annotations

import asyncio
import gc
import weakref
from dataclasses import dataclass

from resolute_master.garbage import begin, look_at_everything, survivors_set_aside


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
