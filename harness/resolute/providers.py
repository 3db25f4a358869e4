"""The registry of providers: every provider of machines has one entry here, and a package of its own.

A provider's package has modules of fixed names, each of which a program imports when it first needs it:

    configuration   `CONFIGURATION`, the model of the block `provider`
    driver          `DRIVER`, for the master and the command line (`resolute_provisioner.clouds.driver`)
    notices         `open_notices`, by which an agent detects that its machine will be taken away; only with a `notice_source`
    fake            `open_world`, what the conformance suite of the cloud port runs on

A program that reads a file with one provider therefore imports neither the others nor any SDK.

A cloud on which `det deploy` makes whole clusters names a second package, that of its deployment (`resolute_deploy.cloud`).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployable:
    """A cloud that `det deploy <provider>` makes clusters on. `title` is its name in sentences."""

    package: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One provider."""

    package: str
    notice_source: str = ""
    """The agent's `notice_source` on its machines, where a metadata service of the cloud announces their end."""
    deployment: Deployable | None = None
    unneeded_to_simulate: Mapping[str, str] = field(default_factory=dict)
    """Required keys of the block `provider` that affect no decision, with the values of a simulation of a file without them."""


PROVIDERS: Mapping[str, Registration] = {
    "aws": Registration(
        package="resolute_provisioner.clouds.aws",
        notice_source="ec2",
        deployment=Deployable(package="resolute_deploy.aws", title="Amazon Web Services"),
        unneeded_to_simulate={"ssh_key_name": "not-needed-by-a-simulation"},
    ),
    "gcp": Registration(
        package="resolute_provisioner.clouds.gcp",
        notice_source="gce",
        deployment=Deployable(package="resolute_deploy.gcp", title="Google Cloud"),
    ),
    "local": Registration(package="resolute_provisioner.clouds.local"),
    "command": Registration(package="resolute_provisioner.clouds.command"),
}
"""Registered providers, by the key `type` of the block `provider`."""


def part(provider: str, module: str, attribute: str) -> Any:
    """One part of a registered provider, imported now. Raises `KeyError` for a provider that is not registered."""
    return getattr(importlib.import_module(f"{PROVIDERS[provider].package}.{module}"), attribute)


def deployment_part(cloud: str, module: str, attribute: str) -> Any:
    """One part of a cloud's deployment, imported now. Raises `KeyError` for one that no cluster is deployed on."""
    deployment = PROVIDERS[cloud].deployment
    if deployment is None:
        raise KeyError(cloud)
    return getattr(importlib.import_module(f"{deployment.package}.{module}"), attribute)


NOTICE_SOURCES: Mapping[str, str] = {each.notice_source: name for name, each in PROVIDERS.items() if each.notice_source}
"""The provider of each `notice_source`."""
