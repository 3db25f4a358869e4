"""Tests of the garbage collector in a separate process: `python -m support.garbage_cases NAME`.

The process of the tests contains millions of objects, and each full collection visits every one. If a test unfroze frozen objects,
all later tests would visit them too.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from resolute_master.garbage import collecting, survivors_frozen

NEVER = 10**9


@dataclass(eq=False)
class Knot:
    other: Knot | None = None
    burden: Sequence[object] = ()


def a_knot() -> Knot:
    knot = Knot()
    knot.other = knot
    return knot


def a_dead_one() -> weakref.ref[Knot]:
    return weakref.ref(a_knot())


@contextmanager
def collector(
    *, young: int = 0, many: int = NEVER, everything_s: float = NEVER, least_growth: int = NEVER
) -> Iterator[None]:
    """A collector that checks at every opportunity."""
    with survivors_frozen():
        gc.collect()
        task = asyncio.create_task(
            collecting(
                look_s=0.0, young=young, many=many, everything_s=everything_s, least_growth=least_growth, asked_after=0
            )
        )
        try:
            yield
        finally:
            task.cancel()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)


async def some_looks() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def the_young_are_collected_and_survivors_set_aside() -> None:
    with collector():
        kept, dead, before = a_knot(), a_dead_one(), gc.get_freeze_count()
        await until(lambda: dead() is None)
        assert gc.get_freeze_count() > before
        late = weakref.ref(kept)
        del kept
        await some_looks()
        gc.collect()
        assert late() is not None, "it was set aside"
    assert gc.isenabled() and gc.get_freeze_count() == 0
    gc.collect()
    assert late() is None


async def few_young_objects_are_left_alone() -> None:
    with collector(young=NEVER):
        dead = a_dead_one()
        await some_looks()
        assert dead() is not None and gc.get_freeze_count() == 0


async def many_young_objects_are_set_aside_without_a_look() -> None:
    with collector(many=0):
        dead = a_dead_one()
        await until(lambda: gc.get_freeze_count() > 0)
        gc.collect()
        assert dead() is not None
    gc.collect()
    assert dead() is None


async def what_died_late_is_found_when_everything_is_looked_at() -> None:
    with collector(everything_s=0.0):
        late = a_dead_one()
        gc.freeze()
        await until(lambda: late() is None)
        assert gc.get_freeze_count() > 0, "what lives is set aside again"


async def what_is_lost_is_found_as_soon_as_the_process_has_grown_much(*, many: int = NEVER) -> None:
    with collector(many=many, least_growth=1000):
        lost: list[weakref.ref[Knot]] = []
        async with asyncio.timeout(60):
            while not lost or lost[0]() is not None:
                burdened = a_knot()
                burdened.burden = [object() for _ in range(20_000)]
                lost.append(weakref.ref(burdened))
                await some_looks()
                del burdened
        assert len(lost) > 1, "it was set aside, and lost for a while"


async def what_is_lost_unseen_is_found_as_soon_as_the_process_has_grown_much() -> None:
    await what_is_lost_is_found_as_soon_as_the_process_has_grown_much(many=0)


async def outside_python_collects_by_itself() -> None:
    with survivors_frozen():
        assert not gc.isenabled()
    assert gc.isenabled()


CASES: dict[str, Callable[[], Awaitable[None]]] = {
    case.__name__: case
    for case in (
        the_young_are_collected_and_survivors_set_aside,
        few_young_objects_are_left_alone,
        many_young_objects_are_set_aside_without_a_look,
        what_died_late_is_found_when_everything_is_looked_at,
        what_is_lost_is_found_as_soon_as_the_process_has_grown_much,
        what_is_lost_unseen_is_found_as_soon_as_the_process_has_grown_much,
        outside_python_collects_by_itself,
    )
}


if __name__ == "__main__":

    async def run() -> None:
        await CASES[sys.argv[1]]()

    asyncio.run(run())
