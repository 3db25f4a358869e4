"""The JSON rules of the contract, one by one."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resolute.errors import InvalidInput
from resolute.wire.codec import Int64, Key, from_query, from_wire, to_query, to_wire


class Colour(StrEnum):
    RED = "COLOUR_RED"
    BLUE = "COLOUR_BLUE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    part_name: str
    size_bytes: Int64 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    id: int
    is_raw: bool = False
    score: float | None = None
    colour: Colour = Colour.RED
    at: datetime | None = None
    content: bytes = b""
    total: Int64 | None = None
    parts: tuple[Part, ...] = ()
    first_part: Part | None = None
    sizes: Mapping[str, Int64] = field(default_factory=dict)
    hparams: Mapping[str, Any] = field(default_factory=dict)
    anything: Any = None
    pair: tuple[str, int] = ("", 0)
    verb: Literal["up", "down"] = "up"
    odd: Annotated[str, Key("odd_name")] = ""


AT = datetime(2024, 5, 1, 12, 0, 0, 250_000, tzinfo=UTC)

FULL = Whole(
    id=7,
    is_raw=True,
    score=math.inf,
    colour=Colour.BLUE,
    at=AT,
    content=b"\x00\xff",
    total=2**53 + 1,
    parts=(Part(part_name="a", size_bytes=3),),
    first_part=Part(part_name="b"),
    sizes={"file_one/x": 12},
    hparams={"learning_rate": 0.1, "keepCase": {"snake_case": [1]}},
    anything=[1, {"a_b": None}],
    pair=("x", 2),
    verb="down",
    odd="o",
)


def test_goes_out_in_camel_case_with_every_field() -> None:
    assert to_wire(FULL) == {
        "id": 7,
        "isRaw": True,
        "score": "Infinity",
        "colour": "COLOUR_BLUE",
        "at": "2024-05-01T12:00:00.250000Z",
        "content": "AP8=",
        "total": "9007199254740993",
        "parts": [{"partName": "a", "sizeBytes": "3"}],
        "firstPart": {"partName": "b", "sizeBytes": "0"},
        "sizes": {"file_one/x": "12"},
        "hparams": {"learning_rate": 0.1, "keepCase": {"snake_case": [1]}},
        "anything": [1, {"a_b": None}],
        "pair": ["x", 2],
        "verb": "down",
        "odd_name": "o",
    }


def test_unset_fields_go_out_as_null_and_zero_values() -> None:
    out = to_wire(Whole(id=0))
    assert set(out) == set(to_wire(FULL))
    assert (out["id"], out["parts"], out["sizes"], out["firstPart"], out["score"]) == (0, [], {}, None, None)


def test_comes_back_equal() -> None:
    assert from_wire(Whole, json.loads(json.dumps(to_wire(FULL), allow_nan=False))) == FULL


def test_snake_case_is_read_but_not_inside_free_form_values() -> None:
    got = from_wire(Whole, {"id": 1, "is_raw": True, "first_part": {"part_name": "p"}, "hparams": {"a_b": {"c_d": 1}}})
    assert got.is_raw
    assert got.first_part == Part(part_name="p")
    assert got.hparams == {"a_b": {"c_d": 1}}


def test_null_is_unset_and_unknown_keys_are_ignored() -> None:
    assert from_wire(Whole, {"id": 1, "colour": None, "parts": None, "total": None, "newer": {}}) == Whole(id=1)


@pytest.mark.parametrize("value", [12, "12", 12.0])
def test_integers_are_read_from_numbers_and_strings(value: object) -> None:
    got = from_wire(Whole, {"id": value, "total": value})
    assert (got.id, got.total) == (12, 12)


@pytest.mark.parametrize("text", ["NaN", "Nan", "nan"])
def test_nan_is_read_in_any_case(text: str) -> None:
    score = from_wire(Whole, {"id": 1, "score": text}).score
    assert score is not None
    assert math.isnan(score)


@pytest.mark.parametrize(("text", "value"), [("Infinity", math.inf), ("-INFINITY", -math.inf), ("2.5", 2.5), (3, 3.0)])
def test_floats_are_read_from_numbers_and_strings(text: object, value: float) -> None:
    assert from_wire(Whole, {"id": 1, "score": text}).score == value


def test_numbers_that_are_not_finite_stay_valid_json_inside_free_form_values() -> None:
    out = to_wire(Whole(id=1, hparams={"loss": math.nan, "nested": [math.inf]}))
    assert out["hparams"] == {"loss": "NaN", "nested": ["Infinity"]}


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2024-05-01T12:00:00.25Z", AT),
        ("2024-05-01T14:00:00.250000+02:00", AT),
        ("2024-05-01T12:00:00.250000123Z", AT),
        ("2024-05-01t12:00:00.25z", AT),
    ],
)
def test_times_are_read_in_every_form_of_rfc_3339(text: str, moment: datetime) -> None:
    got = from_wire(Whole, {"id": 1, "at": text}).at
    assert got == moment
    assert got is not None and got.tzinfo is UTC


def test_times_of_other_zones_go_out_in_utc() -> None:
    there = AT.astimezone(timezone(timedelta(hours=-7)))
    assert to_wire(Whole(id=1, at=there))["at"] == "2024-05-01T12:00:00.250000Z"


def test_a_time_without_a_zone_is_an_error_of_the_program() -> None:
    with pytest.raises(ValueError, match="without a zone"):
        to_wire(Whole(id=1, at=datetime(2024, 5, 1)))


@pytest.mark.parametrize(
    ("data", "key", "value"),
    [
        ({"id": "x"}, "id", "'x'"),
        ({"id": True}, "id", "True"),
        ({"id": 1.5}, "id", "1.5"),
        ({"id": 2**64}, "id", "18446744073709551616"),
        ({"id": 1, "isRaw": "true"}, "isRaw", "'true'"),
        ({"id": 1, "score": "fast"}, "score", "'fast'"),
        ({"id": 1, "colour": "RED"}, "colour", "'RED'"),
        ({"id": 1, "at": "2024-05-01"}, "at", "'2024-05-01'"),
        ({"id": 1, "at": "2024-05-01T12:00:00"}, "at", "'2024-05-01T12:00:00'"),
        ({"id": 1, "at": "0001-01-01T00:00:00+14:00"}, "at", "'0001-01-01T00:00:00+14:00'"),
        ({"id": 1, "content": "&&"}, "content", "'&&'"),
        ({"id": 1, "content": "é"}, "content", "'é'"),
        ({"id": 1, "parts": {}}, "parts", "{}"),
        ({"id": 1, "parts": [None]}, "parts[0]", "None"),
        ({"id": 1, "parts": [{"partName": "a"}, {"partName": 3}]}, "parts[1].partName", "3"),
        ({"id": 1, "parts": ["x"]}, "parts[0]", "'x'"),
        ({"id": 1, "sizes": {"a": "b"}}, "sizes.a", "'b'"),
        ({"id": 1, "sizes": []}, "sizes", "[]"),
        ({"id": 1, "hparams": "x"}, "hparams", "'x'"),
        ({"id": 1, "pair": ["x"]}, "pair", "['x']"),
        ({"id": 1, "verb": "left"}, "verb", "'left'"),
        ([], "the body", "[]"),
    ],
)
def test_wrong_values_are_named_with_their_key(data: object, key: str, value: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        from_wire(Whole, data)
    assert str(caught.value).startswith(f"{key}: {value} ")
    assert "send " in str(caught.value)


def test_missing_keys_are_named() -> None:
    with pytest.raises(InvalidInput, match=r"missing 'parts\[0\]\.partName'"):
        from_wire(Whole, {"id": 1, "parts": [{}]})


def test_a_key_given_in_both_spellings_is_refused() -> None:
    with pytest.raises(InvalidInput, match="given twice"):
        from_wire(Whole, {"id": 1, "isRaw": True, "is_raw": False})


def test_long_values_are_cut_in_error_texts() -> None:
    with pytest.raises(InvalidInput) as caught:
        from_wire(Whole, {"id": "9" * 5000})
    assert len(str(caught.value)) < 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    gte: int | None = None
    not_in: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    states: tuple[Colour, ...] = ()
    archived: bool | None = None
    limit: int = 0
    name: str | None = None
    id_filter: Bounds | None = None


def test_a_query_is_read_from_repeated_and_dotted_keys() -> None:
    pairs = [
        ("states", "COLOUR_RED"),
        ("states", "COLOUR_BLUE"),
        ("archived", "false"),
        ("limit", "-1"),
        ("name", "true"),
        ("idFilter.gte", "3"),
        ("idFilter.notIn", "5"),
        ("id_filter.not_in", "6"),
        ("unknown", "1"),
    ]
    with pytest.raises(InvalidInput, match="given twice"):
        from_query(Query, pairs)
    query = Query(
        states=(Colour.RED, Colour.BLUE), archived=False, limit=-1, name="true", id_filter=Bounds(gte=3, not_in=(5,))
    )
    assert from_query(Query, pairs[:-2]) == query
    assert to_query(query) == pairs[:-2]


def test_a_query_says_nothing_of_fields_at_their_default() -> None:
    assert to_query(Query()) == []


@pytest.mark.parametrize(
    "pairs", [[("archived", "maybe")], [("limit", "ten")], [("idFilter", "1")], [("limit.a", "1")]]
)
def test_a_wrong_query_is_refused_with_its_key(pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(InvalidInput, match=pairs[0][0].partition(".")[0]):
        from_query(Query, pairs)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(sorted(to_wire(FULL))), JSON_VALUES))
def test_any_json_is_either_read_or_refused(data: dict[str, Any]) -> None:
    """Whatever a stranger sends, the only error is `InvalidInput`, and what was read can be sent again."""
    try:
        message = from_wire(Whole, data)
    except InvalidInput:
        return
    json.dumps(to_wire(message), allow_nan=False)


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=40), st.datetimes(timezones=st.just(UTC)))
def test_values_survive_the_way_out_and_back(number: int, content: bytes, at: datetime) -> None:
    message = Whole(id=1, total=number, content=content, at=at)
    assert from_wire(Whole, json.loads(json.dumps(to_wire(message)))) == message


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    name: str
    inner: tuple[Folder, ...] = ()


def test_a_message_may_hold_messages_of_its_own_kind() -> None:
    tree = Folder(name="a", inner=(Folder(name="b", inner=(Folder(name="c"),)), Folder(name="d")))
    plain = to_wire(tree)
    assert plain == {
        "name": "a",
        "inner": [{"name": "b", "inner": [{"name": "c", "inner": []}]}, {"name": "d", "inner": []}],
    }
    assert from_wire(Folder, plain) == tree
