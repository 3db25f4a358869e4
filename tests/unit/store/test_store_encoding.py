"""The canonical form of what is stored: nothing is lost in it, and equal values look alike."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resolute_master.domain.change import KINDS, Entity
from resolute_master.domain.effects import EFFECT_TYPES, Effect, KillContainer
from resolute_master.domain.experiment import Experiment, written
from resolute_master.domain.ids import AgentId, AllocationId, ContainerId
from resolute_master.domain.metrics import MetricReport
from resolute_master.domain.trial import Validation
from resolute_master.store.encoding import (
    UnreadableValue,
    decode,
    decode_effect,
    decode_entity,
    encode,
    encode_effect,
    encode_entity,
    from_plain,
    to_plain,
)
from support.stores import START, a_belief, a_trial, an_agent, an_allocation, an_experiment

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Any value that a field with this type hint may hold."""
    if isinstance(hint, typing.NewType):
        return values(hint.__supertype__)
    if dataclasses.is_dataclass(hint):
        assert isinstance(hint, type)
        hints = typing.get_type_hints(hint)
        return st.builds(hint, **{field.name: values(hints[field.name]) for field in dataclasses.fields(hint)})
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        hints = typing.get_type_hints(hint)
        return st.builds(hint, **{name: values(hints[name]) for name in hint.__struct_fields__})
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return st.one_of([values(argument) for argument in arguments])
    if origin is tuple:
        assert arguments[1] is ..., f"a tuple of fixed length: {hint}"
        return st.lists(values(arguments[0]), max_size=2).map(tuple)
    if origin is Mapping:
        return st.dictionaries(TEXT, values(arguments[1]), max_size=3)
    return SCALARS[hint]


SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: st.integers(),
    float: FINITE,
    bool: st.booleans(),
    datetime: MOMENTS,
    Any: JSON,
    types.NoneType: st.none(),
    msgspec.Raw: st.dictionaries(TEXT, JSON, max_size=3).map(written),
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_entity_comes_back_and_is_written_alike_again(kind: str) -> None:
    @settings(max_examples=40, database=None)
    @given(values(KINDS[kind]))
    def check(entity: Entity) -> None:
        body = encode_entity(entity)
        assert body == msgspec.json.encode(to_plain(entity), order="deterministic")
        again = decode_entity(kind, body)
        assert again == entity
        assert type(again) is type(entity)
        assert encode_entity(again) == body
        assert decode_entity(kind, body.decode()) == entity

    check()


@pytest.mark.parametrize("effect_type", EFFECT_TYPES)
def test_every_effect_comes_back(effect_type: type[Effect]) -> None:
    @settings(max_examples=30, database=None)
    @given(values(effect_type))
    def check(effect: Effect) -> None:
        assert decode_effect(encode_effect(effect)) == effect
        assert encode_effect(decode_effect(encode_effect(effect))) == encode_effect(effect)

    check()


@settings(max_examples=60, database=None)
@given(values(MetricReport))
def test_reports_come_back(report: MetricReport) -> None:
    assert decode(MetricReport, encode(report)) == report


def test_an_effect_names_its_type() -> None:
    effect = KillContainer(
        container=ContainerId("c"), allocation=AllocationId("a.1"), agent=AgentId("agent"), grace_s=1
    )
    expected = b'{"agent":"agent","allocation":"a.1","container":"c","grace_s":1.0,"type":"KillContainer"}'
    assert encode_effect(effect) == expected


def test_the_order_of_keys_does_not_show() -> None:
    first = an_experiment(config={"a": 1, "b": {"x": 1, "y": 2}})
    second = an_experiment(config={"b": {"y": 2, "x": 1}, "a": 1})
    assert encode_entity(first) == encode_entity(second)


def test_a_configuration_stays_the_text_that_is_stored() -> None:
    body = encode_entity(an_experiment(config={"b": 1, "a": {"name": "x"}}))
    found = decode_entity("experiment", body)
    assert isinstance(found, Experiment)
    assert bytes(found.configuration) == b'{"a":{"name":"x"},"b":1}'
    assert found.config == {"a": {"name": "x"}, "b": 1}
    assert encode_entity(found) == body
    assert found.configuration.copy() is found.configuration, "it keeps no more alive than itself"


def test_a_configuration_comes_back_beside_a_number_that_json_cannot_spell() -> None:
    experiment = an_experiment(best_validation=math.nan, config={"b": [1, None], "a": math.inf, "c": "\ud800"})
    found = decode_entity("experiment", encode_entity(experiment))
    assert isinstance(found, Experiment)
    assert found.configuration == experiment.configuration
    assert found.config == {"a": "Infinity", "b": [1, None], "c": "?"}


def test_a_whole_number_at_a_float_s_place_looks_like_a_float() -> None:
    assert encode_entity(an_experiment(progress=1)) == encode_entity(an_experiment(progress=1.0))
    assert encode_entity(a_belief()).count(b'"join_time_s":3.0') == 1


def test_a_read_only_view_of_a_map_looks_like_the_map() -> None:
    view = types.MappingProxyType({"lr": types.MappingProxyType({"val": 1})})
    assert encode_entity(a_trial(hparams=view)) == encode_entity(a_trial(hparams={"lr": {"val": 1}}))


def test_keys_of_free_form_maps_become_text() -> None:
    again = decode_entity("trial", encode_entity(a_trial(hparams={1: "one", "two": (1, 2)})))
    assert again == a_trial(hparams={"1": "one", "two": [1, 2]})


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_cannot_spell_come_back_as_numbers_in_fields_and_as_words_in_maps(number: float) -> None:
    validation = Validation(steps_completed=1, metric=number, at=START, metrics={"loss": number})
    body = encode_entity(a_trial(best_validation=validation, progress=number))
    again = decode_entity("trial", body)
    assert not isinstance(again, types.NoneType) and isinstance(again, type(a_trial()))
    assert again.best_validation is not None
    assert repr(again.best_validation.metric) == repr(number)
    assert repr(again.progress) == repr(number)
    assert again.best_validation.metrics == {
        "loss": {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[repr(number)]
    }
    assert encode_entity(again) == body


@pytest.mark.parametrize("number", [math.nan, math.inf, 1.5, None])
@pytest.mark.parametrize(
    "around", [lambda n: n, lambda n: [1, n], lambda n: types.MappingProxyType({"b": (n,), "a": 2})]
)
def test_a_number_in_a_map_is_told_from_nothing_wherever_it_is(
    number: float | None, around: Callable[..., Any]
) -> None:
    """Also where nothing else of the entity needs to be spelled, and something else in the map is nothing."""
    trial = a_trial(hparams={"value": around(number), "nothing": None})
    spelled = {"nan": "NaN", "inf": "Infinity", "1.5": 1.5, "None": None}[repr(number)]
    body = encode_entity(trial)
    told = msgspec.json.encode({"value": around(spelled), "nothing": None}, enc_hook=dict)
    assert msgspec.json.decode(body)["hparams"] == msgspec.json.decode(told)
    assert body == encode(msgspec.json.decode(body))


def test_a_word_at_a_text_s_place_stays_a_word() -> None:
    trial = a_trial(exit_message="NaN", progress=math.inf)
    assert decode_entity("trial", encode_entity(trial)) == trial


def test_times_keep_their_microseconds_and_are_written_in_utc() -> None:
    agent = an_agent(connected_at=START + timedelta(microseconds=1))
    assert b'"connected_at":"2024-03-01T12:00:00.000001Z"' in encode_entity(agent)
    east = timezone(timedelta(hours=2))
    shifted = an_agent(connected_at=agent.connected_at.astimezone(east))
    assert shifted == agent and shifted.connected_at.tzinfo is east
    assert encode_entity(shifted) == encode_entity(agent)


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(TypeError, match="no zone"):
        encode_entity(an_agent(connected_at=datetime(2024, 1, 1)))


def test_half_a_surrogate_pair_does_not_make_a_value_unreadable() -> None:
    again = decode_entity("experiment", encode_entity(an_experiment(notes="a\ud800b \U0001f600")))
    assert again == an_experiment(notes="a?b \U0001f600")


def test_plain_values_are_the_same_as_text_and_as_objects() -> None:
    allocation = an_allocation(agents=("a", "b"))
    assert from_plain(type(allocation), to_plain(allocation)) == allocation


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("counter", b"{"),
        ("counter", b"[]"),
        ("counter", b"null"),
        ("counter", b'{"id":"x"}'),
        ("counter", b'{"id":"x","value":"NaN"}'),
        ("experiment", encode_entity(an_experiment()).replace(b'"ACTIVE"', b'"SLEEPING"')),
        ("belief", b'{"id":"x","pool":"p","belief":[]}'),
        ("job", b'{"weight":[1]}'),
    ],
)
def test_bytes_that_are_no_entity_are_named_unreadable(kind: str, body: bytes) -> None:
    with pytest.raises(UnreadableValue, match="stored"):
        decode_entity(kind, body)


@pytest.mark.parametrize("body", [b'{"type":"LaunchRocket"}', b"{}", b"[]", b'{"type":[1]}', b"{", b'{"type":1}'])
def test_bytes_that_are_no_effect_are_named_unreadable(body: bytes) -> None:
    with pytest.raises(UnreadableValue):
        decode_effect(body)


def test_a_value_without_a_form_in_json_is_the_program_s_error() -> None:
    with pytest.raises(TypeError, match="object"):
        encode_entity(an_experiment(config={"x": [{1, 2}, object()]}))
