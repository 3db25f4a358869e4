"""Series of capacity and price, and the market that follows them.

A file holds one series: `gap_seconds` (length of a tick), `rle` ([[value, repeat], ...]) and `kind`. Of the kind `availability` a
value is the number of available machines in that tick; if no value is above 1, the series is a probe with one machine, and 1 means
capacity without a limit. Of the kind `price` a value is the price of a machine-hour. A series repeats when it ends.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

from resolute.errors import InvalidInput
from resolute_master.domain.ids import InstanceId
from resolute_master.forecast.market import Given, MarketMove, Refused
from resolute_provisioner.model import Market, Offer, RefusalKind

KINDS = ("availability", "price")
LONGEST_S, MOST = 3650 * 86_400.0, 1e6
"""Limits of a step of a series, and of its value. A larger number is a mistake."""
LEAST_PROGRESS_TIMEOUT_S = 86_400.0
"""Longer than any boot, any pause after a refusal and any checkpoint interval."""
_NAMED = re.compile(r"(?P<zone>[a-z]+(?:-[a-z]+)+-?\d[a-z]?(?:-[a-z])?)_(?P<accelerator>[a-z0-9-]+)_(?P<slots>\d+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityTrace:
    """`ends[i]` is the second, from the series' beginning, at which `values[i]` ends."""

    name: str
    kind: str
    values: tuple[float, ...]
    ends: tuple[float, ...]
    zone: str = ""
    accelerator: str = ""
    slots: int = 0
    offer_id: str = ""
    """The only offer of the series; if empty, all spot offers with the zone, accelerator and slots."""
    begin_s: float = 0.0
    """The second of the series at which the simulation begins."""

    @property
    def length_s(self) -> float:
        return self.ends[-1]

    @property
    def unlimited(self) -> bool:
        return max(self.values) <= 1

    def at(self, now_s: float) -> float:
        return self.values[bisect_right(self.ends, (now_s + self.begin_s) % self.length_s)]

    def next_change(self, after_s: float) -> float:
        """The end of the step in which `after_s` lies."""
        rounds, within_s = divmod(max(0.0, after_s) + self.begin_s, self.length_s)
        return rounds * self.length_s + self.ends[bisect_right(self.ends, within_s)] - self.begin_s

    def concerns(self, offer: Offer) -> bool:
        if self.offer_id:
            return offer.offer_id == self.offer_id
        named = re.sub(r"[^a-z0-9]", "", (offer.accelerator or offer.instance_type).lower())
        return (
            offer.market is Market.SPOT
            and offer.zone == self.zone
            and offer.slots == self.slots
            and re.sub(r"[^a-z0-9]", "", self.accelerator.lower()) in named
        )


def read_capacity(paths: Sequence[Path], offers: Sequence[Offer]) -> tuple[CapacityTrace, ...]:
    """Reads files and directories of files. In a directory, files that concern no offer are skipped; a named file that concerns
    none is an error. Raises `InvalidInput` with file, key and value."""
    found: list[CapacityTrace] = []
    for path in paths:
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        read = [trace for trace in map(_read, files) if any(trace.concerns(offer) for offer in offers)]
        if not read:
            spot = [
                f"{o.zone} {o.accelerator or o.instance_type} with {o.slots}" for o in offers if o.market is Market.SPOT
            ]
            raise InvalidInput(
                f"--spot: {path} concerns no offer of the pool; its spot offers are: {'; '.join(sorted(set(spot))) or 'none'}. "
                "Name the files <zone>_<accelerator>_<slots>.json, or give them the keys zone, accelerator, slots, or offer"
            )
        found.extend(read)
    return tuple(found)


def _read(path: Path) -> CapacityTrace:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"--spot: {path} cannot be read ({error.strerror}); name a file or a directory") from None
    except ValueError as error:
        raise InvalidInput(f"--spot: {path} is not JSON ({error}); mend it there") from None
    if not isinstance(data, Mapping):
        raise InvalidInput(f"--spot: {path} is not a JSON object; give one with kind, gap_seconds and rle")
    kind, runs = data.get("kind"), data.get("rle")
    gap_s: Any = data.get("gap_seconds")
    if kind not in KINDS:
        raise InvalidInput(f"--spot: {path}, key kind: must be one of {', '.join(KINDS)}, and is {kind!r}")
    if not _is_number(gap_s) or not 1 <= gap_s <= LONGEST_S:
        raise InvalidInput(f"--spot: {path}, key gap_seconds: must be seconds, 1 to {LONGEST_S:.0f}, and is {gap_s!r}")
    if not isinstance(runs, list) or not runs:
        raise InvalidInput(f"--spot: {path}, key rle: must be a list of [value, repeat], and is {runs!r}")
    for index, run in enumerate(runs):
        if not (isinstance(run, list) and len(run) == 2 and all(map(_is_number, run)) and run[0] >= 0 and run[1] > 0):
            raise InvalidInput(
                f"--spot: {path}, key rle[{index}]: must be [value, repeat], a value that is at least 0 and a repeat above 0, "
                f"and is {run!r}"
            )
        if run[0] > MOST or gap_s * run[1] > LONGEST_S:
            raise InvalidInput(
                f"--spot: {path}, key rle[{index}]: must be a value of at most {MOST:,.0f}, for ten years at most, and is {run!r}"
            )
    named = _NAMED.search(path.stem.rpartition("__")[2])
    whose: dict[str, Any] = {**(named.groupdict() if named else {}), **data}
    slots = whose.get("slots") or 0
    if not str(slots).isdecimal():
        raise InvalidInput(f"--spot: {path}, key slots: must be a whole number, and is {slots!r}")
    return CapacityTrace(
        name=path.stem,
        kind=kind,
        values=tuple(float(value) for value, _ in runs),
        ends=tuple(accumulate(float(repeat) * gap_s for _, repeat in runs)),
        zone=str(whose.get("zone") or ""),
        accelerator=str(whose.get("accelerator") or ""),
        slots=int(slots),
        offer_id=str(whose.get("offer") or ""),
    )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < math.inf


class TracedMarket:
    """An offer without a series is always available at its configured price."""

    def __init__(self, offers: Iterable[Offer], traces: Sequence[CapacityTrace], *, boot_s: float, seed: int) -> None:
        self._offers = {offer.offer_id: offer for offer in offers}
        self._boot_s = boot_s
        self._random = Random(seed)
        self._capacity = {
            (id_, trace.kind): trace
            for id_, offer in sorted(self._offers.items())
            for trace in traces
            if trace.concerns(offer)
        }
        # Asked with each move of the market: of a series with many steps the answer takes long.
        self._unlimited = frozenset(key for key, trace in self._capacity.items() if trace.unlimited)
        self._alive: dict[str, int] = dict.fromkeys(self._offers, 0)

    @property
    def progress_timeout_s(self) -> float:
        """A job that makes no progress within two rounds of the longest series, or within a day, never will."""
        return max(
            LEAST_PROGRESS_TIMEOUT_S, 2.0 * max((trace.length_s for trace in self._capacity.values()), default=0.0)
        )

    @property
    def cheapest_slot_hour(self) -> float:
        """The lowest price of a slot's hour that any offer ever has."""
        prices: list[float] = []
        for id_, offer in self._offers.items():
            trace = self._capacity.get((id_, "price"))
            known = min(trace.values) if trace is not None else offer.price_per_hour
            if known is not None and offer.slots > 0:
                prices.append(known / offer.slots)
        return min(prices, default=0.0)

    def ask(self, offer_id: str, now_s: float) -> Given | Refused:
        trace = self._capacity.get((offer_id, "availability"))
        if trace is not None:
            limit = trace.at(now_s)
            unlimited = (offer_id, "availability") in self._unlimited
            if limit <= 0 or (not unlimited and self._alive[offer_id] >= limit):
                return Refused(kind=RefusalKind.NO_CAPACITY, message="the trace has none at this time")
        self._alive[offer_id] += 1
        return Given(boot_s=self._boot_s)

    def ended(self, offer_id: str) -> None:
        self._alive[offer_id] -= 1

    def next_move(self, after_s: float) -> float | None:
        return min((trace.next_change(after_s) for trace in self._capacity.values()), default=None)

    def move(self, now_s: float, alive: Mapping[str, Sequence[InstanceId]]) -> MarketMove:
        taken: list[InstanceId] = []
        prices: list[tuple[str, float]] = []
        for (offer_id, kind), trace in sorted(self._capacity.items()):
            if kind == "price":
                prices.append((offer_id, trace.at(now_s)))
                continue
            there, limit = list(alive.get(offer_id, ())), trace.at(now_s)
            if limit <= 0 or (offer_id, kind) not in self._unlimited:
                self._random.shuffle(there)
                taken.extend(there[int(limit) :])
        return MarketMove(at_s=now_s, taken=tuple(sorted(taken)), prices=tuple(prices))

    def price(self, offer_id: str, now_s: float) -> float | None:
        trace = self._capacity.get((offer_id, "price"))
        return trace.at(now_s) if trace is not None else self._offers[offer_id].price_per_hour
