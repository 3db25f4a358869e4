"""How one cloud writes its machine types, zones and regions: the port that offers are made with."""

from __future__ import annotations

from typing import Protocol

from resolute_provisioner.catalogue.shapes import Catalogue, Shape


class TypeRules(Protocol):
    """Shipped: `clouds.<name>.catalogue.RULES`. Pure."""

    @property
    def cloud(self) -> str:
        """The provider's name, the first part of its offers' ids."""
        ...

    def region_of(self, zone: str) -> str | None:
        """None for what is no zone's name."""
        ...

    def has_list_price(self, zone: str) -> bool:
        """Whether the prices of its region hold in the zone."""
        ...

    def quota_of(self, shape: Shape, *, spot: bool) -> str:
        """What the account's quota counts these machines under."""
        ...

    def shape_of(self, catalogue: Catalogue, instance_type: str) -> Shape | None:
        """None for a type that is not known."""
        ...

    def takes_accelerators(self, instance_type: str) -> bool:
        """Whether accelerators may be attached to machines of the type."""
        ...
