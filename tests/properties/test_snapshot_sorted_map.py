"""The persistent sorted map against a dictionary: same items, in order, and older versions stay as they were."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from resolute_master.scheduler.sorted_map import FANOUT, Meter, SortedMap

CHANGES = st.lists(st.tuples(st.booleans(), st.integers(0, 300), st.integers()), max_size=400)


def check(found: SortedMap[int, int], expected: dict[int, int]) -> None:
    ordered = sorted(expected.items())
    assert list(found.items()) == ordered
    assert found.key_list() == list(found) == [key for key, _ in ordered]
    assert list(found.values()) == [value for _, value in ordered]
    assert list(found.keys_before(10**9)) == [key for key, _ in reversed(ordered)]
    assert list(found.keys_before(150)) == [key for key, _ in reversed(ordered) if key < 150]
    assert len(found) == len(expected)
    assert found.first_key() == min(expected, default=None)
    assert found.last_key() == max(expected, default=None)
    assert all(found.get(key) == expected.get(key) for key in range(-1, 302))


@given(st.dictionaries(st.integers(0, 300), st.integers()), CHANGES)
def test_it_is_a_dictionary_in_order(start: dict[int, int], changes: list[tuple[bool, int, int]]) -> None:
    found, expected = SortedMap.of(start.items()), dict(start)
    versions = [(found, dict(expected))]
    for put, key, value in changes:
        if put:
            found, expected[key] = found.set(key, value), value
        else:
            found = found.discard(key)
            expected.pop(key, None)
        if len(versions) < 10:
            versions.append((found, dict(expected)))
    check(found, expected)
    for version, then in versions:
        check(version, then)


@given(st.sets(st.integers(0, 10_000), max_size=500))
def test_equality_looks_at_the_items_only(keys: set[int]) -> None:
    built = SortedMap.of((key, key) for key in keys)
    grown: SortedMap[int, int] = SortedMap()
    for key in sorted(keys, key=lambda key: (key * 7919) % 10_007):
        grown = grown.set(key, key)
    assert grown == built
    assert (grown != built) is False
    if keys:
        assert grown.discard(min(keys)) != built
        assert grown.set(min(keys), -1) != built


def test_discarding_what_is_not_there_gives_the_same_map() -> None:
    found = SortedMap.of([(1, 1)])
    assert found.discard(2) is found


def test_emptying_a_large_map_key_by_key_leaves_an_empty_one() -> None:
    found = SortedMap.of((key, key) for key in range(5000))
    for key in range(5000):
        found = found.discard((key * 7919) % 5000)
    assert found == SortedMap()


def test_a_change_copies_one_path_of_small_nodes() -> None:
    meter = Meter()
    found = SortedMap.of(((key, key) for key in range(0, 200_000, 2)), meter=meter)
    for key in (0, 99_999, 199_998, 250_000):
        meter.touched = 0
        found.set(key, 1)
        assert 0 < meter.touched <= 5 * (FANOUT + 1)
