"""`python -m showcase [--port 8099] [--days 90] [--seed 1]`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import secrets
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from resolute.clock import Clock, SystemClock
from resolute.errors import ResoluteError
from resolute_master.api.reading.log_ring import LogRing
from resolute_master.store.sql import SqlStore, sqlite_url
from showcase.cluster import Cluster
from showcase.loop import JumpingLoop
from showcase.serving import ADMINISTRATOR, Served
from showcase.setting import TEAMS, master_config
from showcase.work import Work

FAILED = 1
KEPT_LINES = 2_000


def main(arguments: Sequence[str]) -> int:
    """Returns 0 after Ctrl-C, 1 if a part has failed."""
    parser = argparse.ArgumentParser(prog="python -m showcase", description="A populated cluster to look at.")
    parser.add_argument("--port", type=int, default=0, help="where it is served (default: a free one)")
    parser.add_argument("--days", type=int, default=90, help="how long the team has worked (default 90)")
    parser.add_argument("--seed", type=int, default=1, help="of everything that is drawn (default 1)")
    parser.add_argument("--password", default="", help="of all users (default: a new one)")
    parser.add_argument("--pictures", type=Path, help="take pictures of its pages into this folder, and end")
    given = parser.parse_args(arguments)
    if given.days < 1:
        parser.error(f"--days: {given.days} must be 1 or more")
    port = given.port or _free_port()
    with tempfile.TemporaryDirectory(prefix="resolute-showcase-") as folder:
        showcase = _Showcase(Path(folder), port=port, days=given.days, seed=given.seed, pictures=given.pictures)
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            try:
                runner.run(showcase.run(given.password or secrets.token_urlsafe(9)))
            except ResoluteError as error:
                print(f"The showcase has failed: {error}", file=sys.stderr)
                return FAILED
    return 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class _Showcase:
    def __init__(self, folder: Path, *, port: int, days: int, seed: int, pictures: Path | None) -> None:
        self._folder = folder
        self._config = master_config(folder, port)
        self._port = port
        self._days = days
        self._seed = seed
        self._pictures = pictures

    async def run(self, password: str) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, JumpingLoop)
        begin = SystemClock().now() - timedelta(days=self._days)
        store = await SqlStore.open(sqlite_url(self._folder / "showcase.db"))
        cluster = Cluster(config=self._config, store=store, seed=self._seed, begin=begin)
        await cluster.start()
        served = Served(cluster, _ring(cluster.clock))
        await served.set_up(password)
        work = Work(cluster, served, random.Random(self._seed))
        tasks = [asyncio.create_task(cluster.restless()), asyncio.create_task(work.by_day())]
        await work.catch_up(self._days, _progress)
        loop.pass_time()
        tasks.append(asyncio.create_task(work.while_looked_at()))
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        async with served.listening():
            if self._pictures is not None:
                # Imported here because only this needs a browser.
                from showcase.pictures import take

                await take(f"http://127.0.0.1:{self._port}", password, self._pictures)
            else:
                self._print(password)
                await _until(stop, cluster, tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await cluster.close()

    def _print(self, password: str) -> None:
        people = ", ".join(person for team in TEAMS for person in team.people)
        print(
            f"\n\nhttp://127.0.0.1:{self._port}/det/\n\n"
            f"Log in as {ADMINISTRATOR}, or as one of {people}; the password of all of them is {password}\n"
            "Time passes now as it does: experiments train, machines come and go. Ctrl-C ends it.",
            flush=True,
        )


async def _until(stop: asyncio.Event, cluster: Cluster, tasks: Sequence[asyncio.Task[None]]) -> None:
    while not stop.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 2.0)
        failure = cluster.failure() or next((task.exception() for task in tasks if task.done()), None)
        if failure is not None:
            raise failure


def _progress(day: int, days: int, experiments: int) -> None:
    print(f"\r{experiments} experiments in {day} of {days} days", end="", flush=True)


class _Stamped(logging.Filter):
    """Formats lines of the master's log with the cluster's time."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def filter(self, record: logging.LogRecord) -> bool:
        record.created = self._clock.now().timestamp()
        return True


def _ring(clock: Clock) -> LogRing:
    ring = LogRing(KEPT_LINES)
    ring.addFilter(_Stamped(clock))
    logging.getLogger().addHandler(ring)
    logging.getLogger("resolute_master").setLevel(logging.INFO)
    return ring


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
