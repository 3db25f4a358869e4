"""What a person writes to filter a list becomes the tree that the store carries out, or an error that says where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resolute.errors import InvalidInput
from resolute_master.store.search_filter import (
    Comparison,
    Field,
    Group,
    Hyperparameter,
    Kind,
    Metric,
    Operator,
    Statistic,
    Table,
)
from resolute_web.conditions import parse_conditions
from resolute_web.experiment_list import OPERATORS, one_more

LR = Hyperparameter(name="lr")
LOSS = Metric(group="validation", name="loss", statistic=Statistic.MIN)


def parsed(text: str) -> Group:
    return parse_conditions(text, Table.EXPERIMENTS, "where")


def compared(column: Hyperparameter | Metric | Field, operator: Operator, value: float | str | None) -> Comparison:
    return Comparison(column=column, operator=operator, value=value)


def test_and_binds_more_closely_than_or_and_parentheses_more_than_both() -> None:
    low = compared(LR, Operator.LESS, 0.01)
    good = compared(LOSS, Operator.AT_MOST, 0.3)
    ada = compared(Field(name="user", kind=Kind.TEXT), Operator.EQUAL, "ada")
    text = "hp.lr < 0.01 and validation.loss.min <= 3e-1 or user = ada"
    assert parsed(text) == Group(any=True, parts=(Group(any=False, parts=(low, good)), ada))
    grouped = "hp.lr<0.01 and (validation.loss.min <= 0.3 OR user == ada)"
    assert parsed(grouped) == Group(any=False, parts=(low, Group(any=True, parts=(good, ada))))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("hp.net = resnet", compared(Hyperparameter(name="net"), Operator.EQUAL, "resnet")),
        ('hp.net = "3"', compared(Hyperparameter(name="net"), Operator.EQUAL, "3")),
        ('"hp.learning rate" > 1', compared(Hyperparameter(name="learning rate"), Operator.GREATER, 1.0)),
        ("name = 7", compared(Field(name="name", kind=Kind.TEXT), Operator.EQUAL, "7")),
        ("tags not contains night", compared(Field(name="tags", kind=Kind.LABELS), Operator.NOT_CONTAINS, "night")),
        ("hp.lr is empty", compared(LR, Operator.IS_EMPTY, None)),
        ("validation.loss.min is not empty", compared(LOSS, Operator.NOT_EMPTY, None)),
    ],
)
def test_each_kind_of_condition_is_read(text: str, wanted: Comparison) -> None:
    assert parsed(text) == Group(any=False, parts=(wanted,))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("colour = red", "where, character 1: 'colour' is no column; use hp.<name>"),
        ("hp.lr", "where: ends where one of =, !=, <, <=, >, >=, 'contains'"),
        ("hp.lr <", "where: ends where a value to compare hp.lr with must follow"),
        ("hp.lr < and", "where, hp.lr.value: 'and' must be a number for '<'"),
        ("hp.lr < 1 user = ada", "'user' at character 11: expected 'and', 'or' or the end"),
        ("(hp.lr < 1", "where: ends where a closing parenthesis must follow"),
        ('hp.lr < "1', "where: the quotation mark at character 9 is not closed"),
        ("state < ACTIVE", "where, state.operator: '<' cannot be applied to this column; use one of =, !="),
        ("validation.loss.min = low", "where, validation.loss.min.value: 'low' must be a number"),
        ("(" * 10 + "hp.lr < 1" + ")" * 10, "parentheses are nested deeper than 10"),
        (" and ".join(["hp.lr < 1"] * 101), "more than 100 conditions"),
        ("x" * 4001, "has 4001 characters"),
    ],
)
def test_what_is_not_understood_is_said_with_its_place(text: str, words: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parsed(text)
    assert str(refused.value).startswith("where") and words in str(refused.value)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parsed(text)
    except InvalidInput as refused:
        assert str(refused).startswith("where")


@given(st.sampled_from(sorted(OPERATORS)), st.text("ab =<()and", min_size=1, max_size=12).filter(str.strip))
def test_a_condition_that_a_form_adds_is_read_back(operator: str, value: str) -> None:
    before = "hp.lr < 1 or user = ada"
    if operator in ("<", "<=", ">", ">="):
        value = "0.5"
    where = one_more(before, "hp.a name", operator, value)
    tree = parsed(where)
    assert tree.any is False and tree.parts[0] == parsed(before)
    added = tree.parts[1]
    assert isinstance(added, Comparison) and added.column == Hyperparameter(name="a name")
    assert added.value in (None, value.strip(), 0.5)
