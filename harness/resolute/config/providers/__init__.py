"""Where the machines of an elastic pool come from: the block `provider`, whose key `type` names a registered provider.

The model of the block is in the provider's own package, and is imported when a file first names that provider.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import SerializeAsAny, ValidatorFunctionWrapHandler, WrapValidator

from resolute.config.base import TaggedUnion
from resolute.config.providers.common import CloudOffer, CloudProvider, ProviderBase, TypePrices
from resolute.providers import PROVIDERS, part

__all__ = ["CloudOffer", "CloudProvider", "Provider", "ProviderBase", "TypePrices", "configuration_of"]

_TYPES = TaggedUnion("type", tuple(PROVIDERS), {"hpc": "HPC launchers are not supported; use agents of your own"})


def configuration_of(name: str) -> type[ProviderBase]:
    """The model of the block of that provider. Raises `KeyError` for a provider that is not registered."""
    model: type[ProviderBase] = part(name, "configuration", "CONFIGURATION")
    return model


class RegisteredModels:
    """Marks a value whose model is one of those that the providers register: the reference and the masks list them all."""

    def members(self) -> tuple[type[ProviderBase], ...]:
        return tuple(configuration_of(name) for name in PROVIDERS)


def _read(value: Any, _: ValidatorFunctionWrapHandler) -> ProviderBase:
    if isinstance(value, ProviderBase):
        return value
    return configuration_of(_TYPES.check(value)["type"]).model_validate(value)


Provider = Annotated[SerializeAsAny[ProviderBase], WrapValidator(_read), RegisteredModels()]
