"""A cloud that tells of its machine types: the port."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from resolute_provisioner.catalogue.shapes import Shape


class TypeSource(Protocol):
    """Shipped: `clouds.aws.prices` for AWS."""

    async def shapes(self, instance_types: Collection[str]) -> tuple[Shape, ...]:
        """What the cloud says of these types; those that it does not have are left out. Raises a `clouds.base.CloudError`."""
        ...
