"""Submit and fork by a form: the same checks and the same errors as of the call."""

from __future__ import annotations

import io
import json
import tarfile
from typing import Any

import pytest
from aiohttp import FormData

from resolute_master.domain.experiment import Experiment
from support.api import a_config, a_file
from support.web import Browser, Html

NEW = "/det/experiments/new"
CONFIG = "name: by form\nentrypoint: python3 train.py\nsearcher: {name: single, metric: loss}\nmax_restarts: 0\n"


def _files(page: Html, fields: dict[str, str], *files: tuple[str, str, bytes]) -> FormData:
    form = FormData({**page.form(NEW), **fields}, quote_fields=False, default_to_multipart=True)
    for field, path, content in files:
        form.add_field(field, content, filename=path, content_type="application/octet-stream")
    return form


async def _stored(browser: Browser, page: Html) -> Experiment:
    found = browser.world.engine.state.get(Experiment, int(page.path.rpartition("/")[2]))
    assert found is not None
    return found


async def test_an_experiment_is_submitted_with_a_folder_of_code(browser: Browser) -> None:
    page = await browser.open(NEW)
    assert "This can be submitted." in page.words
    form = _files(
        page, {"config": CONFIG, "do": "submit"}, ("code", "m/train.py", b"print(1)\n"), ("code", "m/b.bin", b"\0")
    )
    made = await browser.send(NEW, form)
    stored = await _stored(browser, made)
    assert stored.config["name"] == "by form" and stored.state == "PAUSED", "the box that starts it was not ticked"
    archive = await browser.world.context.store.get_context(stored.context_hash)
    assert archive is not None
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        assert opened.getnames() == ["b.bin", "train.py"]
    code = await browser.open(f"{made.path}/code")
    assert "print ( 1 )" in code.words and "train.py" in code.words
    async with browser.http.get(browser.world.server.make_url(f"{made.path}/code/archive")) as answer:
        assert await answer.read() == archive
    await browser.open(f"{made.path}/code?file=none.py", status=404)


async def test_a_configuration_that_is_a_file_takes_the_place_of_the_text(browser: Browser) -> None:
    page = await browser.open(NEW)
    form = _files(
        page, {"config": "not: used", "do": "submit", "activate": "yes"}, ("config_file", "c.yaml", CONFIG.encode())
    )
    stored = await _stored(browser, await browser.send(NEW, form))
    assert stored.original_config == CONFIG and stored.state == "ACTIVE" and stored.context_hash == ""


async def test_what_the_call_refuses_the_form_refuses_in_the_same_words(browser: Browser) -> None:
    wrong = CONFIG.replace("max_restarts: 0", "max_restarts: -1\nmaxrestarts: 2")
    error = await browser.world.error("POST", "/api/v1/experiments", {"config": wrong}, status=400)
    texts = [line.split(": ", 1)[1] for line in error.split("\n")[1:]]
    page = await browser.open(NEW)
    checked = await browser.send(f"{NEW}/check", {**page.form(NEW), "config": wrong})
    refused = await browser.send(NEW, {**page.form(NEW), "config": wrong, "do": "submit"}, status=400)
    assert len(texts) == 2
    for shown in (checked, refused):
        assert all(text in shown.words for text in texts)
        assert 'data-line="4"' in shown.text and 'data-line="5"' in shown.text
    assert "max_restarts: -1" in refused.text, "what was typed is still there"
    assert browser.world.engine.state.all(Experiment) == ()


async def test_a_check_stores_nothing_and_tells_how_many_trials_there_will_be(browser: Browser) -> None:
    page = await browser.open(NEW)
    config = a_config(
        searcher={"name": "random", "metric": "loss", "max_trials": 7},
        hyperparameters={"lr": {"type": "double", "minval": 0, "maxval": 1}},
    )
    checked = await browser.send(f"{NEW}/check", {**page.form(NEW), "config": json.dumps(config)})
    assert "7 trials as far as the code trains" in checked.words
    without = await browser.send(NEW, {**page.form(NEW), "config": CONFIG, "do": "check"})
    assert "This can be submitted." in without.words and "by form" in without.words
    assert browser.world.engine.state.all(Experiment) == ()


async def test_a_fork_keeps_the_code_and_says_where_it_came_from(browser: Browser) -> None:
    first: dict[str, Any] = await browser.world.create(a_config(name="first"), modelDefinition=[a_file("train.py")])
    page = await browser.open(f"/det/experiments/{first['id']}/fork")
    assert "It runs the code of experiment" in page.words and "name: first" in page.text
    complete = await browser.open(f"/det/experiments/{first['id']}/fork?complete=yes")
    assert "max_restarts: 0" in complete.text and "scheduling_unit" in complete.text
    made = await browser.submit(page, NEW, config=CONFIG, do="submit")
    stored, parent = await _stored(browser, made), browser.world.engine.state.get(Experiment, first["id"])
    assert parent is not None and stored.context_hash == parent.context_hash != ""
    assert stored.parent_id == first["id"]
    assert any(link == f"/det/experiments/{first['id']}" for link in (await browser.open(made.path)).links)


async def test_a_form_of_another_site_submits_nothing(browser: Browser) -> None:
    await browser.send(NEW, {"config": CONFIG, "do": "submit"}, status=403)
    assert browser.world.engine.state.all(Experiment) == ()


@pytest.mark.parametrize("field", ["project", "parent"])
async def test_a_number_that_is_none_is_named(browser: Browser, field: str) -> None:
    page = await browser.open(NEW)
    refused = await browser.send(NEW, {**page.form(NEW), "config": CONFIG, field: "x"}, status=400)
    assert f"{field}: 'x' is not a number" in refused.words
