"""Machine types and their list prices as values. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One machine type."""

    instance_type: str
    vcpus: int | None = None
    memory_gib: float | None = None
    accelerator: str = ""
    """Kind of its built-in accelerators; on Google Cloud the cloud's own name."""
    accelerators: int = 0
    manufacturer: str = ""
    """Manufacturer of the accelerators, if the cloud reports it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """The known types of one cloud."""

    shapes: Mapping[str, Shape] = field(default_factory=dict)
    """Shapes by instance type."""
    prices: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(instance type, region) -> dollars an hour on demand."""
    accelerator_prices: Mapping[tuple[str, int, str], float] = field(default_factory=dict)
    """(kind, how many, region) -> dollars an hour for all of them, where a cloud prices them apart from the machine."""
    source: str = ""
    """Source and date of the figures, for display."""

    def price(self, shape: Shape, region: str) -> float | None:
        """Dollars an hour on demand in the region, the accelerators included; None when any part of it is unknown."""
        machine = self.prices.get((shape.instance_type, region))
        if machine is None or not shape.accelerators or not self.accelerator_prices:
            return machine
        accelerators = self.accelerator_prices.get((shape.accelerator, shape.accelerators, region))
        return None if accelerators is None else round(machine + accelerators, 6)

    def with_shapes(self, shapes: Iterable[Shape]) -> Catalogue:
        """The catalogue with these types, which replace known ones."""
        return replace(self, shapes={**self.shapes, **{shape.instance_type: shape for shape in shapes}})
