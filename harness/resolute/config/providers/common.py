"""What the providers of all clouds have in common."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from resolute.config.base import (
    ConfigModel,
    Count,
    FreeMap,
    NonEmptyText,
    Number,
    PositiveInteger,
    Secret,
    SecretMark,
    Text,
    broken_at,
    broken_rule,
)
from resolute.config.consolidation import ConsolidationPolicy
from resolute.config.disruption import DisruptionPolicy
from resolute.config.durations import Duration, PositiveDuration
from resolute.config.errors import suggestion
from resolute.config.spot_policy import SpotFallbackPolicy
from resolute.config.yaml_text import load_yaml
from resolute.errors import InvalidInput

MIN_DISK_GB = 100  # the machine image alone needs about half of it

MASTER_PORT = 8080
"""Port of a `master_url` that names none, whatever its scheme: the default port of a master."""

NotNegative = Annotated[Number, Field(ge=0)]
Positive = Annotated[Number, Field(gt=0)]
Problems = list[tuple[tuple[str | int, ...], str, object]]
"""What `broken_at` takes: (path, "what is wrong; what to do", value)."""


def _master_url(text: str) -> str:
    """With the master's usual port where none is written."""
    if not text:
        return text
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise broken_rule("must be scheme://host:port with a port from 1 to 65535") from None
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.path.strip("/")
        or parts.query
        or parts.fragment
        or "@" in parts.netloc
    ):
        raise broken_rule("must be scheme://host:port with scheme http or https and without a path")
    if port == 0:
        raise broken_rule("must be scheme://host:port with a port from 1 to 65535")
    return text if port is not None else f"{parts.scheme}://{parts.netloc.rstrip(':')}:{MASTER_PORT}"


def _agent_file(value: object) -> object:
    """A text is read as the file that it would be."""
    if not isinstance(value, str):
        return value
    try:
        return load_yaml(value, what="the agent's configuration file")
    except InvalidInput as error:
        raise broken_rule(f"must be the text of a configuration file of agents: {error}") from None


class ProviderBase(ConfigModel):
    """What every elastic pool has. The model of a provider adds the key `type`, with its name as the only value."""

    on_masters_machine: ClassVar[bool] = False
    """Whether the machines see the files of the machine that the master runs on, and reach it at any address of its own."""
    keeps_null = frozenset({"consolidation"})

    master_url: Annotated[Text, AfterValidator(_master_url)] = ""
    """How machines reach the master, at port 8080 unless another is written; empty means the master's own address."""
    master_cert_name: Text = ""
    """Refused: use the certificate's name as the host of `master_url`."""
    min_instances: Count = 0
    """Machines to keep even when there is nothing to do."""
    max_instances: PositiveInteger = 5
    """Most machines at a time."""
    max_idle_agent_period: PositiveDuration | None = None
    """How long a machine may be idle before it is ended; null learns it from the pool's own gaps, 20 minutes at most."""
    max_idle_cost: Annotated[Number, Field(gt=0)] | None = None
    """A machine may be idle longer than that until its idle time has cost this amount, so that cheap machines are kept longer."""
    consolidation: ConsolidationPolicy | None = ConsolidationPolicy()
    """When work that has a checkpoint of this run is moved onto fewer or cheaper machines; null moves nothing."""
    disruption: DisruptionPolicy = DisruptionPolicy()
    """When, and how often per hour, such moves are allowed."""
    max_agent_starting_period: PositiveDuration = 1200.0
    """How long a machine may take to join before it is replaced."""
    launch_error_timeout: Duration = 0.0
    """Window in which failed launches count; past `launch_error_retries` the pool gives up for this time; 0 means never."""
    launch_error_retries: Count = 0
    """Failed launches in a row that are tried again."""
    spot_fallback: SpotFallbackPolicy = SpotFallbackPolicy()
    """When work moves from spot to on demand, and back."""
    agent_reconnect_attempts: Count = 5
    """Passed to the agents, which nevertheless retry until their `master_timeout`."""
    agent_reconnect_backoff: Duration = 5.0
    """Passed to the agents: the longest pause between two attempts."""

    @property
    def name(self) -> str:
        """The name under which the provider is registered: the value of its key `type`."""
        return str(type(self).model_fields["type"].default)

    @model_validator(mode="after")
    def _limits(self) -> Self:
        if self.min_instances > self.max_instances:
            text = f"must not be greater than max_instances, which is {self.max_instances}"
            raise broken_at((("min_instances",), text, self.min_instances))
        return self


class TypePrices(ConfigModel):
    """Prices of your own of one instance type, for instance as they were negotiated."""

    on_demand: NotNegative | None = None
    """An hour on demand; null means the table's."""
    spot: NotNegative | None = None
    """An hour on the spot market; null means the cloud's current price."""


class CloudOffer(ConfigModel):
    """Machines that may be bought: each of these types in each of these zones on each of these markets."""

    instance_types: Annotated[tuple[NonEmptyText, ...], Field(min_length=1)]
    """Kinds of machines."""
    zones: Annotated[tuple[NonEmptyText, ...], Field(min_length=1)] | None = None
    """Where; null means all zones of the provider."""
    markets: Annotated[tuple[Literal["on_demand", "spot"], ...], Field(min_length=1)] = ("on_demand",)
    """How: `on_demand`, `spot`, or both."""
    max_price: Positive | None = None
    """Maximum price on each market; null sets no limit except the on-demand price for spot machines."""
    instance_slots: Count | None = None
    """Slots of these machines, where their types are not known."""
    reservation: NonEmptyText | None = None
    """Reserved capacity to use, which is paid for already."""
    price: NotNegative | None = None
    """Your own price of an hour on demand; null means `prices`, then the table."""
    spot_price: NotNegative | None = None
    """Your own price of an hour on the spot market; null means `prices`, then the cloud's current price."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        found: Problems = []
        for name in ("instance_types", "zones", "markets"):
            values = getattr(self, name) or ()
            found += [((name, i), "occurs twice; remove one", v) for i, v in enumerate(values) if v in values[:i]]
        if self.price is not None and "on_demand" not in self.markets:
            found.append((("price",), "is for the market on_demand, which is not in markets; remove it", self.price))
        if self.spot_price is not None and "spot" not in self.markets:
            found.append(
                (("spot_price",), "is for the market spot, which is not in markets; remove it", self.spot_price)
            )
        for name in ("price", "spot_price"):
            price = getattr(self, name)
            if self.max_price is not None and price is not None and price > self.max_price:
                text = f"is above max_price, which is {self.max_price:g}, so that no machine could be bought; raise one"
                found.append(((name,), text, price))
        found += self._reserved()
        if found:
            raise broken_at(*found)
        return self

    def _reserved(self) -> Problems:
        if self.reservation is None:
            return []
        found: Problems = []
        if self.markets != ("on_demand",):
            text = "must be [on_demand] with a reservation; put spot machines into an offer of their own"
            found.append((("markets",), text, list(self.markets)))
        for name in ("instance_types", "zones"):
            values = getattr(self, name)
            if values is not None and len(values) != 1:
                text = "must have one entry with a reservation; make an offer of each"
                found.append(((name,), text, list(values)))
        if self.max_price is not None:
            found.append(
                (("max_price",), "has no meaning with a reservation, which is paid for; remove it", self.max_price)
            )
        return found


class CloudProvider(ProviderBase):
    """What machines of a real cloud have."""

    startup_script: Secret = ""
    """Run by root on the machine before the agent starts."""
    container_startup_script: Secret = ""
    """Run each time before the agent starts, in its container or, where it has none, on the machine."""
    agent_docker_image: Text = ""
    """Image for the agent's container; empty runs the agent on the machine itself, from the wheel that the master serves."""
    agent_docker_network: NonEmptyText = "default"
    """Network of the agent's container."""
    agent_docker_runtime: NonEmptyText = "runc"
    """Runtime of the agent's container."""
    agent_fluent_image: Text | None = None
    """Has no effect; accepted for old configurations."""
    agent_config_file_contents: Annotated[FreeMap | None, BeforeValidator(_agent_file), SecretMark.FREE] = None
    """Keys of the agent's configuration file, as a mapping or as a text of JSON or YAML; settings of the master take precedence."""
    prices: dict[str, TypePrices] = Field(default_factory=dict)
    """Prices of your own by instance type, before all others."""


def set_beside_offers(provider: ConfigModel, names: Iterable[str]) -> Problems:
    """Keys that describe the one machine type of a provider, set although there are offers, which define it each. Their
    defaults are accepted: a configuration that was completed and shown can be read again."""
    fields = type(provider).model_fields
    return [
        ((name,), "has no effect beside offers; set it in the offers and remove it", _shown(value))
        for name in names
        if (value := getattr(provider, name)) != fields[name].default
    ]


def prices_of_no_type(prices: Iterable[str], types: Iterable[str]) -> Problems:
    """Prices that nothing is bought at: a name that is misspelt."""
    known = sorted(set(types))
    return [
        (("prices", name), f"is no instance type of this provider; {suggestion(name, known)}", {})
        for name in sorted(set(prices).difference(known))
    ]


def _shown(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, ConfigModel) else value


ON_DEMAND_PRICE = "OnDemand"


def price_text(value: object) -> object:
    """A price as the original writes it: a text of digits, or a number; `OnDemand` means no limit."""
    if value == ON_DEMAND_PRICE:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str) and not re.fullmatch(r"\d+(\.\d*)?|\.\d+", value):
        raise broken_rule('must be a price of digits with at most one decimal point, such as "1.25"')
    if isinstance(value, str) and float(value) <= 0:
        raise broken_rule("must be more than 0; remove it to pay up to the on-demand price")
    return value
