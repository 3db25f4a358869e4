"""The configuration of the master: `master.yaml`, its environment variables and its flags."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, ValidationError, model_validator

from resolute.config.base import (
    ConfigModel,
    Flag,
    NonEmptyText,
    Port,
    Secret,
    TaggedUnion,
    Text,
    broken_at,
    broken_rule,
)
from resolute.config.checkpoint_storage import CheckpointStorage
from resolute.config.durations import Duration, PositiveDuration
from resolute.config.errors import InvalidConfig, Location, problems_of, suggestion
from resolute.config.layers import read_layers
from resolute.config.masking import masked, refuse_masks
from resolute.config.master_parts import (
    Cache,
    Integrations,
    Internal,
    Journal,
    Log,
    Logging,
    MasterSecurity,
    Observability,
    Retention,
    Switched,
    Telemetry,
    UiCustomization,
    Webhooks,
)
from resolute.config.not_acted_on import MASTER_KEYS, not_acted_on
from resolute.config.pools import DEFAULT_POOL, ResourceManager, ResourcePool, Scheduler
from resolute.config.task_defaults import TaskContainerDefaults
from resolute.config.yaml_text import as_json
from resolute.errors import InvalidInput

DEFAULT_MASTER_CONFIG_PATH = Path("/etc/determined/master.yaml")
SUBJECT = "the master configuration"


class SqliteDatabase(ConfigModel):
    """A file: for one machine or a small cluster."""

    type: Literal["sqlite"] = "sqlite"
    """Tag of the database."""
    path: Text = ""
    """The file; empty means `resolute.db` in `cluster_state_dir`."""


class PostgresDatabase(ConfigModel):
    """A PostgreSQL server."""

    type: Literal["postgres"] = "postgres"
    """Tag of the database."""
    user: NonEmptyText
    """User."""
    password: Secret
    """Password."""
    host: NonEmptyText
    """Host."""
    port: Port = 5432
    """Port."""
    name: NonEmptyText
    """Name of the database."""
    ssl_mode: Literal["disable", "require", "verify-ca", "verify-full"] = "disable"
    """How the connection is protected."""
    ssl_root_cert: Text = ""
    """File of the authority of its certificate; empty means those that the machine trusts."""

    @model_validator(mode="after")
    def _certificate_is_used(self) -> Self:
        if self.ssl_root_cert and self.ssl_mode == "disable":
            text = "has no effect while ssl_mode is 'disable'; set ssl_mode to verify-full, or remove it"
            raise broken_at((("ssl_root_cert",), text, self.ssl_root_cert))
        return self

    @model_validator(mode="before")
    @classmethod
    def _port_text(cls, value: Any) -> Any:
        port = value.get("port") if isinstance(value, Mapping) else None
        return {**value, "port": int(port)} if isinstance(port, str) and port.isdecimal() else value


_DATABASES = TaggedUnion("type", ("sqlite", "postgres"))


def _with_type(value: Any) -> Any:
    """Without `type`, the keys of a server mean PostgreSQL."""
    if isinstance(value, Mapping) and value.get("type") is None:
        value = {**value, "type": "postgres" if {"host", "user", "name"} & set(value) else "sqlite"}
    return _DATABASES.check(value)


Database = Annotated[
    Annotated[SqliteDatabase, Tag("<sqlite>")] | Annotated[PostgresDatabase, Tag("<postgres>")],
    Discriminator(_DATABASES.member),
    BeforeValidator(_with_type),
]


def _unique_pools(pools: tuple[ResourcePool, ...]) -> tuple[ResourcePool, ...]:
    seen: set[str] = set()
    for index, pool in enumerate(pools):
        if pool.pool_name in seen:
            raise broken_at(((index, "pool_name"), "is the name of another pool; give each its own", pool.pool_name))
        seen.add(pool.pool_name)
    return pools


def _none_given(managers: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    if managers:
        raise broken_rule("only the agent resource manager is supported; remove it")
    return managers


class MasterConfig(ConfigModel):
    """A complete configuration of a master. Durations are seconds."""

    host: NonEmptyText = "0.0.0.0"
    """Address that the API listens on."""
    port: Port = 8080
    """Port that the API listens on; 8443 by default with TLS."""
    cluster_name: Text = ""
    """Name of the cluster, shown to users."""
    cluster_state_dir: NonEmptyText = "/var/lib/resolute"
    """Directory for the embedded database and uploads."""
    db: Database = SqliteDatabase()
    """Where the cluster's state is kept."""
    security: MasterSecurity = MasterSecurity()
    """Passwords, TLS, tokens."""
    checkpoint_storage: CheckpointStorage | None = None
    """Default of experiments."""
    task_container_defaults: TaskContainerDefaults = TaskContainerDefaults()
    """Merged under every task's configuration."""
    resource_manager: ResourceManager = ResourceManager()
    """What all pools share."""
    resource_pools: Annotated[tuple[ResourcePool, ...], AfterValidator(_unique_pools)] = (
        ResourcePool(pool_name=DEFAULT_POOL),
    )
    """The pools; none means one called `default`."""
    additional_resource_managers: Annotated[tuple[dict[str, Any], ...], AfterValidator(_none_given)] = ()
    """For Kubernetes only; must be empty."""
    heartbeat_interval: PositiveDuration = 5.0
    """Interval of the agents' heartbeats."""
    journal: Journal = Journal()
    """The record of decisions."""
    log: Log = Log()
    """The master's own log."""
    root: Text = "/usr/share/determined/master"
    """Static files."""
    enable_cors: Flag = False
    """Let pages of other sites use the API."""
    launch_error: Flag = True
    """Refuse infeasible work, instead of warning."""
    tensorboard_timeout: Duration = 300.0
    """How long a TensorBoard may be idle."""
    notebook_timeout: Duration | None = None
    """How long a notebook may be idle; null means for ever."""
    feature_switches: tuple[Text, ...] = ()
    """Names of features to switch on, or off with a `-` before it."""
    reserved_ports: tuple[Port, ...] = ()
    """Ports that are never assigned to tasks."""
    cache: Cache = Cache()
    """Cached files."""
    ui_customization: UiCustomization = UiCustomization()
    """Looks of the web interface."""
    webhooks: Webhooks = Webhooks()
    """Outgoing notifications."""
    telemetry: Telemetry = Telemetry()
    """Usage reports and traces."""
    observability: Observability = Observability()
    """Metrics for monitoring."""
    logging: Logging = Logging()
    """Where logs of tasks are kept."""
    retention_policy: Retention = Retention()
    """How long logs of tasks are kept."""
    integrations: Integrations = Integrations()
    """Other systems."""
    scim: Switched = Switched()
    """Not supported."""
    saml: Switched = Switched()
    """Not supported."""
    oidc: Switched = Switched()
    """Not supported."""
    det_cloud: Switched = Switched()
    """Not supported."""
    internal: Annotated[Internal, Field(alias="__internal")] = Internal()
    """Not for users."""

    hints: ClassVar[Mapping[str, str]] = {
        "provisioner": "give each pool its provider under 'resource_pools'",
        "scheduler": "set it under 'resource_manager' or for a pool under 'resource_pools'",
    }

    @model_validator(mode="before")
    @classmethod
    def _old_form(cls, value: Any) -> Any:
        """`scheduler` and `provisioner` at the top are the form of old releases with one pool."""
        if not isinstance(value, Mapping) or not {"scheduler", "provisioner"} & set(value):
            return value
        mixed = [name for name in ("resource_manager", "resource_pools") if name in value]
        if mixed:
            old = [name for name in ("scheduler", "provisioner") if name in value]
            text = f"is the old form and must not be mixed with {' and '.join(mixed)}; move it there"
            raise broken_at(*[((name,), text, value[name]) for name in old])
        read = {key: inner for key, inner in value.items() if key not in ("scheduler", "provisioner")}
        if value.get("scheduler") is not None:
            read["resource_manager"] = {"scheduler": value["scheduler"]}
        if value.get("provisioner") is not None:
            read["resource_pools"] = [{"pool_name": DEFAULT_POOL, "provider": value["provisioner"]}]
        return read

    @model_validator(mode="before")
    @classmethod
    def _derived(cls, value: Any) -> Any:
        """No pools means the default one; TLS moves the port."""
        if not isinstance(value, Mapping):
            return value
        read = {key: inner for key, inner in value.items() if not (key == "resource_pools" and inner == [])}
        security = value.get("security")
        tls = security.get("tls") if isinstance(security, Mapping) else None
        on = isinstance(tls, Mapping) and (tls.get("cert") or tls.get("enabled") in (True, "true"))
        if on and value.get("port") is None:
            read["port"] = 8443
        return read

    @model_validator(mode="after")
    def _default_pools_exist(self) -> Self:
        names = [pool.pool_name for pool in self.resource_pools]
        found: list[tuple[tuple[str | int, ...], str, object]] = []
        for key in ("default_aux_resource_pool", "default_compute_resource_pool"):
            name = getattr(self.resource_manager, key)
            if name not in names and not self.resource_manager.no_default_resource_pools:
                text = f"must be the name of a pool; {suggestion(name, names)}"
                found.append((("resource_manager", key), text, name))
        if found:
            raise broken_at(*found)
        return self

    @model_validator(mode="after")
    def _checkpoints_outlive_their_machines(self) -> Self:
        found: list[tuple[tuple[str | int, ...], str, object]] = [
            (("resource_pools", place, "provider", "type"), why, pool.provider.name)
            for place, pool in enumerate(self.resource_pools)
            if pool.provider is not None and (why := pool.loses_files_of(self._storage_type))
        ]
        if found:
            raise broken_at(*found)
        return self

    @model_validator(mode="after")
    def _check_blank_passwords(self) -> Self:
        if self.security.allow_blank_password and not self.is_loopback:
            text = (
                f"is only possible on a loopback address, and host is {self.host}; "
                "set host to 127.0.0.1, or set security.initial_user_password"
            )
            raise broken_at((("security", "allow_blank_password"), text, True))
        return self

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the API."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def sqlite_path(self) -> Path | None:
        """The file of the embedded database; None when the state is on a server."""
        if isinstance(self.db, PostgresDatabase):
            return None
        return Path(self.db.path) if self.db.path else Path(self.cluster_state_dir) / "resolute.db"

    @property
    def _storage_type(self) -> str | None:
        return None if self.checkpoint_storage is None else self.checkpoint_storage.type

    def pool_loses_files(self, name: str, storage_type: str | None) -> str:
        """As `ResourcePool.loses_files_of`, of the pool of that name; empty where there is none."""
        found = next((pool for pool in self.resource_pools if pool.pool_name == name), None)
        return "" if found is None else found.loses_files_of(storage_type)

    def pool(self, name: str, *, key: str = "resources.resource_pool") -> ResourcePool:
        """The pool of that name, which `key` gives. Raises InvalidInput with the nearest name that exists."""
        for pool in self.resource_pools:
            if pool.pool_name == name:
                return pool
        names = [pool.pool_name for pool in self.resource_pools]
        raise InvalidInput(f"{key}: there is no pool '{name}'; {suggestion(name, names)}")

    def pool_for(self, name: str, slots: int) -> ResourcePool:
        """The pool for work that asks for `slots` in the pool `name`; an empty name takes the default."""
        if name:
            return self.pool(name)
        manager = self.resource_manager
        default = manager.default_compute_resource_pool if slots > 0 else manager.default_aux_resource_pool
        if not default:
            raise InvalidInput("resources.resource_pool: this cluster has no default pool; name one")
        return self.pool(default)

    def scheduler_of(self, pool: ResourcePool) -> Scheduler:
        """The pool's own scheduler, or the one of all pools."""
        return pool.scheduler if pool.scheduler is not None else self.resource_manager.scheduler

    def task_defaults_of(self, pool: ResourcePool) -> TaskContainerDefaults:
        """The pool's block over the cluster's."""
        if pool.task_container_defaults is None:
            return self.task_container_defaults
        return pool.task_container_defaults.over(self.task_container_defaults)

    def masked(self) -> dict[str, Any]:
        """The complete configuration for display, with every secret masked."""
        return masked(self, self.security.secrets.names)


def parse_master_config(
    raw: Mapping[str, Any], *, sources: Mapping[Location, str] | None = None, subject: str = SUBJECT
) -> MasterConfig:
    """Validate and complete a master configuration. Raises InvalidConfig with every problem.

    `sources` lists the paths that the file did not set, `subject` is the name of the configuration in errors.
    """
    given = as_json(raw, what=subject)
    refuse_masks(given, subject)
    try:
        return MasterConfig.model_validate(given)
    except ValidationError as error:
        raise InvalidConfig(subject, problems_of(error, sources)) from None


def load_master_config(
    path: Path | str | None, environ: Mapping[str, str], flags: Mapping[str, Any] | None = None
) -> MasterConfig:
    """Read the file at `path` (or `DET_CONFIG_FILE`, or none), with the environment and then flags over it.

    A variable is `DET_` and the key's path in upper case joined by `_` (`DET_DB_PATH`); a flag is the path joined
    by `-`, `_` or `.`. Values of keys that are not acted on yet are refused by name.
    """
    raw, sources, subject = read_layers(MasterConfig, path, environ, flags or {}, what=SUBJECT)
    config = parse_master_config(raw, sources=sources, subject=subject)
    problems = not_acted_on(config.model_dump(mode="json", by_alias=True), MASTER_KEYS)
    if problems:
        raise InvalidConfig(subject, problems)
    return config
