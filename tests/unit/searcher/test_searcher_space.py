"""Points of a search space, and the generator that draws them."""

from __future__ import annotations

import random

import numpy
import pytest

from resolute.errors import InvalidInput
from resolute_master.searcher.generator import Generator
from resolute_master.searcher.hyperparameters import sample


@pytest.mark.parametrize("seed", [0, 1, 5489, 2**32 - 1])
def test_the_generator_is_the_mersenne_twister_with_numpys_legacy_seeding(seed: int) -> None:
    generator, peer = Generator(seed), numpy.random.MT19937()
    peer._legacy_seeding(seed)
    assert [generator.word() for _ in range(1500)] == peer.random_raw(1500).tolist()


@pytest.mark.parametrize("draws", [0, 1, 226, 227, 228, 623, 624, 2000])
def test_a_generator_is_taken_up_wherever_it_was_left(draws: int) -> None:
    one = Generator(7)
    for _ in range(draws):
        one.word()
    other = Generator.of(one.leave())
    assert [one.word() for _ in range(700)] == [other.word() for _ in range(700)]


def test_a_generator_goes_on_from_its_saved_state() -> None:
    one = Generator(3)
    for _ in range(1000):
        one.word()
    other = Generator.of(one.leave())
    assert [one.unit(), one.bounded(10**12), one.octets(16)] == [other.unit(), other.bounded(10**12), other.octets(16)]


@pytest.mark.parametrize("limit", [0, 1, 2, 6, 255, 256, 2**31 - 1, 2**32, 2**63])
def test_bounded_numbers_stay_in_bounds(limit: int) -> None:
    generator = Generator(1)
    assert all(0 <= generator.bounded(limit) <= limit for _ in range(200))


def test_every_number_of_a_small_range_comes_up() -> None:
    generator = Generator(2)
    assert {generator.bounded(4) for _ in range(200)} == {0, 1, 2, 3, 4}


def test_constants_groups_and_lists_come_out_as_they_are() -> None:
    space = {
        "a": {"type": "const", "val": None},
        "plain": 3,
        "list": [{"type": "int", "minval": 0, "maxval": 1}],
        "empty": {},
        "group": {"inner": {"type": "const", "val": {"type": "x"}}},
    }
    assert sample(space, Generator(1)) == {
        "a": None,
        "plain": 3,
        "list": [{"type": "int", "minval": 0, "maxval": 1}],
        "empty": {},
        "group": {"inner": {"type": "x"}},
    }


def test_ranges_keep_their_bounds() -> None:
    space = {
        "int": {"type": "int", "minval": -2, "maxval": 1},
        "double": {"type": "double", "minval": 1.0, "maxval": 1.0000000000000002},
        "log": {"type": "log", "minval": -3, "maxval": 0, "base": 10},
        "choice": {"type": "categorical", "vals": ["a", 1, None]},
    }
    generator = Generator(4)
    points = [sample(space, generator) for _ in range(300)]
    assert {p["int"] for p in points} == {-2, -1, 0, 1}
    assert {p["double"] for p in points} == {1.0}
    assert all(1e-3 <= p["log"] < 1.0 for p in points)
    assert {p["choice"] for p in points} == {"a", 1, None}


def test_the_order_in_which_a_space_is_written_does_not_matter() -> None:
    names = [f"h{i}" for i in range(20)]
    space = {name: {"g": {"type": "double", "minval": 0, "maxval": 1}} for name in names}
    shuffled = {name: space[name] for name in random.Random(1).sample(names, len(names))}
    assert sample(space, Generator(9)) == sample(shuffled, Generator(9))


def test_an_empty_choice_and_an_unknown_type_are_refused_with_their_path() -> None:
    with pytest.raises(InvalidInput, match=r"hyperparameters\.net\.act\.vals"):
        sample({"net": {"act": {"type": "categorical", "vals": []}}}, Generator(1))
    with pytest.raises(InvalidInput, match=r"hyperparameters\.x\.type: 'float'"):
        sample({"x": {"type": "float"}}, Generator(1))
