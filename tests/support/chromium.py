"""Starts the system's Chromium for tests of pages, without parts that the tests do not use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, async_playwright

PROGRAM = "/usr/bin/chromium"

_PLAYWRIGHT_DISABLES = (
    *("AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades"),
    *(
        "HttpsFirstBalancedModeAutoEnable",
        "LensOverlay",
        "MediaRouter",
        "PaintHolding",
        "ThirdPartyStoragePartitioning",
    ),
    *("AvoidCorsURLLoaderRestartOnRedirect", "OptimizationHints", "NetworkTimeServiceQuerying", "AimEnabled"),
    "PreconnectToSearch",
)
"""Chromium uses the last `--disable-features` only, so ours repeats the list of Playwright."""

_DRAWS_ITSELF = ("InitialWebUI", "WebUIReloadButton", "WebUIToolbar", "WebUIOmniboxPopup", "WebUIOmniboxAimPopup")
"""Parts of the window that Chromium renders as pages in a separate process. Without them and without a spare process, a tab costs
half of the processor time."""

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    f"--disable-features={','.join((*_PLAYWRIGHT_DISABLES, *_DRAWS_ITSELF, 'SpareRendererForSitePerProcess'))}",
)


@asynccontextmanager
async def a_chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=PROGRAM, args=list(ARGUMENTS))
        yield chromium
        await chromium.close()
