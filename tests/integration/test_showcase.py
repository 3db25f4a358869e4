"""The cluster to look at: a day of it passes at once, and then it is served and goes on."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from pathlib import Path

from aiohttp import ClientSession, CookieJar
from showcase.cluster import Cluster
from showcase.loop import JumpingLoop
from showcase.serving import Served
from showcase.setting import TEAMS, master_config
from showcase.work import Work

from resolute.clock import SystemClock
from resolute_master.api.reading.log_ring import LogRing
from resolute_master.domain.instance import Instance
from resolute_master.store.sql import SqlStore, sqlite_url
from support.ports import free_port


async def a_day(folder: Path) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, JumpingLoop) and loop.jumping
    port = free_port()
    store = await SqlStore.open(sqlite_url(folder / "showcase.db"))
    begin = SystemClock().now() - timedelta(hours=6)
    cluster = Cluster(config=master_config(folder, port), store=store, seed=3, begin=begin)
    await cluster.start()
    served = Served(cluster, LogRing())
    await served.set_up("a password")
    work = Work(cluster, served, random.Random(3))
    await work.catch_up(1, lambda *_: None)
    assert abs((cluster.clock.now() - SystemClock().now()).total_seconds()) < 60
    loop.pass_time()
    assert cluster.failure() is None and len(work.submitted) == 7
    bought = await store.instances(since=begin)
    assert {each.pool for each in bought} == {"gpus", "large"} and any(
        each.cost(begin, cluster.clock.now()) for each in bought
    )
    assert len(cluster.master.engine.state.all(Instance)) > 0
    async with served.listening(), ClientSession(cookie_jar=CookieJar(unsafe=True)) as http:
        root = f"http://127.0.0.1:{port}"
        name = {"username": TEAMS[0].people[0], "password": "a password"}
        async with http.post(f"{root}/det/login", data=name, headers={"Accept": "text/html"}) as response:
            assert response.status == 200 and "Running now" in await response.text()
        async with http.get(f"{root}/det/experiments", headers={"Accept": "text/html"}) as response:
            text = await response.text()
            assert response.status == 200 and "search" in text and "for the release" in text
        async with http.get(f"{root}/det/resourcepool/gpus/advice", headers={"Accept": "text/html"}) as response:
            text = await response.text()
            assert response.status == 200 and "pool &#39;gpus&#39; is too short" in text
    await cluster.close()
    await store.close()


def test_hours_pass_at_once_and_then_the_cluster_is_served_live(tmp_path: Path) -> None:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(a_day(tmp_path))


def test_time_jumps_to_the_next_timer_and_waits_for_threads() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, JumpingLoop)
        await asyncio.sleep(90 * 86_400.0)
        assert loop.time() == 90 * 86_400.0
        timer = asyncio.create_task(asyncio.sleep(3600.0))
        assert await asyncio.to_thread(lambda: 7) == 7
        assert loop.time() == 90 * 86_400.0 and not timer.done()
        await timer
        assert loop.time() == 90 * 86_400.0 + 3600.0
        loop.pass_time()
        await asyncio.sleep(0.01)
        assert 0.01 <= loop.time() - 90 * 86_400.0 - 3600.0 < 60.0

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(scenario())
