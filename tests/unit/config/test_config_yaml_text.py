"""YAML text to JSON values."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from resolute.config import load_yaml
from resolute.config.yaml_text import MAX_DEPTH, MAX_VALUES, _FastLoader, _Loader, as_json
from resolute.errors import InvalidInput


def test_scalars_follow_yaml_1_2() -> None:
    text = "a: 1e-3\nb: .5\nc: 0123\nd: 0x1F\ne: 0o17\nf: no\ng: 2024-01-01\nh: 12:30:00\ni: true\nj: ~\nk:\nl: '1'\nm: -2.5E+3"
    assert load_yaml(text) == {
        "a": 0.001,
        "b": 0.5,
        "c": 123,
        "d": 31,
        "e": 15,
        "f": "no",
        "g": "2024-01-01",
        "h": "12:30:00",
        "i": True,
        "j": None,
        "k": None,
        "l": "1",
        "m": -2500.0,
    }


def test_keys_become_strings_and_json_is_yaml() -> None:
    assert load_yaml('{"a": [1, {"b": null}], 2: x, true: y}') == {"a": [1, {"b": None}], "2": "x", "true": "y"}


def test_an_empty_text_is_an_empty_mapping() -> None:
    assert load_yaml("") == {}
    assert load_yaml("# only a comment\n") == {}


def test_anchors_and_merge_keys_work() -> None:
    assert load_yaml("base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3") == {
        "base": {"x": 1, "y": 2},
        "use": {"x": 1, "y": 3},
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3", "line 3, column 1: the key 'a' occurs twice"),
        ("x:\n  a: 1\n  a: 2", "line 3, column 3: the key 'a' occurs twice"),
        ("a: [1, 2", "line 1, column 9"),
        ("a:\n\t- 1", "line 2, column 1"),
        ("a: b: c", "line 1, column 5"),
        ("a: .inf", "line 1, column 4: infinities and NaN are not allowed"),
        ("a: 1e999", "line 1, column 4: infinities and NaN are not allowed"),
        ("? [1, 2]\n: x", "a key must be a plain value"),
        ("a: !!python/object/apply:os.getcwd []", "line 1, column 4: could not determine a constructor"),
        ("a: !!int foo", "is not readable as YAML"),
        ("a: !!timestamp 2024-01-01", "<config>.a: a date is not a value of JSON"),
        ("a: !!set {x, y}", "<config>.a: a set is not a value of JSON"),
        ("- 1\n- 2", "must be a mapping of keys to values, but is a list"),
        ("just text", "must be a mapping of keys to values, but is a single value"),
        ("a: &a [*a]", "nested too deeply"),
        ("a: *nothing", "line 1, column 4: found undefined alias"),
        ("a: 1\n---\nb: 2", "line 2, column 1"),
    ],
)
def test_unreadable_text_is_refused_with_its_place(text: str, expected: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_yaml(text, what="const.yaml")
    assert "const.yaml" in str(caught.value)
    assert expected in str(caught.value)


def test_bytes_that_are_not_text_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"const\.yaml is not UTF-8 text: byte 3"):
        load_yaml(b"a: \xff\xfe", what="const.yaml")


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(InvalidInput, match="nested too deeply"):
        load_yaml("a: " + "[" * 5000 + "]" * 5000)
    with pytest.raises(InvalidInput, match="nested too deeply"):
        load_yaml("a: " + "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))
    assert load_yaml("a: " + "[" * 50 + "]" * 50)


def test_a_short_text_cannot_become_an_endless_value() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(InvalidInput, match="too large"):
        load_yaml("\n".join(lines))


def test_as_json_copies_and_refuses_what_json_cannot_hold() -> None:
    value = {"a": [1, (2, 3)]}
    copy = as_json(value)
    assert copy == {"a": [1, [2, 3]]}
    copy["a"].append(4)
    assert value == {"a": [1, (2, 3)]}
    with pytest.raises(InvalidInput, match=r"<config>\.a\[0\]: must be a finite number"):
        as_json({"a": [float("nan")]})
    with pytest.raises(InvalidInput, match=r"<config>\.a: a object is not a value"):
        as_json({"a": object()})


def test_characters_that_json_escapes_in_halves_become_whole() -> None:
    assert load_yaml('{"a": "\\ud83d\\ude00", "\\ud83d\\ude00": 1}') == {"a": "\U0001f600", "\U0001f600": 1}
    with pytest.raises(InvalidInput, match=r"<config>\.a: has half of a character"):
        load_yaml('{"a": "\\ud83d"}')
    with pytest.raises(InvalidInput, match=r"<config>\.a: must not contain the character NUL"):
        load_yaml('{"a": "x\\0"}')


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)


@given(JSON, st.booleans())
def test_both_parsers_read_the_same(value: object, flow: bool) -> None:
    text = yaml.safe_dump(value, default_flow_style=flow, allow_unicode=True)

    def read(loader: Any) -> object:
        try:
            return yaml.load(text, Loader=loader)
        except yaml.YAMLError as error:
            return type(error)

    assert read(_FastLoader) == read(_Loader)


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 100_000, "{a: " * 50_000, "? " * 100_000])
def test_no_text_ends_the_process(text: str) -> None:
    with pytest.raises(InvalidInput, match="nested too deeply"):
        load_yaml(text)


def test_a_short_text_has_so_many_values_after_its_aliases_are_expanded() -> None:
    def text(values: int) -> str:
        """The mapping and its three lists are values, and so is each of a thousand and what repeats them."""
        zeros = ", ".join(["0"] * 999)
        repeats, rest = divmod(values - 1003, 1000)
        return f"a: &a [{zeros}]\nb: [{', '.join(['*a'] * repeats)}]\nc: [{', '.join(['0'] * rest)}]"

    most = load_yaml(text(MAX_VALUES))
    assert len(most["b"]) == 198
    with pytest.raises(InvalidInput, match=f"more than {MAX_VALUES} values"):
        load_yaml(text(MAX_VALUES + 1))
