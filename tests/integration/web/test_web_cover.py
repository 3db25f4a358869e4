"""Every page in a real browser: who looks, how much there is, how wide and in which colours; a pairwise selection of it all.

`make web-full` (RESOLUTE_WEB_FULL=1) opens every combination, with ten thousand experiments.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser as Chromium
from playwright.async_api import Page

from resolute_master.store.sql import SqlStore
from support.api import PASSWORD
from support.chromium import a_chromium
from support.web import Browser, a_browser, a_web
from support.web_scene import EVERYWHERE, populate

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.asyncio(loop_scope="module")]

ROOT = Path(__file__).resolve().parents[3]
AXE = (ROOT / "tests" / "web" / "vendor" / "axe" / "axe.min.js").read_text(encoding="utf-8")
FULL = os.environ.get("RESOLUTE_WEB_FULL", "") == "1"
MANY = 10_000 if FULL else 60
"""Experiments: sixty are more than a page of the list."""

ROLES, WIDTHS, THEMES = ("root", "bob", ""), (1280, 768, 360), ("light", "dark")
AMOUNTS = {"nothing": None, "some": 0, "many": MANY}

SERIOUS = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations
  .filter((each) => each.impact === "serious" || each.impact === "critical")
  .map((each) => `${each.id}: ${each.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`)"""


@dataclass(slots=True)
class Tab:
    """One page of a browser, and what its console complained of: a violation of the content security policy is told there."""

    page: Page
    complaints: list[str] = field(default_factory=list)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Chromium]:
    """One for all tests, which have a profile each: to start it takes longer than most of them."""
    async with a_chromium() as started:
        yield started


@asynccontextmanager
async def a_tab(chromium: Chromium, browser: Browser, role: str, **context: Any) -> AsyncIterator[Tab]:
    """With the session of `role`, whose login is not repeated in the browser."""
    made = await chromium.new_context(base_url=str(browser.world.server.make_url("/")), **context)
    if role:
        async with a_browser(browser.world) as session:
            await session.log_in(role)
            cookies = [(cookie.key, cookie.value) for cookie in session.http.cookie_jar]
        await made.add_cookies(
            [{"name": name, "value": value, "url": str(browser.world.server.make_url("/"))} for name, value in cookies]
        )
    tab = Tab(await made.new_page())
    tab.page.on("console", lambda told: tab.complaints.append(told.text) if told.type in ("error", "warning") else None)
    tab.page.on("pageerror", lambda error: tab.complaints.append(str(error)))
    tab.page.on("dialog", lambda dialog: tab.complaints.append(f"dialog {dialog.message}"))
    yield tab
    await made.close()


def selection(pages: Sequence[str], shift: int) -> Iterator[tuple[str, str, int, str]]:
    """Page, role, width and theme. Each page is seen by each role; over the pages each width and theme meets each role, and
    `shift`, which differs with the amount of objects, moves them on, so that they meet the amounts too."""
    if FULL:
        yield from product(pages, ROLES, WIDTHS, THEMES)
        return
    for place, path in enumerate(pages):
        for number, role in enumerate(ROLES):
            shared = 3 if path in EVERYWHERE else 2  # amounts of objects with which there is such a page
            if (place + number + shift) % shared and role:
                continue  # another amount opens it for this role
            width = WIDTHS[(place + 2 * number + shift) % 3]
            yield path, role, width, THEMES[(place // 3 + number + shift) % 2]


async def check(tab: Tab, path: str, width: int) -> list[str]:
    """What is wrong with a page, in words."""
    page = tab.page
    answer = await page.goto(path, wait_until="load")
    wrong = [] if answer is not None and answer.status == 200 else [f"status {answer.status if answer else 'none'}"]
    if await page.evaluate("document.documentElement.scrollWidth") > width:
        wrong.append("wider than its window")
    if await page.evaluate("window.owned !== undefined"):
        wrong.append("a text has run as a script")
    await page.evaluate(AXE)
    wrong += await page.evaluate(SERIOUS)
    wrong += tab.complaints
    tab.complaints.clear()
    return [f"{path} at {width}: {each}" for each in wrong]


@pytest.mark.parametrize("amount", ["nothing", pytest.param("some", marks=[] if FULL else pytest.mark.nightly), "many"])
@pytest.mark.timeout(3600 if FULL else 240)
async def test_every_page_is_whole_accessible_and_runs_no_text(tmp_path: Path, chromium: Chromium, amount: str) -> None:
    wrong: list[str] = []
    # The store in memory looks at each row for each row.
    store = await SqlStore.open(f"sqlite:///{tmp_path}/master.db") if FULL else None
    async with a_web(tmp_path, config={"launch_error": False}, store=store) as browser:
        more = AMOUNTS[amount]
        pages = EVERYWHERE if more is None else (await populate(browser, many=more)).pages
        chosen = sorted(selection(pages, list(AMOUNTS).index(amount)), key=lambda row: row[1:])
        for role, width, theme in sorted({row[1:] for row in chosen}):
            size: Any = {"width": width, "height": 800}
            async with a_tab(chromium, browser, role, viewport=size, color_scheme=theme) as tab:
                for path in [row[0] for row in chosen if row[1:] == (role, width, theme)]:
                    if not role:
                        found = await tab.page.request.get(path, headers={"Accept": "text/html"})
                        if not found.url.startswith(str(browser.world.server.make_url("/det/login"))):
                            wrong.append(f"{path} is shown to who has not logged in")
                        continue
                    wrong += await check(tab, path, width)
                if not role:
                    wrong += await check(tab, "/det/login", width)
    assert not wrong, "\n".join(wrong)


async def test_pages_are_read_and_forms_sent_without_scripts(tmp_path: Path, chromium: Chromium) -> None:
    async with a_web(tmp_path, config={"launch_error": False}) as browser:
        scene = await populate(browser)
        async with a_tab(chromium, browser, "ada", java_script_enabled=False) as tab:
            page = tab.page
            await page.goto("/det/login")
            await page.get_by_label("Name").fill("ada")
            await page.get_by_label("Password").fill(PASSWORD)
            await page.get_by_role("button", name="Log in").click()
            await page.get_by_role("link", name="Experiments", exact=True).click()
            await page.get_by_label("Experiment 1", exact=True).check()
            await page.get_by_label("Experiment 2", exact=True).check()
            await page.get_by_role("button", name="Compare").click()
            await page.get_by_role("heading", name="Compare trials").wait_for()
            await page.goto(next(path for path in scene.pages if "/trials/" in path and path.endswith("/logs")))
            assert await page.get_by_text("{{ 7*7 }}").count() > 0
            await page.goto("/det/experiments/new")
            await page.get_by_label("Configuration in YAML").fill("name: x\nmax_restarts: -1\n")
            await page.get_by_role("button", name="Check").click()
            await page.get_by_text("Nothing is created until").wait_for()


async def test_the_keyboard_alone_reaches_and_leaves_everything(tmp_path: Path, chromium: Chromium) -> None:
    async with a_web(tmp_path, config={"launch_error": False}) as browser:
        await populate(browser)
        async with a_tab(chromium, browser, "ada") as tab:
            page, keys = tab.page, tab.page.keyboard
            await page.goto("/det/experiments/1")
            await keys.press("Tab")
            focused = "document.activeElement.textContent.trim()"
            assert await page.evaluate(focused) == "Skip to the content"
            await keys.press("Enter")
            assert await page.evaluate("document.activeElement.id") == "content"
            reached: list[str] = []
            while "Kill" not in reached and len(reached) < 30:
                await keys.press("Tab")
                reached.append(await page.evaluate(focused))
                outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
                assert outline != "none", f"no focus is seen on {reached[-1]}"
            assert {"Fork", "Pause", "Kill"} <= set(reached)
            await keys.press("Enter")
            await page.locator("dialog[open]").wait_for()
            assert await page.evaluate("document.activeElement.closest('dialog') !== null")
            await keys.press("Escape")
            await page.wait_for_selector("dialog", state="detached")
            assert await page.evaluate(focused) == "Kill"
            await page.goto("/det/experiments/new")
            await page.get_by_label("Configuration in YAML").focus()
            await keys.press("Tab")
            assert await page.evaluate("document.activeElement.tagName") == "TEXTAREA"
            await keys.press("Escape")
            await keys.press("Tab")
            assert await page.evaluate("document.activeElement.tagName") != "TEXTAREA"
        assert tab.complaints == []


async def test_an_editor_marks_the_line_that_is_wrong_while_one_types(tmp_path: Path, chromium: Chromium) -> None:
    async with a_web(tmp_path, config={"launch_error": False}) as browser:
        async with a_tab(chromium, browser, "ada") as tab:
            page = tab.page
            await page.goto("/det/experiments/new")
            text = "name: typed\nentrypoint: run\nsearcher: {name: sngle, metric: loss}\n"
            await page.get_by_label("Configuration in YAML").fill(text)
            await page.get_by_text("did you mean 'single'?").wait_for()
            assert await page.locator(".gutter .wrong").all_text_contents() == ["3"]
            await page.get_by_label("Configuration in YAML").fill(text.replace("sngle", "single"))
            await page.get_by_text("This can be submitted.").wait_for()
            assert await page.locator(".gutter .wrong").count() == 0
            await page.get_by_role("button", name="Submit").click()
            await page.get_by_role("heading", name="typed").wait_for()
        assert tab.complaints == []
