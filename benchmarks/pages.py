"""Transferred bytes of pages, latency of updates on an open page, and the master's cost of many open tabs.

    python -m benchmarks.pages [--tabs 200] [--seconds 60] [--database sqlite|postgres]

The trials of the cluster report ten times per second. Bytes are those of a browser with an empty cache. The latency of an update is
the time from the request that changes something until the page in a browser shows the change. One of many tabs performs the calls
of the page's scripts: it listens to the stream of its page, and after each signal it reads its page, and the curves if the page has
some. A tenth of the tabs shows the list, the others show trials. The tabs run in another process than the master, whose processor
time and memory are read from the system. Memory must not grow from the first to the second half of the time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import aiohttp
import psutil
from playwright.sync_api import BrowserContext, Page

from benchmarks import browser
from benchmarks.cluster import Client, Cluster, cluster, experiment
from benchmarks.reads import on_databases
from benchmarks.report import Row, Spread, Target

TABS, SECONDS = 200, 60.0
TRIALS, REPORTS_A_SECOND = 8, 10
TIMES = 10
LINES, POINTS_OF_A_LINE = 100, 1000


def main(arguments: list[str] | None = None) -> list[Row]:
    return on_databases("pages", arguments, {"tabs": TABS, "seconds": SECONDS}, _measured)


def _measured(database: str, db: Mapping[str, Any] | None, wanted: argparse.Namespace) -> list[Row]:
    with cluster(slots=0, db=db) as running, closing(running.client()) as client:
        trials = [_trial(client, number) for number in range(TRIALS)]
        for trial in trials:
            for step in range(1, 200):
                _report(client, trial, step)
        rows = _in_a_browser(running, client, trials[0]) if db is None else []
        with _reporting(running, trials):
            rows.append(_many_tabs(running, trials, wanted.tabs, wanted.seconds, database))
    return rows


def _trial(client: Client, number: int) -> dict[str, int]:
    """A trial of an unmanaged experiment, which needs no agent."""
    body = json.loads(experiment(["true"], name=f"pages-{number}"))
    made = client.post("/api/v1/experiments", {**body, "unmanaged": True})["experiment"]["id"]
    task = client.post("/api/v1/trials", {"experimentId": made, "hparams": {"lr": 0.1}, "unmanaged": True})["trial"]
    client.post(f"/api/v1/trials/{task['id']}/start", {"trialId": task["id"], "resume": False})
    return {"experiment": made, "trial": task["id"]}


def _report(client: Client, trial: Mapping[str, int], step: int) -> None:
    metrics = {"avgMetrics": {"loss": 1 / step, "accuracy": 1 - 1 / step}}
    told = {"trialId": trial["trial"], "trialRunId": 1, "stepsCompleted": step, "metrics": metrics}
    client.post(f"/api/v1/trials/{trial['trial']}/metrics", {"group": "training", "metrics": told})


@contextmanager
def _reporting(running: Cluster, trials: list[dict[str, int]]) -> Iterator[None]:
    over = threading.Event()

    def report() -> None:
        with closing(running.client()) as client:
            step = 10_000
            while not over.is_set():
                begun, step = time.monotonic(), step + 1
                for trial in trials:
                    _report(client, trial, step)
                over.wait(max(0.0, begun + 1 / REPORTS_A_SECOND - time.monotonic()))

    reporter = threading.Thread(target=report)
    reporter.start()
    try:
        yield
    finally:
        over.set()
        reporter.join()


# --------------------------------------------------------------------------------------------------------- in a browser


def _in_a_browser(running: Cluster, client: Client, trial: Mapping[str, int]) -> list[Row]:
    at_experiment = f"/det/experiments/{trial['experiment']}"
    at_trial = f"{at_experiment}/trials/{trial['trial']}"
    with browser.a_person(running) as person:
        rows = [
            _bytes(person, "bytes of the first page, home", "/det/"),
            _bytes(person, "bytes of the page of a trial, with charts", at_trial),
            _large_chart(person, at_trial),
        ]
        tab = person.new_page()
        tab.goto(at_trial)
        tab.wait_for_selector("[data-source][data-points='199']")
        rows.append(_shown(tab, "a metric point is drawn", 2000.0, lambda n: _point(client, tab, trial, n)))
        tab.goto(at_experiment)
        tab.wait_for_selector("#live", state="attached")
        tab.wait_for_timeout(2000)  # its stream is open
        rows.append(_shown(tab, "a change of state is shown", 1000.0, lambda n: _renamed(client, tab, trial, n)))
        tab.goto(f"{at_trial}/logs")
        tab.get_by_text("following").wait_for()
        rows.append(_shown(tab, "a line of a log is shown", 1000.0, lambda n: _line(client, tab, trial, n)))
    return rows


def _bytes(person: BrowserContext, name: str, path: str) -> Row:
    kilobytes = browser.bytes_of(person, path) / 1000
    return Row(
        name=name,
        subject=Spread.one(kilobytes, "kB"),
        result=kilobytes,
        unit="kB",
        target=Target(at_most=200.0),
    )


def _large_chart(person: BrowserContext, path: str) -> Row:
    """The page's script draws a hundred lines of a thousand points, and draws them again for each setting."""
    steps = list(range(POINTS_OF_A_LINE))
    lines = [
        {"label": str(n), "best": n == 0, "place": None, "step": steps, "time": steps, "epoch": [None] * len(steps),
         "value": [1 / (step + n + 1) for step in steps]}
        for n in range(LINES)
    ]  # fmt: skip
    tab = person.new_page()
    tab.route("**/curves*", lambda route: route.fulfill(json={"title": "loss", "lines": lines}))
    tab.goto(path)
    tab.wait_for_selector(f"[data-source][data-points='{LINES * POINTS_OF_A_LINE}'] canvas")
    taken: list[float] = tab.evaluate(
        """async (times) => {
          const smooth = document.querySelector("[data-tool='smooth']"), taken = [];
          for (let n = 0; n < times; n += 1) {
            smooth.value = n % 2 ? "0" : "0.6";
            const begun = performance.now();
            smooth.dispatchEvent(new Event("input", {bubbles: true}));
            await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
            taken.push(performance.now() - begun);
          }
          return taken;
        }""",
        TIMES,
    )
    tab.close()
    spread = Spread.of(taken, "ms")
    return Row(
        name="100,000 points are drawn again for another setting",
        subject=spread,
        result=spread.median,
        unit="ms",
        notes="in software, without a graphics card",
    )


def _shown(tab: Page, name: str, at_most: float, change: Callable[[int], None]) -> Row:
    """`change` performs the n-th change, and returns when the page shows it."""
    taken = []
    for number in range(TIMES):
        begun = time.perf_counter()
        change(number)
        taken.append(1000 * (time.perf_counter() - begun))
        tab.wait_for_timeout(300 + 170 * number)  # at different moments of the second
    spread = Spread.of(taken, "ms")
    return Row(name=name, subject=spread, result=spread.high, unit="ms", target=Target(at_most=at_most))


def _point(client: Client, tab: Page, trial: Mapping[str, int], number: int) -> None:
    _report(client, trial, 200 + number)
    tab.wait_for_selector(f"[data-source][data-points='{200 + number}']", state="attached")


def _renamed(client: Client, tab: Page, trial: Mapping[str, int], number: int) -> None:
    client.call("PATCH", f"/api/v1/experiments/{trial['experiment']}", {"name": f"renamed-{number}"})
    tab.get_by_role("heading", name=f"renamed-{number}", exact=True).wait_for()


def _line(client: Client, tab: Page, trial: Mapping[str, int], number: int) -> None:
    task = client.get(f"/api/v1/trials/{trial['trial']}")["trial"]["taskId"]
    client.post("/api/v1/task/logs", {"logs": [{"taskId": task, "log": f"line {number} of the log\n"}]})
    tab.get_by_text(f"line {number} of the log").wait_for()


# ------------------------------------------------------------------------------------------------------------ many tabs


def _many_tabs(running: Cluster, trials: list[dict[str, int]], tabs: int, seconds: float, database: str) -> Row:
    assert running.master is not None
    master = psutil.Process(running.master.pid)
    paths = [
        "/det/experiments"
        if n % 10 == 0
        else "/det/experiments/{experiment}/trials/{trial}".format(**trials[n % TRIALS])
        for n in range(tabs)
    ]
    opened = asyncio.run(_looked_at(running, paths, master, seconds))
    cores = Spread.one(opened.cores, "cores")
    return Row(
        name=f"{tabs} open tabs, {database}",
        subject=cores,
        result=opened.cores,
        unit="cores",
        target=Target(at_most=1.0),
        notes=f"{TRIALS * REPORTS_A_SECOND} reports a second; {opened.signals / seconds:.0f} signals and "
        f"{opened.reads / seconds:.0f} reads a second; "
        f"memory {opened.first_mib:.0f} MiB in the first half, {opened.second_mib:.0f} in the second",
    )


class _Opened:
    cores = 0.0
    first_mib = 0.0
    second_mib = 0.0
    signals = 0
    reads = 0


async def _looked_at(running: Cluster, paths: list[str], master: psutil.Process, seconds: float) -> _Opened:
    opened = _Opened()
    headers = {"Authorization": f"Bearer {running.token}", "Accept": "text/html", "Sec-Fetch-Site": "same-origin"}
    base = f"http://127.0.0.1:{running.port}"
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(base, headers=headers, connector=connector) as session:
        looking = [asyncio.create_task(_look(session, path, opened)) for path in paths]
        await asyncio.sleep(5)
        memory: list[float] = []
        begun, used, opened.signals, opened.reads = time.monotonic(), _processor(master), 0, 0
        while time.monotonic() < begun + seconds:
            await asyncio.sleep(1)
            memory.append(master.memory_info().rss / 2**20)
        opened.cores = (_processor(master) - used) / (time.monotonic() - begun)
        half = len(memory) // 2
        opened.first_mib, opened.second_mib = statistics.mean(memory[:half]), statistics.mean(memory[half:])
        for task in looking:
            task.cancel()
        await asyncio.gather(*looking, return_exceptions=True)
    return opened


def _processor(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


async def _look(session: aiohttp.ClientSession, path: str, opened: _Opened) -> None:
    """The calls of a page's scripts."""
    topics = "experiments" if path.endswith("/experiments") else "trial:" + path.rpartition("/")[2]
    await _read(session, path, opened)
    async with session.get(f"/det/events?topics={topics}", timeout=aiohttp.ClientTimeout(total=None)) as stream:
        async for line in stream.content:
            if line.startswith(b"event: ") and line != b"event: ready\n":
                opened.signals += 1
                await _read(session, path, opened)


async def _read(session: aiohttp.ClientSession, path: str, opened: _Opened) -> None:
    for each in (path, f"{path}/curves") if "/trials/" in path else (path,):
        async with session.get(each) as answer:
            answer.raise_for_status()
            await answer.read()
            opened.reads += 1


if __name__ == "__main__":
    for row in main(sys.argv[1:]):
        print(row.name, row.subject.text(), row.notes)
