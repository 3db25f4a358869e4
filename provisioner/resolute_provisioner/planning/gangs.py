"""On how many machines of which size a gang runs, and which gang comes first. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from resolute_provisioner.model import Gang

_NEVER = datetime.max.replace(tzinfo=UTC)


def in_order(gangs: Iterable[Gang]) -> list[Gang]:
    """Most important first; the token decides between equals."""
    return sorted(gangs, key=lambda gang: (gang.priority, gang.deadline or _NEVER, gang.submitted_at, gang.token))


def needs_whole_machines(gang: Gang, size: int) -> int | None:
    """How many machines of `size` slots a gang takes when no single machine holds it; None when it cannot."""
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
    """How many empty machines of `size` slots hold the gang; None when none do, however many."""
    return 1 if fits_one_machine(gang, size) else needs_whole_machines(gang, size)


def shape_of(gang: Gang) -> tuple[object, ...]:
    """What is possible for one gang is possible for every gang of its shape."""
    return (gang.slots, gang.single_machine, gang.slots_per_machine, gang.excluded_instances, gang.markets)
