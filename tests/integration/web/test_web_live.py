"""The stream of an open page."""

from __future__ import annotations

from support.web import Browser


async def test_a_page_that_begins_to_listen_reads_itself_again(browser: Browser) -> None:
    """What changed between the making of the page and its stream would never be shown."""
    url = browser.world.server.make_url("/det/events?topics=experiments")
    async with browser.http.get(url) as stream:
        told = [(await stream.content.readline()).decode() for _ in range(8)]
    assert [line for line in told if line.startswith("event: ")] == ["event: ready\n", "event: changed\n"]
