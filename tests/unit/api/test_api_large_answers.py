"""Answers with all that a large cluster has are written a row at a time, and say the same."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from resolute_master.api.http.call import json_response, large_response, rendered


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    some_number: int
    a_text: str = 'with "quotes" and ü'


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    all_rows: tuple[Row, ...] = ()
    by_name: dict[str, Row] = field(default_factory=dict)
    lone_row: Row | None = None
    how_many: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """An answer without a field."""


ROWS = tuple(Row(some_number=number) for number in range(3))


@pytest.mark.parametrize(
    "answer",
    [
        Answer(all_rows=ROWS, by_name={'a "name"': ROWS[0], "b": ROWS[1]}, lone_row=ROWS[2], how_many=3),
        Answer(all_rows=ROWS[:1], by_name={"one": ROWS[0]}),
        Answer(),
        Nothing(),
    ],
)
async def test_in_pieces_as_in_one(answer: object) -> None:
    whole = json_response(answer).body
    assert (await large_response(answer)).body == whole
    assert (await rendered(lambda: answer)).body == whole
    assert json_response(answer).body == whole, "the answer itself is as it was"
