"""Text from people in one line, in several, beside colours and in JSON: nothing that a terminal obeys is left."""

from __future__ import annotations

import json
import sys
import unicodedata
from functools import cache

import pytest

from resolute import printable


@cache
def hostile() -> list[str]:
    everything = (chr(point) for point in range(sys.maxunicode + 1))
    return [each for each in everything if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


def test_no_character_of_a_hostile_category_is_left() -> None:
    for function, kept in ((printable.one_line, ""), (printable.lines, "\t\n"), (printable.with_colors, "\t\n")):
        left = [each for each in hostile() if function(f"a{each}b") == f"a{each}b"]
        assert "".join(left) == kept


def test_what_people_write_stays() -> None:
    for text in ("plain", "größer", "模型　一", "नमूना", "مرحبا", "🚀", "e\u0301", "a\u00a0b"):
        assert printable.one_line(text) == printable.lines(text) == printable.with_colors(text) == text
        assert printable.json_escaped(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x9b2J\x7f", "\\x9b2J\\x7f"),
        ("\u202egnp\u2066", "\\u202egnp\\u2066"),
        ("a\u200bb\ufeff", "a\\u200bb\\ufeff"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_it_is_written_as_in_a_literal(text: str, shown: str) -> None:
    assert printable.one_line(text) == shown


def test_only_colours_stay_beside_colours() -> None:
    assert printable.with_colors("\x1b[1;31mred\x1b[0m\x1b[m\n") == "\x1b[1;31mred\x1b[0m\x1b[m\n"
    assert printable.with_colors("\x1b[2J\x1b[31\x1bm\x1b[?25h\r") == "\\x1b[2J\\x1b[31\\x1bm\\x1b[?25h\\r"


def test_json_means_the_same() -> None:
    for each in (*hostile(), "\U000e0041", "ü"):
        written = printable.json_escaped(json.dumps({"name": f"a{each}b"}, ensure_ascii=False))
        assert json.loads(written) == {"name": f"a{each}b"}
        assert printable.one_line(written) == written
