"""Users, workspaces, templates, configuration, health and the master's log: for administrators, and as far as others may."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from resolute_master.domain.ids import PoolName
from resolute_master.domain.template import Template
from resolute_master.domain.user import User
from resolute_master.engine.price_watch import PriceWatch
from resolute_master.lifecycle import workspaces
from resolute_provisioner.clouds.base import Transient
from resolute_provisioner.model import Offer
from resolute_provisioner.prices import LivePrice
from support.web import Browser, a_web

USERS, PLACES, TEMPLATES = "/det/admin/users", "/det/admin/workspaces", "/det/admin/templates"


@pytest.fixture
async def root(browser: Browser) -> Browser:
    await browser.log_in("root")
    return browser


def _user(browser: Browser, name: str) -> User:
    (found,) = [user for user in browser.world.users() if user.username == name]
    return found


async def test_an_administrator_creates_a_user_who_logs_in(root: Browser) -> None:
    page = await root.submit(await root.open(USERS), USERS, username="carl", password="a good one")
    assert "carl" in page.words and page.path == USERS
    await root.log_in("carl", "a good one")
    assert "Home" in (await root.open("/det/")).words


async def test_what_the_call_refuses_is_said_on_the_page(root: Browser) -> None:
    page = await root.open(USERS)
    refused = await root.send(USERS, {**page.form(USERS), "username": " ", "password": "x"}, status=400)
    assert "user.username: must be a name of 1 to" in refused.words
    again = await root.send(USERS, {**page.form(USERS), "username": "ada", "password": "x"}, status=409)
    assert "ada" in again.words and len(root.world.users()) == 3


async def test_a_user_is_deactivated_made_administrator_and_given_a_password(root: Browser) -> None:
    bob = _user(root, "bob")
    path = f"{USERS}/{bob.id}"
    page = await root.submit(await root.open(USERS), path, admin="yes")
    assert _user(root, "bob").admin
    page = await root.submit(page, path, active="no")
    assert not _user(root, "bob").active and "Deactivated" in page.words
    await root.submit(page, path, active="yes")
    await root.submit(page, path, password="another")
    await root.log_in("bob", "another")
    assert "bob" in (await root.open("/det/")).words


async def test_who_is_no_administrator_sees_why_not(browser: Browser) -> None:
    page = await browser.open(USERS)
    assert "may not create users" in page.text and not page.has_form(USERS)
    bob = _user(browser, "bob")
    assert not page.has_form(f"{USERS}/{bob.id}")
    await browser.send(f"{USERS}/{bob.id}", {**page.form("/det/logout"), "active": "no"}, status=403)
    configuration = await browser.open("/det/admin/configuration")
    assert "may not see the master's configuration" in configuration.text.replace("&#39;", "'")
    assert "checkpoint_storage" not in configuration.words
    assert page.has_form(f"{USERS}/{_user(browser, 'ada').id}"), "everybody changes their own password"


async def test_workspaces_and_projects_are_created_and_renamed(browser: Browser) -> None:
    page = await browser.submit(await browser.open(PLACES), PLACES, name="vision")
    (made,) = [each for each in workspaces.workspaces(browser.world.engine.state) if each.name == "vision"]
    page = await browser.submit(page, f"{PLACES}/{made.id}/projects", name="digits")
    assert "digits" in page.words
    page = await browser.submit(page, f"{PLACES}/{made.id}", name="sight")
    assert "sight" in page.words and "vision" not in page.words
    refused = await browser.send(PLACES, {**page.form(PLACES), "name": "sight"}, status=409)
    assert "sight" in refused.words


async def test_a_template_is_written_changed_and_deleted(browser: Browser) -> None:
    page = await browser.submit(await browser.open(TEMPLATES), TEMPLATES, name="small", config="max_restarts: 1\n")
    assert browser.world.engine.state.get(Template, "small") is not None
    chosen = await browser.open(f"{TEMPLATES}?name=small")
    assert "max_restarts: 1" in chosen.text
    await browser.submit(chosen, TEMPLATES, config="max_restarts: 2\n")
    changed = browser.world.engine.state.get(Template, "small")
    assert changed is not None and changed.config["max_restarts"] == 2
    wrong = await browser.send(TEMPLATES, {**page.form(TEMPLATES), "name": "bad", "config": "a: ["}, status=400)
    assert "not readable as YAML" in wrong.words and "a: [" in wrong.text
    await browser.submit(chosen, f"{TEMPLATES}/small/delete")
    assert browser.world.engine.state.get(Template, "small") is None


async def test_the_configuration_is_shown_with_masks_and_health_with_versions(root: Browser) -> None:
    page = await root.open("/det/admin/configuration")
    assert "checkpoint_storage:" in page.words
    await root.world.agent("agent-7")
    health = await root.open("/det/admin/health")
    assert "Available" in health.words and "All connected" in health.words and "1.2.3" in health.words


class Source:
    """Prices of a cloud that answers, or does not."""

    name = "scripted prices"

    def __init__(self, refusal: str = "") -> None:
        self._refusal = refusal

    async def spot_prices(self, offers: Sequence[Offer]) -> tuple[LivePrice, ...]:
        if self._refusal:
            raise Transient(self._refusal)
        return ()


async def test_the_prices_of_each_pool_are_shown_with_their_age_or_failure(tmp_path: Path) -> None:
    watches: list[PriceWatch] = []
    async with a_web(tmp_path, price_watches=watches) as browser:
        for pool, source in (("a", Source()), ("b", Source("RequestLimitExceeded")), ("c", Source())):
            made = PriceWatch(
                browser.world.engine,
                PoolName(pool),
                source,
                offers=(),
                period_s=300.0,
                clock=browser.world.context.clock,
                rng=random.Random(1),
            )
            watches.append(made)
        await watches[0].ask()
        await watches[1].ask()
        await browser.log_in("root")
        words = (await browser.open("/det/admin/health")).words
    assert "Prices of a scripted prices: read every 5 min, last now" in words
    assert "Prices of b scripted prices: failed 1 time RequestLimitExceeded" in words
    assert "Prices of c scripted prices: read every 5 min, not yet" in words


async def test_the_log_of_the_master_is_searched_and_followed(root: Browser) -> None:
    ring = root.world.context.master_log
    for level, text in ((logging.INFO, "first line"), (logging.ERROR, "second <b>line</b>")):
        ring.handle(logging.LogRecord("resolute_master.x", level, "x", 1, text, (), None))
    page = await root.open("/det/admin/logs")
    assert "first line" in page.words and "second <b>line</b>" in page.words
    assert "first line" not in (await root.open("/det/admin/logs?level=error")).words
    assert "level: 'loud' is not known" in (await root.open("/det/admin/logs?level=loud", status=400)).words
    (last,) = {part.split("after=")[1] for part in page.text.split('"') if "/logs/follow?after=" in part}
    async with root.http.get(root.world.server.make_url(f"/det/admin/logs/follow?after={last}")) as stream:
        ring.handle(logging.LogRecord("resolute_master.x", logging.INFO, "x", 1, "third line", (), None))
        told = ""
        while "third line" not in told:
            told += (await stream.content.readline()).decode()
    assert "second" not in told
