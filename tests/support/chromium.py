"""The system's Chromium for the tests of the pages: how it is started, and what it leaves out."""

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
"""Chromium obeys the last `--disable-features` alone: ours repeats that of Playwright."""

_DRAWS_ITSELF = ("InitialWebUI", "WebUIReloadButton", "WebUIToolbar", "WebUIOmniboxPopup", "WebUIOmniboxAimPopup")
"""Parts of the window, which no test sees, that Chromium shows as pages of their own, in a process for each window. Without them
and without a process in reserve, a tab costs half of the processor time."""

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
