"""Others have their turn between the few; and nobody is forgotten."""

from __future__ import annotations

import asyncio

from resolute_master.batches import AT_ONCE, LOOKED_UP_AT_ONCE, in_batches, map_in_batches


async def test_others_work_between_the_few() -> None:
    done: list[int] = []
    most = 0

    async def watch() -> None:
        nonlocal most
        seen = 0
        while len(done) < 100:
            most = max(most, len(done) - seen)
            seen = len(done)
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    await in_batches(range(100), done.append)
    await watching
    assert done == list(range(100))
    assert most <= AT_ONCE


async def test_all_are_done_also_when_it_is_cancelled() -> None:
    done: list[int] = []
    task = asyncio.create_task(in_batches(range(100), done.append))
    await asyncio.sleep(0)
    assert 0 < len(done) < 100
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert done == list(range(100))


async def test_what_is_made_in_turns_is_all_there_in_order() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    made = await map_in_batches(range(10 * LOOKED_UP_AT_ONCE), str)
    counting.cancel()
    assert made == [str(number) for number in range(10 * LOOKED_UP_AT_ONCE)]
    assert turns >= 8
