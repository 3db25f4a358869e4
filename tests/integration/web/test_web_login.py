"""Who comes in, by which door, and which forms are taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from resolute_master.domain.experiment import Experiment
from support.web import Browser, a_browser, a_web


async def test_the_front_door_leads_people_to_the_login_and_on_to_the_page_that_they_wanted(tmp_path: Path) -> None:
    async with a_web(tmp_path) as browser:
        page = await browser.open("/")
        assert page.path == "/det/login?next=/det/" and "Log in" in page.words
        page = await browser.open("/det/experiments?state=active")
        home = await browser.submit(page, "/det/login", username="ada", password="correct horse")
        assert home.path == "/det/experiments?state=active"


async def test_a_program_at_the_root_is_told_that_there_is_no_call(browser: Browser) -> None:
    answer = await browser.world.call("GET", "/", status=404)
    assert answer == {"message": "unknown call GET /"}


@pytest.mark.parametrize("next_", ["//evil.example", "https://evil.example", "/\\evil", "/det/../\\x", "/api/v1/me"])
async def test_a_login_leads_to_our_own_pages_only(tmp_path: Path, next_: str) -> None:
    async with a_web(tmp_path) as browser:
        sent = {"username": "ada", "password": "correct horse", "next": next_}
        assert (await browser.send("/det/login", sent)).path == "/det/"


async def test_a_wrong_password_is_refused_in_words_that_do_not_tell_who_there_is(tmp_path: Path) -> None:
    async with a_web(tmp_path) as browser:
        wrong = await browser.send("/det/login", {"username": "ada", "password": "no"}, status=401)
        unknown = await browser.send("/det/login", {"username": "nobody", "password": "no"}, status=401)
        assert "The name or the password is not right." in wrong.words
        assert wrong.words == unknown.words


async def test_after_the_logout_no_page_is_shown(browser: Browser) -> None:
    page = await browser.open("/det/")
    assert (await browser.submit(page, "/det/logout")).path == "/det/login"
    assert (await browser.open("/det/experiments")).path.startswith("/det/login")


async def test_a_form_of_another_site_or_another_session_is_refused(browser: Browser) -> None:
    experiment = await browser.world.create()
    path = f"/det/experiments/{experiment['id']}"
    page = await browser.open(path)
    sent = page.form(f"{path}/pause")
    refused = await browser.send(f"{path}/pause", {}, status=403)
    assert "needs the token of its session" in refused.words
    refused = await browser.send(f"{path}/pause", sent, headers={"Sec-Fetch-Site": "cross-site"}, status=403)
    assert "another site" in refused.words
    async with a_browser(browser.world) as other:
        await other.log_in("root")
        await other.send(f"{path}/pause", sent, status=403)
    stored = browser.world.engine.state.get(Experiment, experiment["id"])
    assert stored is not None and stored.state == "ACTIVE"
    assert (await browser.send(f"{path}/pause", sent)).path == f"{path}?did=pause"
    stored = browser.world.engine.state.get(Experiment, experiment["id"])
    assert stored is not None and stored.state == "PAUSED"


async def test_every_page_forbids_what_it_did_not_bring_itself(browser: Browser) -> None:
    page = await browser.open("/det/")
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
    assert page.headers["Cache-Control"] == "no-store"


async def test_a_page_that_is_not_there_says_so_as_a_page(browser: Browser) -> None:
    assert "There is no page /det/nowhere" in (await browser.open("/det/nowhere", status=404)).words
    assert "experiment '99' not found" in (await browser.open("/det/experiments/99", status=404)).words


async def test_assets_are_kept_for_ever_and_need_no_login(tmp_path: Path) -> None:
    async with a_web(tmp_path) as browser:
        page = await browser.open("/det/login")
        (style,) = {
            part for part in page.text.split('"') if part.startswith("/det/assets/app.") and part.endswith(".css")
        }
        found = await browser.open(style)
        assert "immutable" in found.headers["Cache-Control"] and ":root" in found.text
        await browser.open("/det/assets/app.000000000000.css", status=404)


async def test_the_choice_of_colours_is_kept(browser: Browser) -> None:
    page = await browser.open("/det/")
    assert "data-theme" not in page.text
    dark = await browser.submit(page, "/det/theme", theme="dark")
    assert 'data-theme="dark"' in dark.text and dark.path == "/det/"
    assert "data-theme" not in (await browser.submit(dark, "/det/theme", theme="system")).text
