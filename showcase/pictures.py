"""`python -m showcase --pictures FOLDER`: a picture of every page, and of the four main pages in both themes.

It needs Chromium and Playwright. Pictures are lossless WebP, which has a third of the size of PNG.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping
from pathlib import Path

from PIL import Image
from playwright.async_api import Browser, Page, async_playwright

from showcase.serving import ADMINISTRATOR

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--hide-scrollbars")
WIDTH, HEIGHT = 1280, 820

MAIN = ("home", "experiment", "pool", "money")
"""In both themes."""

COLUMNS = "&".join(
    f"column={name}"
    for name in (
        "id",
        "name",
        "state",
        "metric",
        "hp.learning_rate",
        "hp.dropout",
        "validation.accuracy.max",
        "user",
        "started",
    )
)
FILTER = "where=hp.learning_rate+%3C+0.005+and+validation.accuracy.max+%3E+0.5&sort=validation.accuracy.max"


async def places_of(page: Page) -> Mapping[str, str]:
    """Names and addresses of pictures, with the newest experiment of each kind."""

    async def first(where: str) -> str:
        await page.goto(f"/det/experiments?{where}")
        link = await page.locator("tbody tr td.number a.subject").first.get_attribute("href")
        assert link is not None
        return link

    search = await first("where=searcherType+%3D+adaptive_asha+and+numTrials+%3E+8+and+progress+%3E+0.2")
    single = await first("where=searcherType+%3D+single+and+duration+%3E+3000&state=completed&pool=large")
    failed = await first("state=error")

    async def trial_of(experiment: str) -> str:
        await page.goto(experiment)
        link = await page.locator("a.subject[href*='/trials/']").first.get_attribute("href")
        assert link is not None
        return link

    trial, lost = await trial_of(single), await trial_of(failed)
    return {
        "home": "/det/",
        "experiments": f"/det/experiments?{COLUMNS}&{FILTER}",
        "experiment": search,
        "search": f"{search}/search",
        "trial": trial,
        "log": f"{lost}/logs?first=error",
        "configuration": f"{single}/configuration",
        "code": f"{single}/code?file=model_def.py",
        "fork": f"{single}/fork",
        "queue": "/det/queue",
        "cluster": "/det/clusters",
        "pool": "/det/resourcepool/gpus?hours=6",
        "money": "/det/money?groupBy=user&since=90d",
        "health": "/det/admin/health",
        "users": "/det/admin/users",
        "rest-api": "/docs/rest-api",
    }


async def take(url: str, password: str, folder: Path) -> None:
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        await _themed(chromium, url, password, folder, "light")
        await _themed(chromium, url, password, folder, "dark")
        await chromium.close()


async def _themed(chromium: Browser, url: str, password: str, folder: Path, theme: str) -> None:
    context = await chromium.new_context(
        base_url=url,
        viewport={"width": WIDTH, "height": HEIGHT},
        color_scheme="dark" if theme == "dark" else "light",
        locale="en-GB",
        timezone_id="UTC",
    )
    page = await context.new_page()
    await page.goto("/det/login")
    if theme == "light":
        await _save(page, folder / "login.webp")
    await page.get_by_label("Name").fill(ADMINISTRATOR)
    await page.get_by_label("Password").fill(password)
    await page.get_by_role("button", name="Log in").click()
    await page.wait_for_url("**/det/")
    for name, path in (await places_of(page)).items():
        if theme == "dark" and name not in MAIN:
            continue
        await page.goto(path)
        for chart in await page.locator("[data-source]").all():
            await chart.locator("canvas").first.wait_for()
        await page.wait_for_timeout(1200)
        await _save(page, folder / f"{name}{'-dark' if theme == 'dark' else ''}.webp")
        print(f"{name} {theme}", flush=True)
    await context.close()


async def _save(page: Page, path: Path) -> None:
    shot = Image.open(io.BytesIO(await page.screenshot()))
    shot.convert("RGB").save(path, lossless=True, quality=100, method=6)
