"""Ids in their text form."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from resolute.ids import SeededIds, SystemIds, uuid_of


@given(st.binary(min_size=16, max_size=16))
def test_a_uuid_is_written_as_the_library_writes_it(octets: bytes) -> None:
    assert uuid_of(octets) == str(uuid.UUID(bytes=octets, version=4))


def test_a_seed_gives_the_same_ids_for_ever() -> None:
    ids = SeededIds("seed")
    assert [ids.uuid(), ids.uuid()] == ["f32ca66e-f993-4c95-8f3d-09b56e7f4f50", "366741cb-9c26-41d0-922c-8b514681fe47"]
    assert ids.bits(12) == 2645


def test_ids_of_the_system_are_different_uuids() -> None:
    ids = SystemIds()
    found = {ids.uuid() for _ in range(20)}
    assert len(found) == 20
    assert all(str(uuid.UUID(each)) == each and uuid.UUID(each).version == 4 for each in found)
