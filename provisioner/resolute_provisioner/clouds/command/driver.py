"""Machines of the operator's own as a provider: what a pool's configuration comes to."""

from __future__ import annotations

import os
from collections.abc import Mapping

from resolute.config.errors import Location
from resolute.config.pools import ResourcePool
from resolute.config.providers import TypePrices
from resolute.errors import InvalidInput
from resolute_provisioner.bootstrap import AgentWheel, HostSetup, render_boot_script
from resolute_provisioner.catalogue import Catalogue, Shape
from resolute_provisioner.clouds.base import Cloud
from resolute_provisioner.clouds.command.boot import METADATA
from resolute_provisioner.clouds.command.configuration import CommandMachines, CommandProvider
from resolute_provisioner.clouds.driver import BootedDriver, CloudPlace, MasterPlace
from resolute_provisioner.clouds.machine_host import EXAMPLE_WHEEL, host_setup
from resolute_provisioner.model import Offer
from resolute_provisioner.offers import Purchase, expanded

COMMANDS = ("launch_command", "end_command", "list_command")


class Rules:
    """Implements `TypeRules`: the names are the operator's own, and have no further properties."""

    cloud = "command"

    def region_of(self, zone: str) -> str | None:
        return None

    def has_list_price(self, zone: str) -> bool:
        return False

    def quota_of(self, shape: Shape, *, spot: bool) -> str:
        return shape.instance_type

    def shape_of(self, catalogue: Catalogue, instance_type: str) -> Shape | None:
        return None

    def takes_accelerators(self, instance_type: str) -> bool:
        return False


class CommandDriver(BootedDriver[CommandProvider]):
    """Pools of the operator's own machines."""

    name = "command"
    title = "your own commands"

    def offers(
        self, pool: ResourcePool, provider: CommandProvider, here: Location, catalogue: Catalogue | None
    ) -> tuple[Offer, ...]:
        purchases = (_purchase(group, provider.prices) for group in provider.machines)
        return expanded(purchases, Catalogue(), Rules())

    def check(self, pool: ResourcePool, provider: CommandProvider) -> None:
        _host(pool, provider, EXAMPLE_WHEEL)

    def completed(self, pool: ResourcePool, provider: CommandProvider, master: MasterPlace) -> CommandProvider:
        for key in COMMANDS:
            program = getattr(provider, key)[0]
            if not (os.path.isfile(program) and os.access(program, os.X_OK)):
                raise InvalidInput(
                    f"resource_pools: provider.{key} of pool '{pool.pool_name}': {program} is no program on this machine; "
                    "write the path of a file that the master may execute"
                )
        return provider

    def open(self, pool: ResourcePool, provider: CommandProvider, place: CloudPlace) -> Cloud:
        from resolute_provisioner.clouds.command.cloud import CommandCloud, CommandSettings

        host = _host(pool, provider, place.wheel(), place.certificate)
        settings = CommandSettings(
            root=place.directory,
            launch=provider.launch_command,
            end=provider.end_command,
            list=provider.list_command,
            limit_s=provider.command_timeout,
            machines={(group.instance_type, group.zone): group.names for group in provider.machines},
            boot_script=lambda boot: render_boot_script(boot, host),
            environ=place.environ,
        )
        return CommandCloud(settings, clock=place.clock)


DRIVER = CommandDriver()


def _purchase(group: CommandMachines, prices: Mapping[str, TypePrices]) -> Purchase:
    own = prices.get(group.instance_type)
    return Purchase(
        shape=Shape(instance_type=group.instance_type),
        zones=(group.zone,),
        slots=group.slots,
        slot_type=group.slot_type if group.slots else "none",
        price=None if own is None else own.on_demand,
    )


def _host(pool: ResourcePool, provider: CommandProvider, wheel: AgentWheel, master_cert: str = "") -> HostSetup:
    """Settings of the machines. Raises `InvalidInput` for values with which no machine could boot."""
    try:
        return host_setup(pool, provider, metadata=METADATA, wheel=wheel, master_cert=master_cert)
    except InvalidInput as error:
        raise InvalidInput(f"resource_pools: provider of pool '{pool.pool_name}': {error}") from error
