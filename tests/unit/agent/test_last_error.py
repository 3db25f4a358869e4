"""What a failed program said last."""

from __future__ import annotations

import pytest

from resolute.wire.agent_link import MAX_ERROR_CHARACTERS
from resolute_agent.last_error import Traceback, last_error

FIRST = """Traceback (most recent call last):
  File "data.py", line 3, in load
    raise KeyError("x")
KeyError: 'x'
"""
LAST = """Traceback (most recent call last):
  File "train.py", line 9, in <module>
    main()
ValueError: shapes (3,4) and (5,) do not fit"""


@pytest.mark.parametrize(
    ("stderr", "stdout", "told"),
    [
        (f"{FIRST}\nDuring handling of the above exception, another exception occurred:\n\n{LAST}\n", "", LAST),
        (f"{LAST}\nException ignored in: <_io>\n", FIRST, LAST),
        ("a warning\n", f"step 1\n{LAST}\n", LAST),
        (LAST, "", LAST),
        ("".join(f"[rank1]: {line}\n" for line in LAST.splitlines()), "", LAST),
        (f"{LAST}\n{LAST.replace('ValueError: shapes (3,4) and (5,) do not fit', 'x.ChildFailedError: ')}\n", "", LAST),
        (
            "one\ntwo\n\nbash: line 1: foo: command not found\n",
            "ready\n",
            "one\ntwo\nbash: line 1: foo: command not found",
        ),
        ("", "ready\n", "ready"),
        ("", "", ""),
    ],
)
def test_the_last_traceback_or_else_the_last_words(stderr: str, stdout: str, told: str) -> None:
    assert last_error(stderr.encode(), stdout.encode()) == told


def test_of_a_long_traceback_the_end_is_kept() -> None:
    long = "Traceback (most recent call last):\n" + "  File x\n" * 5000 + "RecursionError: " + "y" * 3000
    told = last_error(long.encode(), b"")
    assert len(told) <= MAX_ERROR_CHARACTERS and told.endswith("y" * 3000)
    assert len(told.split("\n")) < 40


def test_bytes_that_are_no_text_and_nuls_are_no_trouble() -> None:
    assert last_error(b"\xff\0broken\n", b"") == "\N{REPLACEMENT CHARACTER}broken"


def test_the_lines_of_a_traceback_are_told_apart() -> None:
    following = Traceback()
    lines = ["before", *LAST.splitlines(), "after", "  indented"]
    assert [line for line in lines if following.holds(line)] == LAST.splitlines()
