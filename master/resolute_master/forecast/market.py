"""The capacity that the cloud grants and reclaims in virtual time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from resolute_master.domain.ids import InstanceId
from resolute_provisioner.model import RefusalKind

REFUSAL_S = 1.0
"""Time until a cloud refuses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """An answer without a machine."""

    kind: RefusalKind
    message: str
    after_s: float = REFUSAL_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """An answer with a machine, whose agent joins after `boot_s`."""

    boot_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketMove:
    """At `at_s` something changes: machines that are taken back, and prices per hour by offer."""

    at_s: float
    taken: tuple[InstanceId, ...] = ()
    prices: tuple[tuple[str, float], ...] = ()


class Market(Protocol):
    """The market of a simulation. Times are seconds of the simulation."""

    def ask(self, offer_id: str, now_s: float) -> Given | Refused: ...

    def ended(self, offer_id: str) -> None:
        """One of the offer's machines has ended."""
        ...

    def next_move(self, after_s: float) -> float | None:
        """When something changes next by itself; None for never."""
        ...

    def move(self, now_s: float, alive: dict[str, list[InstanceId]]) -> MarketMove:
        """The changes now; `alive` are the machines of each offer, the oldest first."""
        ...

    def price(self, offer_id: str, now_s: float) -> float | None:
        """Present price of a machine per hour; None if unknown."""
        ...
