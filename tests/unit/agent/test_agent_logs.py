"""Output to lines: breaks, prefixes, bad bytes, long lines, and the same lines from any stored offset."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resolute_agent.logs import MAX_LINE_BYTES, LineSplitter, RawLine, parse_line


def split(data: bytes, *, chunk: int | None = None) -> list[RawLine]:
    splitter = LineSplitter()
    lines: list[RawLine] = []
    for start in range(0, len(data), chunk or max(1, len(data))):
        lines += splitter.feed(data[start : start + (chunk or len(data))])
    return lines + list(splitter.finish())


def texts(data: bytes) -> list[bytes]:
    return [line.data for line in split(data)]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"one\ntwo\n", [b"one", b"two"]),
        (b"no break at the end", [b"no break at the end"]),
        (b"\n\nafter blank lines\n", [b"", b"", b"after blank lines"]),
        (b"windows\r\nlines\r\n", [b"windows", b"lines"]),
        (b"\r 10%\r 20%\r100%\n", [b" 10%", b" 20%", b"100%"]),
        (b" 10%\r 20%\r\ndone\n", [b" 10%", b" 20%", b"done"]),
        (b"x\r\r\ny", [b"x", b"y"]),
    ],
)
def test_line_breaks(data: bytes, lines: list[bytes]) -> None:
    assert texts(data) == lines


def test_a_line_is_known_by_the_offset_of_its_first_byte() -> None:
    assert [(line.offset, line.end) for line in split(b"ab\r\ncd\rx")] == [(0, 3), (4, 7), (7, 8)]


def test_a_long_line_goes_on_as_the_next_one() -> None:
    lines = split(b"x" * (2 * MAX_LINE_BYTES + 5) + b"\nshort\n")
    assert [len(line.data) for line in lines] == [MAX_LINE_BYTES, MAX_LINE_BYTES, 5, 5]
    exact = split(b"x" * MAX_LINE_BYTES + b"\n")
    assert [len(line.data) for line in exact] == [MAX_LINE_BYTES]


def test_a_long_line_is_not_cut_inside_a_character() -> None:
    data = ("x" * (MAX_LINE_BYTES - 1) + "漢字").encode()
    first, second = split(data)
    assert first.data.decode() == "x" * (MAX_LINE_BYTES - 1)
    assert second.data.decode() == "漢字"


def test_lines_read_byte_by_byte_are_the_same() -> None:
    data = b"\r 1%\r 2%\r\nend\n\n\rlast"
    assert split(data, chunk=1) == split(data)


OUTPUT = st.lists(
    st.one_of(
        st.sampled_from([b"\n", b"\r", b"\r\n", b"[rank=1] ", b"INFO: ", "漢".encode(), b"\xff\xfe"]),
        st.binary(max_size=20),
        st.integers(MAX_LINE_BYTES - 2, MAX_LINE_BYTES + 2).map(lambda size: b"y" * size),
    ),
    max_size=12,
).map(b"".join)


@given(OUTPUT, st.integers(1000, 9000))
def test_lines_do_not_depend_on_how_the_output_was_read(data: bytes, chunk: int) -> None:
    assert split(data, chunk=chunk) == split(data)


@given(OUTPUT, st.data())
def test_reading_on_from_a_stored_line_gives_the_rest(data: bytes, draw: st.DataObject) -> None:
    lines = split(data)
    kept = draw.draw(st.integers(0, len(lines)))
    stored = lines[kept - 1].end if kept else 0
    splitter = LineSplitter(stored, data[stored - 1 : stored] if stored else b"")
    assert [*splitter.feed(data[stored:]), *splitter.finish()] == lines[kept:]


@given(OUTPUT)
def test_no_byte_but_breaks_is_lost(data: bytes) -> None:
    breaks = bytes.maketrans(b"", b"")
    kept = b"".join(line.data for line in split(data)).translate(breaks, b"\r\n")
    assert kept == data.translate(breaks, b"\r\n")


@pytest.mark.parametrize(
    ("data", "text", "level", "rank"),
    [
        (b"plain", "plain\n", "INFO", None),
        (b"[rank=3] hello", "hello\n", "INFO", 3),
        (b"ERROR: [12] root: bad", "[12] root: bad\n", "ERROR", None),
        (b"[rank=0] DEBUG: fine", "fine\n", "DEBUG", 0),
        (b"WARNING: [rank=1] x", "[rank=1] x\n", "WARNING", None),
        (b"ERRORS: many", "ERRORS: many\n", "INFO", None),
        (b"an ERROR: inside", "an ERROR: inside\n", "INFO", None),
        (b"[rank=x] hello", "[rank=x] hello\n", "INFO", None),
        (b"bad \xff\xfe bytes", "bad �� bytes\n", "INFO", None),
        (b"", "\n", "INFO", None),
    ],
)
def test_prefixes_become_fields_and_bad_bytes_are_replaced(
    data: bytes, text: str, level: str, rank: int | None
) -> None:
    parsed = parse_line(data)
    assert (parsed.text, parsed.level, parsed.rank) == (text, level, rank)
