"""This computer as a provider: what a pool's configuration comes to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from resolute.config.errors import Location
from resolute.config.pools import ResourcePool
from resolute.processors import usable_processors
from resolute_provisioner.catalogue import Catalogue
from resolute_provisioner.clouds.base import Cloud
from resolute_provisioner.clouds.driver import (
    CloudPlace,
    Driver,
    Interrupts,
    MachineLink,
    MasterPlace,
    StepInterruption,
)
from resolute_provisioner.clouds.local.configuration import LocalProvider
from resolute_provisioner.model import Market, Offer, RefusalKind
from resolute_provisioner.offers import OPERATOR

LISTING_S = 2.0
"""Interval between lists of the machines, also while nothing is known to change: a list reads some files."""


class LocalDriver(Driver[LocalProvider]):
    """Pools of processes on the master's own machine."""

    name = "local"
    title = "this machine"
    listing_period_s = LISTING_S

    def offers(
        self, pool: ResourcePool, provider: LocalProvider, here: Location, catalogue: Catalogue | None
    ) -> tuple[Offer, ...]:
        return tuple(_offers(provider))

    def open(self, pool: ResourcePool, provider: LocalProvider, place: CloudPlace) -> Cloud:
        # Imported where it is used: a master without such a pool starts no processes and looks at none.
        from resolute_provisioner.clouds.local.cloud import (
            POWER_OFF_COMMAND,
            LocalCloud,
            LocalCloudSettings,
            ScriptedInterruption,
            ScriptedRefusal,
            machine_environment,
        )

        settings = LocalCloudSettings(
            root=place.directory,
            environment=machine_environment(place.environ),
            boot_delay_s=provider.boot_delay,
            gpus=provider.visible_gpus,
            power_off_command=POWER_OFF_COMMAND if provider.container_runtime == "docker" else (),
            refuse=tuple(ScriptedRefusal(launch=r.launch, error=RefusalKind(r.error)) for r in provider.refuse),
            interruptions=tuple(
                ScriptedInterruption(instance=i.instance, after_s=i.after, after_steps=i.after_steps, notice_s=i.notice)
                for i in provider.interruptions
            ),
        )
        return LocalCloud(settings, clock=place.clock)

    def link(self, pool: ResourcePool, provider: LocalProvider, master: MasterPlace) -> MachineLink:
        host = "127.0.0.1" if master.host in ("0.0.0.0", "::") else master.host
        certified = {"tls_master_cert": master.certificate_file} if master.certificate_file else {}
        return MachineLink(
            master_url=provider.master_url or f"{'https' if master.tls else 'http'}://{host}:{master.port}",
            agent_options={**agent_options(provider, master, usable_processors()), **certified},
            master_timeout_s=provider.master_timeout,
            slot_type=_slot_type(provider),
        )

    def interruptions(
        self, provider: LocalProvider, cloud: Cloud
    ) -> tuple[Interrupts, tuple[StepInterruption, ...]] | None:
        from resolute_provisioner.clouds.local.cloud import LocalCloud

        if not isinstance(cloud, LocalCloud):  # what is composed in its place
            return None
        script = (
            StepInterruption(instance=each.instance, after_steps=each.after_steps, notice_s=each.notice)
            for each in provider.interruptions
            if each.after_steps is not None
        )
        return cloud, tuple(script)


DRIVER = LocalDriver()

LOCAL_OFFER = Offer(
    offer_id="local",
    instance_type="local",
    zone="this-machine",
    market=Market.ON_DEMAND,
    slots=1,
    price_source=OPERATOR,
    price_is_fixed=True,
    slot_type="artificial",
)


def _slot_type(provider: LocalProvider) -> str:
    return LOCAL_OFFER.slot_type if provider.slot_type == "cpu" else provider.slot_type


def _offers(provider: LocalProvider) -> Iterator[Offer]:
    firm = replace(
        LOCAL_OFFER,
        slots=provider.slots_per_instance,
        price_per_hour=float(provider.price_per_hour),
        slot_type=_slot_type(provider),
    )
    yield firm
    if provider.spot_price_per_hour is not None:
        price = float(provider.spot_price_per_hour)
        yield replace(firm, offer_id="local/spot", market=Market.SPOT, price_per_hour=price)


def agent_options(provider: LocalProvider, master: MasterPlace, processors: int) -> dict[str, object]:
    """Settings of the machines' agents, beyond those of every agent. They share this machine with the master, whose
    state is hidden from their tasks, and its `processors` with each other."""
    most = provider.slots_per_instance * provider.max_instances
    own: dict[str, object] = {
        "hidden_paths": list(master.private_paths),
        "slot_threads": max(1, processors // most),
    }
    if provider.container_runtime == "process":
        return own
    return {**own, "runtime": provider.container_runtime, "docker_host": provider.docker_host}
