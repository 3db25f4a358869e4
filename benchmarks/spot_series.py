"""Availability of spot capacity over time: the traces in `RESOLUTE_TRACES`, or seeded synthetic ones, which the rows name.

A series contains the ticks in which one machine of a type was available in a zone. Ticks of ten minutes are divided by three, so
that one tick is about one start of a machine in all series.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, groupby
from pathlib import Path
from random import Random

SHORT_TICK_S = 200.0
SYNTHETIC_TICKS, SYNTHETIC_TICK_S = 20_000, 195
MEAN_UP_H, MEAN_DOWN_H = (0.7, 1.5, 6.0, 10.0), (3.5, 1.7, 1.0, 1.0)
"""Parameters of the zones of a synthetic region, which differ as much as those of the traces."""


@dataclass(frozen=True)
class Series:
    """One zone. If `up[i]`, a machine is available, and keeps running, from `i * tick_s` to `(i + 1) * tick_s`."""

    zone: str
    tick_s: float
    up: tuple[bool, ...]

    @cached_property
    def _ends(self) -> tuple[int, ...]:
        """For each tick the first later tick with another value."""
        lengths = [len(list(run)) for _, run in groupby(self.up)]
        ends = accumulate(lengths)
        return tuple(end for end, length in zip(ends, lengths, strict=True) for _ in range(length))

    @property
    def duration_s(self) -> float:
        return len(self.up) * self.tick_s

    def is_up(self, at_s: float) -> bool:
        return self.up[int(at_s / self.tick_s)]

    def changes_at(self, at_s: float) -> float:
        """End of the state at `at_s`."""
        return self._ends[int(at_s / self.tick_s)] * self.tick_s


@dataclass(frozen=True)
class Region:
    """Zones with one machine type, over the same time."""

    name: str
    zones: tuple[Series, ...]

    @property
    def tick_s(self) -> float:
        return self.zones[0].tick_s

    @property
    def ticks(self) -> int:
        return len(self.zones[0].up)


def beginning(region: Region, ticks: int) -> Region:
    """The region, cut to a number of ticks."""
    return Region(name=region.name, zones=tuple(replace(zone, up=zone.up[:ticks]) for zone in region.zones))


def regions(environ: Mapping[str, str] = os.environ) -> tuple[tuple[Region, ...], str]:
    """All regions, and the description of their origin. Raises FileNotFoundError if `RESOLUTE_TRACES` contains no traces."""
    directory = environ.get("RESOLUTE_TRACES")
    if not directory:
        return synthetic(Random(1)), "synthetic series (RESOLUTE_TRACES is not set)"
    files = sorted((Path(directory) / "spot").glob("avail_*.json"))
    if not files:
        raise FileNotFoundError(f"RESOLUTE_TRACES: there is no spot/avail_*.json in '{directory}'")
    by_region: dict[str, list[Series]] = {}
    for file in files:
        family, _, what = file.stem.partition("__")
        zone, _, machine = what.partition("_")
        by_region.setdefault(f"{zone[:-1]} {machine} {family.rpartition('-')[2]}", []).append(_read(file, zone))
    found = tuple(Region(name=name, zones=tuple(zones)) for name, zones in sorted(by_region.items()))
    return found, "recorded series (RESOLUTE_TRACES)"


def _read(file: Path, zone: str) -> Series:
    body = json.loads(file.read_text())
    parts = max(1, round(body["gap_seconds"] / SHORT_TICK_S))
    up = tuple(bool(value) for value, repeat in body["rle"] for _ in range(repeat * parts))
    return Series(zone=zone, tick_s=body["gap_seconds"] / parts, up=up)


def synthetic(rng: Random, *, ticks: int = SYNTHETIC_TICKS, sizes: Sequence[int] = (4, 2)) -> tuple[Region, ...]:
    """Synthetic regions; times with and without capacity have exponential distributions."""
    found = []
    for number, size in enumerate(sizes, 1):
        zones = []
        for index in range(size):
            means = (MEAN_UP_H[(index + number) % 4], MEAN_DOWN_H[(index + number) % 4])
            zones.append(
                Series(
                    zone=f"synthetic-{number}{'abcdef'[index]}", tick_s=SYNTHETIC_TICK_S, up=_drawn(rng, ticks, means)
                )
            )
        found.append(Region(name=f"synthetic-{number}", zones=tuple(zones)))
    return tuple(found)


def _drawn(rng: Random, ticks: int, mean_h: tuple[float, float]) -> tuple[bool, ...]:
    up: list[bool] = []
    now = rng.random() < mean_h[0] / sum(mean_h)
    while len(up) < ticks:
        length = rng.expovariate(1 / mean_h[0 if now else 1]) * 3600 / SYNTHETIC_TICK_S
        up += [now] * max(1, round(length))
        now = not now
    return tuple(up[:ticks])
