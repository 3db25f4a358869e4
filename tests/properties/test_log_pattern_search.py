"""A pattern is found in every line in which it is found by itself, however many lines are looked through at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from resolute.config.patterns import compiled
from resolute_master.engine.log_matching import in_some_line, lines_with

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


ends = st.sampled_from(("", "\n", "\n\n"))


@given(pattern=patterns, lines=st.lists(st.tuples(texts, ends), max_size=5))
def test_what_is_found_in_a_line_is_found_in_all_of_them_together(pattern: str, lines: list[tuple[str, str]]) -> None:
    raw = [line.encode() for line, _ in lines]
    alone = [number for number, line in enumerate(raw) if compiled(pattern).search(line) is not None]
    assert lines_with(pattern, raw) == alone
    if alone:
        assert in_some_line(pattern, "\n".join(line + end for line, end in lines).encode())


def test_lines_in_which_a_usual_pattern_is_not_found_are_not_looked_at_one_by_one() -> None:
    assert not in_some_line("^b$", b"a\nba\n\nab")
    assert in_some_line("^b$", b"a\nb\n\nab")
