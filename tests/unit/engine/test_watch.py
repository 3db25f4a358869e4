"""Who waits for news hears of it once, also of what came before he waited, and need not wait for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from resolute_master.engine.engine import Watch


@pytest.fixture
def watchers() -> dict[Any, set[Watch]]:
    return {}


async def test_news_end_the_wait(watchers: dict[Any, set[Watch]]) -> None:
    with Watch(watchers, ["key"]) as watch:
        waiting = asyncio.create_task(watch.changed(20.0))
        await asyncio.sleep(0)
        watch.wake()
        assert await waiting
        assert not await watch.changed(0.0), "told once"
    assert not watchers


async def test_news_from_before_the_wait_are_told_at_once(watchers: dict[Any, set[Watch]]) -> None:
    with Watch(watchers, ["key"]) as watch:
        watch.wake()
        watch.wake()
        assert await asyncio.wait_for(watch.changed(), 20)
        assert not await watch.changed(0.0)


async def test_the_wait_ends_without_news(watchers: dict[Any, set[Watch]]) -> None:
    with Watch(watchers, ["key"]) as watch:
        assert not await asyncio.wait_for(watch.changed(0.001), 20)
        waiting = asyncio.create_task(watch.changed())
        await asyncio.sleep(0)
        watch.wake()
        assert await asyncio.wait_for(waiting, 20), "and may be waited for again"


async def test_who_does_not_wait_any_more_keeps_no_news_from_the_next(watchers: dict[Any, set[Watch]]) -> None:
    with Watch(watchers, ["key"]) as watch:
        waiting = asyncio.create_task(watch.changed(20.0))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        watch.wake()
        assert await asyncio.wait_for(watch.changed(20.0), 20)


async def test_a_second_who_waits_for_one_watch_is_refused() -> None:
    with Watch({}, ["key"]) as watch:
        first = asyncio.create_task(watch.changed())
        await asyncio.sleep(0)
        with pytest.raises(AssertionError, match="another caller waits for this watch already"):
            await watch.changed()
        watch.wake()
        assert await first
