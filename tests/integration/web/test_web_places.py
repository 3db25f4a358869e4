"""The administration of workspaces and projects: what can be done is done, and what cannot says why."""

from __future__ import annotations

import html
from pathlib import Path

import pytest

from resolute_master.domain.workspace import Deletion, Project, Workspace
from support.api import a_config
from support.places import contents_at_work
from support.web import Browser, Html

PLACES, PROJECTS = "/det/admin/workspaces", "/det/admin/projects"


@pytest.fixture
async def furnished(browser: Browser) -> Browser:
    """Ada's workspaces `lab` (2, with the project `a`, 2) and `attic` (3)."""
    for name in ("lab", "attic"):
        await browser.world.post("/api/v1/workspaces", {"name": name})
    await browser.world.post("/api/v1/workspaces/2/projects", {"name": "a", "workspaceId": 2})
    return browser


def workspace(browser: Browser, id_: int) -> Workspace | None:
    return browser.world.engine.state.get(Workspace, id_)


def project(browser: Browser, id_: int) -> Project | None:
    return browser.world.engine.state.get(Project, id_)


def reasons(page: Html) -> str:
    return html.unescape(page.text)


async def test_a_project_is_edited_moved_archived_and_deleted(furnished: Browser) -> None:
    page = await furnished.open(PLACES)
    page = await furnished.submit(page, f"{PROJECTS}/2", name="digits", key="dig", description="ten of them")
    assert "digits" in page.words and "DIG" in page.words and "ten of them" in page.words
    page = await furnished.submit(page, f"{PROJECTS}/2/move", workspace="3")
    assert (moved := project(furnished, 2)) is not None and moved.workspace_id == 3
    page = await furnished.submit(page, f"{PROJECTS}/2/archive")
    assert "archived" in page.words and "It is archived: unarchive it first." in reasons(page)
    assert not page.has_form(f"{PROJECTS}/2") and not page.has_form(f"{PROJECTS}/2/move")
    page = await furnished.submit(page, f"{PROJECTS}/2/unarchive")
    asked = await furnished.open(f"{PROJECTS}/2/ask/delete")
    assert "are removed for good" in asked.words
    page = await furnished.submit(asked, f"{PROJECTS}/2/delete")
    assert page.path == PLACES and "being deleted" in page.words and "It is being deleted." in reasons(page)
    async with contents_at_work(furnished.world.engine, furnished.world.context.store):
        with furnished.world.engine.watch("", "") as news:
            while project(furnished, 2) is not None:
                await news.changed(1)
    assert "digits" not in (await furnished.open(PLACES)).words


async def test_a_workspace_is_pinned_archived_and_deleted(furnished: Browser) -> None:
    page = await furnished.submit(await furnished.open(PLACES), f"{PLACES}/3/pin")
    assert page.words.index("attic") < page.words.index("lab"), "a pinned one is first"
    page = await furnished.submit(page, f"{PLACES}/3/unpin")
    page = await furnished.submit(page, f"{PLACES}/2/archive")
    assert "Its workspace is archived: unarchive that first." in reasons(page)
    refused = await furnished.send(f"{PLACES}/2/projects", {**page.form(PLACES), "name": "x"}, status=400)
    assert "workspace 'lab' is archived; unarchive it first" in refused.words
    page = await furnished.submit(page, f"{PLACES}/2/unarchive")
    assert page.has_form(f"{PROJECTS}/2")
    page = await furnished.submit(await furnished.open(f"{PLACES}/3/ask/delete"), f"{PLACES}/3/delete")
    assert workspace(furnished, 3) is None and "attic" not in page.words


async def test_what_cannot_be_done_is_shown_with_its_reason(furnished: Browser, tmp_path: Path) -> None:
    world = furnished.world
    id_ = (await world.create(a_config(workspace="lab", project="a"), activate=False))["id"]
    page = await furnished.open(PLACES)
    assert reasons(page).count("1 experiment has not ended: end it first.") >= 2, "of the project and its workspace"
    assert "It always exists, and does not change." in reasons(page)
    asked = await furnished.open(f"{PROJECTS}/2/ask/delete")
    assert "1 experiment has not ended" in asked.words and not asked.has_form(f"{PROJECTS}/2/delete")
    refused = await furnished.send(f"{PROJECTS}/2/delete", page.form(PLACES), status=400)
    assert f"det experiment kill {id_}" in refused.words
    found = project(furnished, 2)
    assert found is not None and found.deletion is Deletion.NONE
    await furnished.log_in("bob")
    page = await furnished.open(PLACES)
    assert "may not edit project 'a' of 'ada'" in reasons(page) and not page.has_form(f"{PROJECTS}/2/archive")
    await furnished.send(f"{PROJECTS}/2/archive", page.form("/det/logout"), status=403)


async def test_an_experiment_of_an_archived_project_says_why_it_cannot_be_edited(furnished: Browser) -> None:
    world = furnished.world
    id_ = (await world.create(a_config(workspace="lab", project="a"), activate=False))["id"]
    await world.post(f"/api/v1/experiments/{id_}/kill")
    await world.post("/api/v1/projects/2/archive")
    why = "project 'a' of workspace 'lab' is archived; unarchive it first (det project unarchive lab a)"
    page = await furnished.open(f"/det/experiments/{id_}")
    assert why in reasons(page) and not page.has_form(f"/det/experiments/{id_}/archive")
    assert why in reasons(await furnished.open(f"/det/experiments/{id_}/notes"))
    assert (await furnished.open(f"/det/experiments/{id_}/ask/delete")).has_form(f"/det/experiments/{id_}/delete")
