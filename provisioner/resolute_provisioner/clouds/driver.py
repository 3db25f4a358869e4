"""The port of a provider: the interface of one cloud to the master, the command line and the twin, beside its machines.

`resolute.providers` lists the providers; the package of each has a module `driver` with `DRIVER`, an instance of a subclass of
`Driver`. Most methods have a default here. `BootedDriver` is for clouds whose machines
boot from the script of `bootstrap` and reach the master over a network.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from resolute.clock import Clock
from resolute.config.base import MASK
from resolute.config.errors import Location
from resolute.config.pools import ResourcePool
from resolute.config.providers import CloudProvider, ProviderBase
from resolute.providers import PROVIDERS, part
from resolute.wire.rest.enums import ResourcePoolType
from resolute_provisioner.bootstrap import AgentWheel
from resolute_provisioner.catalogue.shapes import Catalogue
from resolute_provisioner.catalogue.source import TypeSource
from resolute_provisioner.clouds.base import Cloud
from resolute_provisioner.clouds.machine_host import reachable_master
from resolute_provisioner.model import Market, Offer
from resolute_provisioner.prices import PriceSource

BOOTED_MASTER_TIMEOUT_S = 600.0
"""Time without an answer from its master after which a machine of a cloud ends itself: as long as the master waits for it."""

Config = TypeVar("Config", bound=ProviderBase)
BootedConfig = TypeVar("BootedConfig", bound=CloudProvider)


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterPlace:
    """The facts about the master that machines need, some of which only its own machine can provide."""

    host: str
    """The address that it listens on."""
    port: int
    tls: bool = False
    certificate: str = ""
    """PEM of the authority of its certificate; "" where every machine trusts it, and without TLS."""
    certificate_file: str = ""
    """The certificate as a file on the master's machine."""
    private_paths: tuple[str, ...] = ()
    """Absolute paths of its state, which no task on its machine may reach."""
    environ: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudPlace:
    """Facts about the master for a pool's cloud."""

    directory: Path
    """The pool's own directory, for clouds that store files on the master's machine."""
    environ: Mapping[str, str]
    clock: Clock
    wheel: Callable[[], AgentWheel]
    """The wheel from which machines of a cloud install their agent."""
    certificate: str = ""
    """Authority of the master's certificate, as in `MasterPlace.certificate`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineLink:
    """How the agents of a pool's machines reach the master, and their further settings."""

    master_url: str
    agent_options: Mapping[str, object] = field(default_factory=dict)
    master_timeout_s: float = BOOTED_MASTER_TIMEOUT_S
    slot_type: str = "auto"
    """Slot type of a machine that has no stored offer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInterruption:
    """The `instance`-th launched machine (the first is 1) is interrupted after this number of training steps."""

    instance: int
    after_steps: int
    notice_s: float | None = None


class Interrupts(Protocol):
    """The part of a cloud that interrupts machines by order."""

    async def interrupt(self, provider_id: str, *, notice_s: float | None, reason: str = "") -> None: ...


class Driver(ABC, Generic[Config]):
    """One provider. `here` is the path of the block `provider` in its file, for messages."""

    name: ClassVar[str]
    """Registered name; the first part of its offers' ids."""
    title: ClassVar[str]
    """Displayed name."""
    address_words: ClassVar[frozenset[str]] = frozenset()
    """Keywords for the host of `master_url`, each for an address of the master's own machine."""
    regions: ClassVar[frozenset[str]] = frozenset()
    """Known regions; empty where regions are not checked."""
    asked_in_one_region: ClassVar[bool] = False
    """Whether a pool's machines are requested in one region only: a machine in another one would not be found again."""
    remembered_keys: ClassVar[tuple[str, ...]] = ()
    """Keys from which offers are made, and which the master's machine provides if the configuration omits them."""
    types_file: ClassVar[str] = ""
    """Name of the file in the master's state directory with the answers of `type_source`. "" for a provider without one."""
    reports_spot_prices: ClassVar[bool] = False
    """Whether `price_source` has an answer."""
    listing_period_s: ClassVar[float] = 10.0
    """Period of listings while no change is expected."""

    # ------------------------------------------------------------------------------------------------ what may be bought

    @abstractmethod
    def offers(
        self, pool: ResourcePool, provider: Config, here: Location, catalogue: Catalogue | None
    ) -> tuple[Offer, ...]:
        """The offers of the pool, by id. `catalogue`: known machine types besides the shipped table.

        Raises `InvalidConfig` for what the configuration alone cannot show to be wrong.
        """

    def catalogue(self) -> Catalogue:
        """The shipped table of its machine types."""
        return Catalogue()

    def type_source(self, pool: ResourcePool, provider: Config, clock: Clock) -> TypeSource | None:
        """The source of its machine types. Raises `InvalidInput` when the SDK is not installed."""
        return None

    def types_named(self, provider: Config) -> frozenset[str]:
        """The machine types of the pool, for a request to `type_source`."""
        return frozenset()

    def price_source(self, pool: ResourcePool, provider: Config, clock: Clock) -> PriceSource | None:
        """The source of its current prices. Raises `InvalidInput` when the SDK is not installed."""
        return None

    def price_period_s(self, provider: Config) -> float:
        """Period of queries of `price_source`; 0 is never."""
        return 0.0

    # ------------------------------------------------------------------------------------------------------- preflight

    def completed(self, pool: ResourcePool, provider: Config, master: MasterPlace) -> Config:
        """The block with the values that the master's own machine provides. Blocking. Raises `InvalidInput` for values that stay
        open."""
        return provider

    def left_to_master(self, provider: Config) -> tuple[str, ...]:
        """Keys that only a master in the same cloud can complete."""
        return ()

    def check(self, pool: ResourcePool, provider: Config) -> None:
        """Checks that machines can be requested and can boot, by the configuration alone, without a call to the cloud. Raises
        `InvalidInput` for settings that the cloud would refuse or with which no machine could boot.
        """

    def regions_of(self, provider: Config) -> Mapping[str, str]:
        """Every region that the block means, and the words that mean it."""
        return {}

    # -------------------------------------------------------------------------------------------------------- machines

    @abstractmethod
    def open(self, pool: ResourcePool, provider: Config, place: CloudPlace) -> Cloud:
        """The cloud of the pool. Raises `InvalidInput`, also when the SDK is not installed."""

    @abstractmethod
    def link(self, pool: ResourcePool, provider: Config, master: MasterPlace) -> MachineLink:
        """The link of a pool's machines to the master. Raises `InvalidInput` if they could not reach it."""

    def interruptions(self, provider: Config, cloud: Cloud) -> tuple[Interrupts, tuple[StepInterruption, ...]] | None:
        """The scripted interruptions by training steps, and what carries them out; None for a cloud without them."""
        return None

    # ---------------------------------------------------------------------------------------------------------- the API

    def shown(self, provider: Config, offers: Sequence[Offer]) -> dict[str, Any]:
        """Fields of the contract's `ResourcePool` that the provider sets; the others are empty."""
        return {
            "type": ResourcePoolType.STATIC,  # the contract has no word for other clouds
            "preemptible": any(offer.market is Market.SPOT for offer in offers),
            "location": named(offer.zone or offer.region for offer in offers),
            "instance_type": named(offer.instance_type for offer in offers),
            "accelerator": named(offer.accelerator for offer in offers),
            "master_url": provider.master_url,
            "master_cert_name": provider.master_cert_name,
        }

    def shown_details(self, provider: Config, offers: Sequence[Offer]) -> dict[str, Any]:
        """Fields of the contract's `ResourcePoolDetail`."""
        return {}


class BootedDriver(Driver[BootedConfig]):
    """A provider whose machines boot from the script of `bootstrap`."""

    def link(self, pool: ResourcePool, provider: BootedConfig, master: MasterPlace) -> MachineLink:
        url = reachable_master(pool, provider.master_url, master.host, master.port, tls=master.tls)
        return MachineLink(master_url=url)

    def shown(self, provider: BootedConfig, offers: Sequence[Offer]) -> dict[str, Any]:
        return {
            **super().shown(provider, offers),
            "agent_docker_image": provider.agent_docker_image,
            "agent_docker_network": provider.agent_docker_network,
            "agent_docker_runtime": provider.agent_docker_runtime,
            "agent_fluent_image": provider.agent_fluent_image or "",
            "startup_script": MASK if provider.startup_script else "",
            "container_startup_script": MASK if provider.container_startup_script else "",
        }


def named(names: Iterable[str]) -> str:
    """The names, each once, in one text: a value of a pool with several offers."""
    return ", ".join(sorted({name for name in names if name}))


def driver_named(name: str) -> Driver[Any]:
    """The driver of a registered provider. Raises `KeyError` for one that is not registered."""
    driver: Driver[Any] = part(name, "driver", "DRIVER")
    return driver


def driver_of(provider: ProviderBase) -> Driver[Any]:
    """The driver of a pool's provider."""
    return driver_named(provider.name)


def drivers() -> Iterator[Driver[Any]]:
    """Drivers of all providers; imports each."""
    return (driver_named(name) for name in PROVIDERS)
