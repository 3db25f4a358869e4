"""The machine types, zones and regions of one cloud: the port from which offers are made."""

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
        """The region of a zone; None for an invalid name."""
        ...

    def has_list_price(self, zone: str) -> bool:
        """Whether the prices of its region hold in the zone."""
        ...

    def quota_of(self, shape: Shape, *, spot: bool) -> str:
        """The quota of the account under which these machines count."""
        ...

    def shape_of(self, catalogue: Catalogue, instance_type: str) -> Shape | None:
        """The shape of a type; None for an unknown one."""
        ...

    def takes_accelerators(self, instance_type: str) -> bool:
        """Whether accelerators may be attached to machines of the type."""
        ...
