"""Where the machines of an elastic pool come from: AWS, Google Cloud, or this machine."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Discriminator, Tag

from resolute.config.base import TaggedUnion
from resolute.config.providers.aws import AwsNetworkInterface, AwsProvider, AwsTag
from resolute.config.providers.common import CloudOffer, CloudProvider, TypePrices
from resolute.config.providers.gcp import GcpInstanceType, GcpNetworkInterface, GcpOffer, GcpProvider, GcpServiceAccount
from resolute.config.providers.local import Interruption, LaunchRefusal, LocalProvider

__all__ = [
    "PROVIDER_TYPES",
    "AwsNetworkInterface",
    "AwsProvider",
    "AwsTag",
    "CloudOffer",
    "CloudProvider",
    "GcpInstanceType",
    "GcpNetworkInterface",
    "GcpOffer",
    "GcpProvider",
    "GcpServiceAccount",
    "Interruption",
    "LaunchRefusal",
    "LocalProvider",
    "Provider",
    "TypePrices",
]

PROVIDER_TYPES = ("aws", "gcp", "local")
_TYPES = TaggedUnion("type", PROVIDER_TYPES, {"hpc": "HPC launchers are not supported; use agents of your own"})

Provider = Annotated[
    Annotated[AwsProvider, Tag("<aws>")]
    | Annotated[GcpProvider, Tag("<gcp>")]
    | Annotated[LocalProvider, Tag("<local>")],
    Discriminator(_TYPES.member),
    BeforeValidator(_TYPES.check),
]
