"""The form of a log line, whose it is, and what it must not hold."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from resolute import logs


@contextmanager
def a_log(form: str, level: str = "info") -> Iterator[tuple[logging.Logger, io.StringIO]]:
    """The process's log for a while."""
    root = logging.getLogger()
    handlers, before = list(root.handlers), root.level
    root.handlers = []
    written = io.StringIO()
    try:
        logs.set_up(level=level, form=form, to=written)
        yield logging.getLogger("resolute.test"), written
    finally:
        root.handlers = handlers
        root.setLevel(before)


def test_json_lines_carry_what_they_are_about() -> None:
    with a_log("json") as (log, written):
        with logs.about(request_id="r1", user="", experiment=None):
            logs.also_about(trial=7)
            log.info("step %d", 3, extra={"fields": {"pool": "default"}})
        log.warning("outside")
        try:
            raise ValueError("broken")
        except ValueError:
            log.exception("it failed")
    first, second, third = (json.loads(line) for line in written.getvalue().splitlines())
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "info",
        "logger": "resolute.test",
        "message": "step 3",
        "request_id": "r1",
        "trial": 7,
        "pool": "default",
    }
    assert "request_id" not in second and second["level"] == "warning"
    assert "ValueError: broken" in third["error"]


def test_text_lines_put_it_behind_the_first_line() -> None:
    with a_log("text") as (log, written), logs.about(agent="a1"):
        try:
            raise ValueError("broken")
        except ValueError:
            log.exception("it failed")
    first, *rest = written.getvalue().splitlines()
    assert first.endswith("ERROR   resolute.test: it failed [agent=a1]")
    assert rest[-1] == "  ValueError: broken"


HOSTILE = "a\x1b[2Jb\x9b\x7f\r\n2026-11-21T13:50:43.123Z INFO    forged: line\u202e\u200b\ud800"


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_name_in_a_message_a_field_or_an_error_is_written_raw(form: str) -> None:
    with a_log(form) as (log, written), logs.about(user=HOSTILE):
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            log.exception("of %s", HOSTILE)
    text = written.getvalue()
    assert "forged" in text and not [each for each in text if each != "\n" and not each.isprintable()]
    assert len([line for line in text.splitlines() if not line.startswith("  ")]) == 1
    if form == "json":
        line = json.loads(text)
        assert line["user"] == HOSTILE and line["message"] == f"of {HOSTILE}"


def test_a_field_never_replaces_the_line_s_own() -> None:
    with a_log("json") as (log, written), logs.about(message="forged", level="debug"):
        log.info("real")
    line = json.loads(written.getvalue())
    assert (line["message"], line["level"]) == ("real", "info")


async def test_tasks_do_not_see_each_other_s_fields() -> None:
    turn = asyncio.Event()

    async def one(name: str) -> object:
        with logs.about(request_id=name):
            await turn.wait()
            return logs.fields()["request_id"]

    tasks = [asyncio.create_task(one(name)) for name in ("a", "b")]
    turn.set()
    assert await asyncio.gather(*tasks) == ["a", "b"] and logs.fields() == {}


def test_every_level_of_the_configuration_is_one_of_logging() -> None:
    for level, number in logs.LEVELS.items():
        with a_log("text", level) as (log, written):
            assert log.getEffectiveLevel() == number
            log.log(number, "heard")
            log.log(number - 1, "unheard")
        assert "unheard" not in written.getvalue() and "heard" in written.getvalue()


TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJraW5kIjoic2Vzc2lvbiJ9.c2lnbmF0dXJlLXNpZ25hdHVyZQ"


@pytest.mark.parametrize(
    "text",
    [
        "sent Authorization: Bearer hunter2-hunter2",
        "db_password=hunter2 host=h",
        "{'initial_user_password': 'hunter2'}",
        '{"token": "hunter2", "a": 1}',
        "could not connect to postgresql://resolute:hunter2@db:5432/resolute",
        f"hunter2 is not here, but {TOKEN} was refused".replace("hunter2", "it"),
    ],
)
def test_secrets_are_masked(text: str) -> None:
    with a_log("json") as (log, written), logs.about(note=text):
        log.info("%s", text)
    assert "hunter2" not in written.getvalue() and TOKEN not in written.getvalue()
    assert logs.HIDDEN in written.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        "token missing",
        "security.initial_user_password: must be text (value 3)",
        "the first users have a generated password; it is in /a/b",
        "join_token: not the one that this master gave",
        "POST /api/v1/auth/login 200 in 3 ms",
        "http://127.0.0.1:8080/a@b",
    ],
)
def test_sentences_about_secrets_are_left_alone(text: str) -> None:
    assert logs.without_secrets(text) == text


def test_looking_for_secrets_takes_no_longer_for_odd_lines() -> None:
    """Long words and dots are what a slow pattern would choke on; the limit of the test says so."""
    for text in (
        "a" * 200_000,
        "a." * 100_000,
        "password" * 20_000,
        "x://" * 50_000,
        "://a:" * 50_000,
        "eyJ" + "a" * 200_000,
    ):
        assert logs.without_secrets(text) == text


def test_colours_are_for_terminals() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    record = logging.LogRecord("n", logging.ERROR, "f", 1, "bad", None, None)
    assert logs.TextFormatter(color=True).format(record).startswith("\x1b[31m")
    root = logging.getLogger()
    handlers, before = list(root.handlers), root.level
    root.handlers = []
    shown, piped = Terminal(), io.StringIO()
    try:
        for stream in (shown, piped):
            logs.set_up(level="info", color=True, to=stream)
            logging.getLogger("n").error("bad")
    finally:
        root.handlers = handlers
        root.setLevel(before)
    assert "\x1b[" in shown.getvalue() and "\x1b[" not in piped.getvalue()
    assert sys.stderr is not shown
