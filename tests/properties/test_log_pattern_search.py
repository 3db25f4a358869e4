"""A pattern is found in exactly the lines in which it is found by itself, however many lines are looked through at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from resolute.config.log_policies import compiled
from resolute_master.engine.log_matching import lines_with

ATOMS = (
    "a",
    "b",
    "ä",
    ".",
    ".*",
    "^",
    "$",
    r"\b",
    r"\B",
    r"\A",
    r"\z",
    r"\s",
    "[^a]",
    "(?i)",
    "(?-m)",
    "(?s)",
    r"\Q.",
    r"\pL",
    "",
)
SUFFIXES = ("", "", "", "*", "+?", "{2}")


def readable(pattern: str) -> bool:
    try:
        compiled(pattern)
    except ValueError:
        return False
    return True


atoms = st.tuples(st.sampled_from(ATOMS), st.sampled_from(SUFFIXES)).map("".join)
parts = st.lists(atoms, min_size=1, max_size=4).map("".join)
patterns = st.lists(parts, min_size=1, max_size=2).map("|".join).filter(readable)
texts = st.text(alphabet="abÄä .\t", max_size=6)


@given(pattern=patterns, lines=st.lists(texts, max_size=5))
def test_lines_are_found_together_as_they_are_one_by_one(pattern: str, lines: list[str]) -> None:
    raw = [line.encode() for line in lines]
    alone = [number for number, line in enumerate(raw) if compiled(pattern).search(line) is not None]
    assert lines_with(pattern, raw, b"\n".join(raw)) == alone
