"""How results look, and the small functions behind it."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone

import pytest

from resolute.wire.rest.enums import LogLevel, WireTrialState
from resolute_cli.logs import levels_from
from resolute_cli.render import (
    Renderer,
    cell_text,
    confirmed,
    duration_text,
    json_block,
    percent_text,
    plain_table,
    size_text,
    state_text,
    time_text,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def rendered(format: str | None, *, terminal: bool = False) -> tuple[Renderer, io.StringIO, io.StringIO]:
    out, err = (Terminal(), Terminal()) if terminal else (io.StringIO(), io.StringIO())
    renderer = Renderer(out, err)
    renderer.format = format
    return renderer, out, err


def test_plain_tables_have_bars_a_rule_and_numbers_to_the_right() -> None:
    table = plain_table(("ID", "Name"), [(7, "a"), (12, None)])
    assert table == " ID | Name\n----+------\n  7 | a\n 12 |\n"


def test_an_empty_table_still_names_its_columns() -> None:
    assert plain_table(("ID", "Name"), []) == " ID | Name\n----+------\n"


def test_cells_are_one_line() -> None:
    assert plain_table(("A",), [("a\n b",)]).splitlines()[2] == " a\\n b"
    assert plain_table(("A",), [(json_block({"x": 1}),)]).splitlines()[2] == ' { "x": 1 }'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (datetime(2024, 5, 1, 14, tzinfo=timezone(timedelta(hours=2))), "2024-05-01 12:00:00+0000"),
        ({"b": 1, "a": None}, '{"a": null, "b": 1}'),
        (True, "True"),
        ("x", "x"),
    ],
)
def test_cells(value: object, text: str) -> None:
    assert cell_text(value) == text


def test_numbers_and_states_of_people() -> None:
    assert [size_text(n) for n in (None, 0, 1023, 1536, 99_614_720)] == ["", "0.0B", "1023.0B", "1.5KB", "95.0MB"]
    assert [percent_text(f) for f in (None, 0.0, 0.375, 1.0)] == ["", "0.0%", "37.5%", "100.0%"]
    assert [duration_text(s) for s in (3.44, 59.94, 60, 3723)] == ["3.4s", "59.9s", "1m00s", "1h02m03s"]
    assert (time_text(None), state_text(WireTrialState.STOPPING_CANCELED)) == ("", "STOPPING_CANCELED")


ROWS: Sequence[Sequence[object]] = [(1, "a,b"), (2, None)]


def test_csv_has_the_titles_in_its_first_line() -> None:
    renderer, out, _ = rendered("csv")
    renderer.table(("ID", "Name"), ROWS, [])
    assert out.getvalue() == 'ID,Name\r\n1,"a,b"\r\n2,\r\n'


def test_json_is_the_values_with_sorted_keys() -> None:
    renderer, out, _ = rendered("json")
    renderer.table(("ID",), [], [{"b": 1, "a": "é"}])
    assert out.getvalue() == '[\n  {\n    "a": "é",\n    "b": 1\n  }\n]\n'


def test_yaml_is_for_values_and_what_people_see_of_them() -> None:
    for format in ("yaml", None):
        renderer, out, _ = rendered(format)
        renderer.value({"b": {"c": [1]}, "a": None})
        assert out.getvalue() == "b:\n  c:\n  - 1\na: null\n"


def test_on_a_terminal_tables_are_drawn_and_messages_painted() -> None:
    renderer, out, err = rendered(None, terminal=True)
    renderer.table(("ID", "Name"), [(1, "[not markup]")], [])
    renderer.success("done")
    renderer.error("bad")
    assert "[not markup]" in out.getvalue()
    assert "|" not in out.getvalue()
    assert "\x1b[32mdone\x1b[0m" in out.getvalue()
    assert err.getvalue() == "\x1b[31mbad\x1b[0m\n"


def test_elsewhere_nothing_is_painted() -> None:
    renderer, out, err = rendered(None)
    renderer.success("done")
    renderer.warning("careful")
    assert (out.getvalue(), err.getvalue()) == ("done\n", "careful\n")


def test_for_programs_there_is_the_result_and_nothing_else() -> None:
    renderer, out, _ = rendered("json")
    renderer.note("working")
    renderer.success("done")
    renderer.done("Created experiment 1", id=1)
    assert json.loads(out.getvalue()) == {"id": 1}
    with renderer.progress("Uploading") as progress:
        assert progress is None


def test_a_bar_hears_of_the_upload_on_a_terminal() -> None:
    renderer, _, err = rendered(None, terminal=True)
    with renderer.progress("Uploading") as progress:
        assert progress is not None
        progress(5, 10)
        progress(10, 10)
    assert "Uploading" in err.getvalue()


@pytest.mark.parametrize(
    ("answers", "expected"), [("y\n", True), ("YES\n", True), ("n\n", False), ("what\nNo\n", False), ("", False)]
)
def test_questions_are_asked_until_they_are_answered(answers: str, expected: bool) -> None:
    renderer, _, err = rendered(None)
    assert confirmed("Sure?", renderer, io.StringIO(answers)) is expected
    assert err.getvalue().count("Sure? [y/n]: ") == max(1, answers.count("\n"))


def test_a_level_asks_for_itself_and_all_above() -> None:
    assert levels_from("WARNING") == (LogLevel.WARNING, LogLevel.ERROR, LogLevel.CRITICAL)
    assert levels_from(None) == ()


def test_times_in_tables_are_in_utc() -> None:
    assert time_text(datetime(2024, 5, 1, 12, 30, 15, 999_999, tzinfo=UTC)) == "2024-05-01 12:30:15+0000"


def test_what_programs_wrote_keeps_its_colours_on_a_terminal_and_everything_in_a_pipe() -> None:
    written = "\x1b[31mred\x1b[0m \x1b[2J\u202e\tend\n"
    renderer, out, _ = rendered(None, terminal=True)
    renderer.raw(written)
    assert out.getvalue() == "\x1b[31mred\x1b[0m \\x1b[2J\\u202e\tend\n"
    renderer, out, _ = rendered(None)
    renderer.raw(written)
    assert out.getvalue() == written


def test_yaml_with_escapes_means_the_same() -> None:
    import yaml

    value = {"a\u202eb": ["x\u200by " * 60, "\ufeffz", "größer: 一", "two\nlines"], "\x1b": None}
    renderer, out, _ = rendered("yaml")
    renderer.value(value)
    assert yaml.safe_load(out.getvalue()) == value and "größer: 一" in out.getvalue()
    assert not [each for each in out.getvalue() if each != "\n" and not each.isprintable()]
