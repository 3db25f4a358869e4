"""What a trial asks of the machines it runs on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field

from resolute.config.base import ConfigModel, Count, Flag, Integer, NonEmptyText, Number, Text, broken_rule
from resolute.config.deadlines import DeadlineText
from resolute.config.durations import PositiveDuration

Priority = Annotated[Integer, Field(ge=1, le=99)]

LEAST_WEIGHT, MOST_WEIGHT = 1e-6, 10**12
"""Slots are divided by weights, and weights are taken a thousand times and by tenths: neither may exceed the range of a float."""

Weight = Annotated[Number, Field(ge=LEAST_WEIGHT, le=MOST_WEIGHT)]

_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s?(?:([kmgtp])(?:i?b)?|b)?\s*$", re.IGNORECASE)


def memory_size(value: object) -> object:
    """Bytes of a text such as `4g`, `512 MiB` or `1.5G` (binary multiples); other values stay as they are."""
    if not isinstance(value, str):
        return value
    match = _SIZE.match(value)
    if match is None:
        raise broken_rule("must be a valid memory size; write bytes, or a number with a unit such as 512m or 4GiB")
    exponent = "kmgtp".index(match.group(2).lower()) + 1 if match.group(2) else 0
    return int(float(match.group(1)) * 1024**exponent)


MemorySize = Annotated[Count, BeforeValidator(memory_size)]


class Device(ConfigModel):
    """A device of the machine that is made visible in the container."""

    host_path: NonEmptyText
    """Path on the machine."""
    container_path: NonEmptyText
    """Path in the container."""
    mode: Text = "mrw"
    """What the container may do with it: any of m, r, w."""


def read_device(value: object) -> object:
    """`/host:/container[:mode]` as a mapping."""
    if not isinstance(value, str):
        return value
    parts = value.split(":")
    if len(parts) not in (2, 3) or not all(part.startswith("/") for part in parts[:2]):
        raise broken_rule("must be /path/on/the/machine:/path/in/the/container[:mode]; both paths are absolute")
    return dict(zip(("host_path", "container_path", "mode"), parts, strict=False))


Devices = tuple[Annotated[Device, BeforeValidator(read_device)], ...]


class Resources(ConfigModel):
    """Slots, their pool, and the experiment's place among others."""

    hints: ClassVar[Mapping[str, str]] = {
        "slots": "an experiment has 'slots_per_trial'; 'slots' is for commands and notebooks"
    }
    dropped: ClassVar[frozenset[str]] = frozenset({"agent_label"})
    omitted_when_null: ClassVar[frozenset[str]] = frozenset({"deadline", "estimated_duration", "max_cost"})

    slots_per_trial: Count = 1
    """Slots of each trial; 0 requests a place without a slot."""
    max_slots: Count | None = None
    """Most slots that all trials together may have; null means no limit."""
    weight: Weight = 1.0
    """Share among experiments where the scheduler shares."""
    priority: Priority | None = None
    """1 is the most important; null means the pool's default."""
    resource_pool: Text = ""
    """Where to run; empty means the cluster's default pool."""
    shm_size: MemorySize | None = None
    """Shared memory in bytes, or a text such as 4g."""
    is_single_node: Flag | None = None
    """All slots of a trial on one machine."""
    devices: Devices = ()
    """Devices of the machine to make visible."""
    native_parallel: Flag = False
    """Has no effect; accepted for old configurations."""
    max_cost: Annotated[Number, Field(gt=0)] | None = None
    """Maximum cost of the experiment, in the currency of the prices; the experiment is saved and paused before it costs more."""
    deadline: DeadlineText | None = None
    """Deadline of a trial: an RFC 3339 time, or a duration from the submission; it determines the choice between spot and on
    demand."""
    estimated_duration: PositiveDuration | None = None
    """Your estimate of a trial's training time on its slots, used until its pace is measured."""
