"""The number and size of machines for a gang, and the order of gangs. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from resolute_provisioner.model import Gang

_NEVER = datetime.max.replace(tzinfo=UTC)


def in_order(gangs: Iterable[Gang]) -> list[Gang]:
    """Most important first; the token decides between equals."""
    return sorted(gangs, key=lambda gang: (gang.priority, gang.deadline or _NEVER, gang.submitted_at, gang.token))


def needs_whole_machines(gang: Gang, size: int) -> int | None:
    """Number of machines of `size` slots for a gang that no single machine holds; None if it cannot use them."""
    if gang.single_machine or size <= 0:
        return None
    if gang.slots_per_machine is not None:
        each = gang.slots_per_machine
        return gang.slots // each if 0 < each <= size and gang.slots % each == 0 else None
    return gang.slots // size if gang.slots > size and gang.slots % size == 0 else None


def fits_one_machine(gang: Gang, size: int) -> bool:
    """Whether an empty machine of `size` slots holds the whole gang."""
    if gang.slots == 0:
        return True
    return gang.slots_per_machine in (None, gang.slots) and gang.slots <= size


def machines_of(gang: Gang, size: int) -> int | None:
    """Number of empty machines of `size` slots that hold the gang; None if none do, however many."""
    return 1 if fits_one_machine(gang, size) else needs_whole_machines(gang, size)


def shape_of(gang: Gang) -> tuple[object, ...]:
    """The shape of a gang: gangs of one shape have the same possibilities."""
    return (gang.slots, gang.single_machine, gang.slots_per_machine, gang.excluded_instances, gang.markets)
