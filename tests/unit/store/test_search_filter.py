"""The filter language: what it reads, and the place that it names when it cannot."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resolute.errors import InvalidInput
from resolute_master.store.search_filter import (
    MAX_DEPTH,
    MAX_FIELDS,
    MAX_SORTS,
    Comparison,
    Field,
    Group,
    Hyperparameter,
    Kind,
    Metric,
    Operator,
    Sort,
    Statistic,
    Table,
    flat_hyperparameters,
    parse_filter,
    parse_sort,
)


def _filter(*children: Any, **more: Any) -> str:
    return json.dumps({"filterGroup": {"kind": "group", "conjunction": "and", "children": [*children]}, **more})


def _field(name: str, operator: str, value: Any = None) -> dict[str, Any]:
    return {"kind": "field", "columnName": name, "operator": operator, "value": value}


def test_a_tree_is_read_into_types() -> None:
    inner = {"kind": "group", "conjunction": "or", "children": [_field("startTime", ">", "2026-01-31T08:00:00Z")]}
    tree, archived = parse_filter(
        _filter(
            _field("hp.opt.lr", "<", 0.1),
            _field("hp.opt.lr", "=", "auto"),
            _field("validation.a.b.max", ">=", "3"),
            inner,
            showArchived=True,
        ),
        Table.EXPERIMENTS,
    )
    rate = Hyperparameter(name="opt.lr")
    assert archived
    assert tree == Group(
        any=False,
        parts=(
            Comparison(column=rate, operator=Operator.LESS, value=0.1),
            Comparison(column=rate, operator=Operator.EQUAL, value="auto"),
            Comparison(
                column=Metric(group="validation", name="a.b", statistic=Statistic.MAX),
                operator=Operator.AT_LEAST,
                value=3.0,
            ),
            Group(
                any=True,
                parts=(
                    Comparison(
                        column=Field(name="startTime", kind=Kind.DATE),
                        operator=Operator.GREATER,
                        value=datetime(2026, 1, 31, 8, tzinfo=UTC),
                    ),
                ),
            ),
        ),
    )
    assert parse_filter("", Table.RUNS) == (Group(any=False, parts=()), False)


def _nested(depth: int) -> dict[str, Any]:
    group: dict[str, Any] = {"kind": "group", "children": []}
    for _ in range(depth):
        group = {"kind": "group", "children": [group]}
    return group


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"filterGroup": }', "character 16"),
        ("[]", "filter: must be"),
        (_filter(showArchived=1), "filter.showArchived"),
        ('{"filterGroup": 3}', "filter.filterGroup"),
        ('{"filterGroup": {"conjunction": "xor"}}', "filter.filterGroup.conjunction: 'xor'"),
        ('{"filterGroup": {"children": {}}}', "filter.filterGroup.children"),
        (_filter({"kind": "leaf"}), "filter.filterGroup.children[0].kind: 'leaf'"),
        (_filter(_field("id", "=", 1), _field("nope", "=", 1)), "filter.filterGroup.children[1].columnName: 'nope'"),
        (_filter(_field("validation.loss.median", "=", 1)), "columnName: 'validation.loss.median'"),
        (_filter(_field('hp.a"b', "=", 1)), "quotation mark"),
        (_filter(_field("id", "contains", "1")), "filter.filterGroup.children[0].operator: 'contains'"),
        (_filter(_field("id", "<>", 1)), "operator: '<>'"),
        (_filter(_field("id", "=", "one")), "filter.filterGroup.children[0].value: 'one'"),
        (_filter(_field("id", "=", 10**400)), "value"),
        (_filter(_field("startTime", "=", "soon")), "value: 'soon'"),
        (_filter(_field("hp.lr", "<", "low")), "must be a number for '<'"),
        (_filter(_field("name", "=", "")), "children[0].value"),
        (_filter({"kind": "field", "columnName": 3}), "columnName: 3"),
        (json.dumps({"filterGroup": _nested(MAX_DEPTH)}), "nested deeper"),
        (_filter(*[_field("id", "=", 1)] * (MAX_FIELDS + 1)), f"children[{MAX_FIELDS}]"),
    ],
)
def test_the_place_of_what_is_wrong_is_named(text: str, place: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_filter(text, Table.EXPERIMENTS)
    assert place in str(refused.value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda x: (
            st.lists(x)
            | st.dictionaries(
                st.sampled_from(["filterGroup", "kind", "children", "columnName", "operator", "value", "conjunction"]),
                x,
            )
        ),
    )
)
def test_whatever_is_sent_is_read_or_refused(plain: Any) -> None:
    for text in (json.dumps(plain), json.dumps({"filterGroup": plain})):
        try:
            parse_filter(text, Table.RUNS)
        except InvalidInput as refused:
            assert str(refused).startswith("filter")


def test_sorts() -> None:
    assert parse_sort("hp.lr=asc, searcherMetricsVal=desc", Table.EXPERIMENTS) == (
        Sort(column=Hyperparameter(name="lr"), descending=False),
        Sort(column=Field(name="searcherMetricsVal", kind=Kind.NUMBER), descending=True),
    )
    for text, place in (("id", "sort[0]"), ("id=asc,name=up", "sort[1]"), ("nope=asc", "sort[0]: 'nope'")):
        with pytest.raises(InvalidInput, match=place.replace("[", r"\[")):
            parse_sort(text, Table.EXPERIMENTS)
    with pytest.raises(InvalidInput, match="more than"):
        parse_sort(",".join(["id=asc"] * (MAX_SORTS + 1)), Table.RUNS)


def test_nested_hyperparameters_are_named_by_all_their_names() -> None:
    assert flat_hyperparameters({"a": {"b": 1, "c": {}}, "d": "x", "e": float("nan"), "f": True, "g": 0.1}) == {
        "a.b": (1.0, "1"),
        "a.c": (None, "{}"),
        "d": (None, "x"),
        "e": (None, "nan"),
        "f": (None, "true"),
        "g": (0.1, "0.1"),
    }
