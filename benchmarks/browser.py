"""Pages in a real browser: Chromium of this machine, logged in, with an empty cache where bytes are counted.

Times are those of the page's clock (`performance`), from the start of the navigation.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import BrowserContext, Page, sync_playwright

from benchmarks.cluster import PASSWORD, Cluster

CHROMIUM = shutil.which("chromium")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
WAIT_MS = 120_000

_PAINTED = """() => new Promise((resolve) => {
  const found = () => performance.getEntriesByName("first-contentful-paint")[0]?.startTime;
  if (found()) { resolve(found()); return; }
  new PerformanceObserver((_, observer) => { if (found()) { observer.disconnect(); resolve(found()); } })
    .observe({type: "paint", buffered: true});
})"""

_DRAWN = """(least) => new Promise((resolve) => {
  const look = () => {
    const charts = [...document.querySelectorAll("[data-source]")];
    if (charts.length && charts.every((each) => Number(each.dataset.points ?? 0) >= least)) resolve(performance.now());
    else requestAnimationFrame(look);
  };
  look();
})"""


@contextmanager
def a_person(running: Cluster, user: str = "determined") -> Iterator[BrowserContext]:
    """The user who has logged in."""
    assert CHROMIUM is not None, "install Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        context = chromium.new_context(
            base_url=f"http://127.0.0.1:{running.port}", viewport={"width": 1280, "height": 900}
        )
        context.set_default_timeout(WAIT_MS)
        tab = context.new_page()
        tab.goto("/")
        tab.get_by_label("Name").fill(user)
        tab.get_by_label("Password").fill(PASSWORD)
        tab.get_by_role("button", name="Log in").click()
        tab.wait_for_url("**/det/")
        tab.close()
        yield context
        chromium.close()


def _go(tab: Page, path: str) -> None:
    """Raises `RuntimeError` for an error page, whose time would be meaningless."""
    answer = tab.goto(path, wait_until="commit")
    if answer is None or answer.status != 200:
        raise RuntimeError(f"{path}: {answer.status if answer else 'no answer'}")


def first_paint(tab: Page, path: str) -> float:
    """Milliseconds until the first contentful paint."""
    _go(tab, path)
    painted: float = tab.evaluate(_PAINTED)
    return painted


def drawn(tab: Page, path: str, points: int) -> float:
    """Milliseconds until each chart of the page shows at least `points` points."""
    _go(tab, path)
    tab.wait_for_selector("[data-source]", state="attached")
    taken: float = tab.evaluate(_DRAWN, points)
    return taken


def bytes_of(context: BrowserContext, path: str) -> int:
    """Bytes transferred for the page and its resources with an empty cache, including headers."""
    tab = context.new_page()
    session: Any = context.new_cdp_session(tab)
    session.send("Network.enable")
    session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    sizes: list[float] = []
    session.on("Network.loadingFinished", lambda told: sizes.append(told["encodedDataLength"]))
    tab.goto(path, wait_until="load")
    tab.wait_for_timeout(1000)  # Requests of scripts after the load of the page. The stream of events never ends.
    tab.close()
    return int(sum(sizes))
