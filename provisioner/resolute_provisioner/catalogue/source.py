"""The port of a cloud that describes its machine types."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from resolute_provisioner.catalogue.shapes import Shape


class TypeSource(Protocol):
    """Shipped: `clouds.aws.prices` for AWS."""

    async def shapes(self, instance_types: Collection[str]) -> tuple[Shape, ...]:
        """The cloud's descriptions of these types; unknown ones are omitted. Raises a `clouds.base.CloudError`."""
        ...
