"""Smaller blocks of the master's configuration."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from resolute.config.base import (
    ConfigModel,
    Count,
    Flag,
    Integer,
    NonEmptyText,
    Port,
    PositiveInteger,
    Secret,
    SecretMark,
    Text,
    broken_at,
    broken_rule,
)
from resolute.config.durations import Duration, parse_duration
from resolute.config.host_paths import HostPaths
from resolute.config.secret_names import SecretNames

NamePattern = Annotated[NonEmptyText, Field(max_length=128)]
"""Longest name of a variable, more than a user needs."""

LogLevel = Literal["trace", "debug", "info", "warn", "error", "fatal"]
INFINITE_LIFESPAN_DAYS = 106751  # how "no end" is stored: the longest that fits nanoseconds in 64 bits


class Log(ConfigModel):
    """The process's own log."""

    level: LogLevel = "info"
    """Least important level that is written."""
    color: Flag = True
    """Colours on a terminal."""
    format: Literal["text", "json"] = "text"
    """`text` for reading, `json` for log collectors: one object per line, with the ids of its subjects."""


class Journal(ConfigModel):
    """The record of decisions, from which a master can be replayed."""

    retain_snapshots: PositiveInteger = 3
    """Snapshots to keep, with all that followed the oldest of them."""


class DefaultTask(ConfigModel):
    """The system user that tasks run as."""

    uid: Count = 0
    """User number."""
    gid: Count = 0
    """Group number."""
    user: NonEmptyText = "root"
    """User name."""
    group: NonEmptyText = "root"
    """Group name."""


class TaskUsers(ConfigModel):
    """The numbers of users and groups that plain processes of tasks run as, where their agent is root and no account is linked."""

    first_uid: Annotated[Integer, Field(ge=1000, le=4_200_000_000)] = 2_100_000_000
    """The id of a user is added to it. No account of a machine may have a number of the range."""
    count: Annotated[Integer, Field(ge=1, le=90_000_000)] = 10_000_000
    """Size of the range."""


def _host_name(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        pass
    if not re.fullmatch(
        r"(\*\.)?[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*", text
    ):
        raise broken_rule("must be the name of a host or an address, such as master.example.org or 10.0.0.7")
    return text.lower()


class MasterTls(ConfigModel):
    """Certificate of the API."""

    enabled: Flag = False
    """Serve TLS with a certificate that the master makes and renews itself, where `cert` is empty."""
    cert: Text = ""
    """File of the certificate with its chain; it is reloaded when it changes."""
    key: Text = ""
    """File of its key."""
    ca: Text = ""
    """File of the authority of `cert`, which is given to elastic machines; empty where every machine trusts it."""
    names: tuple[Annotated[Text, AfterValidator(_host_name)], ...] = ()
    """Further names and addresses for the certificate that the master makes itself."""
    hsts_max_age: Duration = 30 * 24 * 3600.0
    """How long a browser that came over TLS refuses plain HTTP to this host, on every port (`Strict-Transport-Security`); 0 sends
    no such header."""

    @property
    def on(self) -> bool:
        """Whether the master serves TLS."""
        return self.enabled or bool(self.cert)

    @model_validator(mode="after")
    def _both(self) -> Self:
        if bool(self.cert) != bool(self.key):
            raise broken_rule("cert and key must both be set, or none of them")
        if self.ca and not self.cert:
            raise broken_at((("ca",), "requires cert; without one the master has its own authority", self.ca))
        return self


class Ssh(ConfigModel):
    """Keys of shells."""

    rsa_key_size: Annotated[Integer, Field(ge=1, le=16384)] = 1024
    """Bits, for RSA."""
    key_type: Literal["ED25519", "RSA", "ECDSA"] = "ED25519"
    """Kind of key."""


class AssignRole(ConfigModel):
    """Role of the creator of a workspace."""

    enabled: Flag = True
    """Whether to assign it."""
    role_id: Integer = 2
    """Id of the role."""


class Authorization(ConfigModel):
    """Authorisation."""

    type: Literal["basic", "open"] = "basic"
    """`basic`: work is changed by its owner, the owner of its workspace and administrators. `open`: every user controls every
    experiment, as in the original."""
    fallback: Literal["basic"] = "basic"
    """Rules for calls that the others do not cover."""
    rbac_ui_enabled: Flag | None = None
    """Show roles in the web interface."""
    workspace_creator_assign_role: AssignRole = AssignRole()
    """Role of the creator of a workspace."""
    strict_job_queue_control: Flag = False
    """Only administrators may change the queue: priority, weight, pool and place of what is submitted already."""


class Tokens(ConfigModel):
    """Access tokens."""

    default_lifespan_days: Annotated[Integer, Field(ge=-1)] = 30
    """Default lifetime of a token in days; -1 means no end."""
    max_lifespan_days: Annotated[Integer, Field(ge=-1)] = 30
    """Maximum lifetime in days; -1 means no end."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        default, most = (
            INFINITE_LIFESPAN_DAYS if days == -1 else days
            for days in (self.default_lifespan_days, self.max_lifespan_days)
        )
        if default > most:
            raise broken_rule("default_lifespan_days must not be greater than max_lifespan_days")
        return self


class Seal(ConfigModel):
    """The key that seals the cluster's own secrets in the database. The three keys exclude each other."""

    key: Secret = ""
    """The key itself: 64 hexadecimal digits. Meant for the variable `DET_SECURITY_SEAL_KEY`."""
    key_file: Text = ""
    """File of the key; empty means `seal.key` in `cluster_state_dir`. The first start creates it."""
    key_command: tuple[NonEmptyText, ...] = ()
    """Program and arguments that print the key: the way to a secret store."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name in ("key", "key_file", "key_command") if getattr(self, name)]
        if len(given) > 1:
            raise broken_rule(f"{' and '.join(given)} exclude each other; keep one of them")
        return self


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError:
        raise broken_rule("must be an address or a network of addresses, such as 10.0.0.7 or 10.0.0.0/8") from None


LEAST_JOIN_TOKEN_CHARACTERS = 16
"""A token that is set by hand is no shorter: it can be tried out over the network."""


class AgentJoining(ConfigModel):
    """How machines outside of cloud pools join."""

    join_token: Secret = ""
    """The join token, at least 16 printable characters; empty keeps the one of the first start (`det agent join-token`)."""

    @model_validator(mode="after")
    def _hard_to_guess(self) -> Self:
        token = self.join_token
        if token and (len(token) < LEAST_JOIN_TOKEN_CHARACTERS or not token.isascii() or not token.isprintable()):
            raise broken_at(
                (
                    ("join_token",),
                    f"must be at least {LEAST_JOIN_TOKEN_CHARACTERS} printable ASCII characters; "
                    "use the output of `openssl rand -hex 32`, or remove the key",
                    True,
                )
            )
        return self


class Secrets(ConfigModel):
    """Further secrets, in addition to the secret keys."""

    environment_patterns: tuple[NamePattern, ...] = ()
    """Shell patterns of names of environment variables to mask, beside the [built-in ones](security.md#environment-variables)."""

    @property
    def names(self) -> SecretNames:
        """The built-in patterns and these."""
        return SecretNames(self.environment_patterns)


class MasterSecurity(ConfigModel):
    """Passwords, TLS, tokens."""

    trusted_proxies: tuple[Annotated[Text, AfterValidator(_network)], ...] = ()
    """Addresses or networks of proxies before the master; only their X-Forwarded-For and X-Forwarded-Proto are read."""

    initial_user_password: Secret = ""
    """Password of the first users, for a new cluster only; empty generates one at first start."""
    allow_blank_password: Flag = False
    """Allow the first users without a password; only on a loopback address."""
    default_task: DefaultTask = DefaultTask()
    """The system user of tasks, unless their owner or workspace has another one; root means `task_users` for processes."""
    task_users: TaskUsers = TaskUsers()
    """The numbers of the others."""
    host_paths: HostPaths = HostPaths()
    """Paths and devices of machines that experiments may use."""
    tls: MasterTls = MasterTls()
    """Certificate of the API."""
    ssh: Ssh = Ssh()
    """Keys of shells."""
    authz: Authorization = Authorization()
    """Authorisation."""
    token: Tokens = Tokens()
    """Access tokens."""
    secrets: Secrets = Secrets()
    """Further secrets, in addition to the secret keys."""
    seal: Seal = Seal()
    """The key that seals the cluster's own secrets in the database."""
    agents: AgentJoining = AgentJoining()
    """How machines outside of cloud pools join."""


class Cache(ConfigModel):
    """Cached files."""

    cache_dir: NonEmptyText = "/var/cache/determined"
    """Where they are."""


class LogoPaths(ConfigModel):
    """Logos of the web interface; all four, or none."""

    dark_horizontal: Text = ""
    """For dark pages, wide."""
    dark_vertical: Text = ""
    """For dark pages, high."""
    light_horizontal: Text = ""
    """For light pages, wide."""
    light_vertical: Text = ""
    """For light pages, high."""

    @model_validator(mode="after")
    def _all(self) -> Self:
        paths = (self.dark_horizontal, self.dark_vertical, self.light_horizontal, self.light_vertical)
        if any(paths) and not all(paths):
            raise broken_rule("all four logos must be set, or none of them")
        return self


class UiCustomization(ConfigModel):
    """Looks of the web interface."""

    logo_paths: LogoPaths | None = None
    """Logos."""


class Webhooks(ConfigModel):
    """Outgoing notifications."""

    signing_key: Secret = ""
    """Key of their signature; empty draws one at each start."""
    base_url: Text = ""
    """Address of this cluster in their links."""


class Telemetry(ConfigModel):
    """Usage reports and traces; nothing leaves the cluster unless it is switched on."""

    enabled: Flag = False
    """Report usage."""
    segment_master_key: Secret = ""
    """Key of the master's reports."""
    segment_webui_key: Secret = ""
    """Key of the web interface's reports."""
    otel_enabled: Flag = False
    """Send traces over OTLP; needs the extra `otel` to be installed."""
    otel_endpoint: Text = "localhost:4317"
    """Where to: `host:port`, or `https://host:port` for a connection with TLS."""


class Observability(ConfigModel):
    """Metrics for monitoring."""

    enable_prometheus: Flag = True
    """Offer them to Prometheus."""
    metrics_token: Secret = ""
    """Bearer token that may read only the metrics; empty means that only users may read them."""


class ElasticTls(ConfigModel):
    """How the connection is protected."""

    enabled: Flag = False
    """Use TLS."""
    skip_verify: Flag = False
    """Trust any certificate."""
    certificate: Text = ""
    """File of the authority of its certificate."""


class ElasticSecurity(ConfigModel):
    """Access to the search server."""

    username: Text | None = None
    """User."""
    password: Secret | None = None
    """Password."""
    tls: ElasticTls = ElasticTls()
    """TLS."""

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise broken_rule("username and password must both be set, or none of them")
        return self


class Logging(ConfigModel):
    """Where logs of tasks are kept."""

    type: Literal["default", "elastic"] = "default"
    """`default` is the database."""
    host: Text | None = None
    """Elastic only: its host."""
    port: Port | None = None
    """Elastic only: its port."""
    security: ElasticSecurity | None = None
    """Elastic only: access to it."""

    @model_validator(mode="after")
    def _of_its_type(self) -> Self:
        given = (self.host, self.port, self.security)
        if self.type == "default" and any(one is not None for one in given):
            raise broken_rule("host, port and security belong to the type elastic; remove them")
        if self.type == "elastic" and (self.host is None or self.port is None):
            raise broken_rule("the type elastic needs host and port")
        return self


CRON_FIELDS = 5


def _schedule(value: Any) -> Any:
    if isinstance(value, str) and len(value.split()) != CRON_FIELDS:
        try:
            parse_duration(value)
        except ValueError:
            raise broken_rule("must be a duration such as 24h, or a cron line of five fields") from None
    return value


class Retention(ConfigModel):
    """How long logs of tasks are kept."""

    log_retention_days: Annotated[Integer, Field(ge=-1, le=32767)] = -1
    """Days after the end of a task; -1 keeps logs for ever, 0 removes them with the next sweep."""
    schedule: Annotated[Text | None, BeforeValidator(_schedule)] = None
    """How often to sweep; null means only on request."""


class PachydermAddress(ConfigModel):
    """Data versioning."""

    address: Text = ""
    """Where its server is."""


class Integrations(ConfigModel):
    """Other systems."""

    pachyderm: PachydermAddress = PachydermAddress()
    """Data versioning."""


class Switched(ConfigModel):
    """A feature of the original's enterprise edition."""

    model_config = ConfigDict(extra="ignore")  # whatever is there while it is off

    enabled: Flag = False
    """Must be false."""


class ProxiedServer(ConfigModel):
    """A server behind the master."""

    path_prefix: NonEmptyText
    """Path on the master."""
    destination: NonEmptyText
    """Address with port."""

    @model_validator(mode="after")
    def _has_port(self) -> Self:
        if not self.destination.rpartition(":")[2].rstrip("/").isdecimal():
            raise broken_rule("destination must end with a port, as in http://host:8000")
        return self


class Internal(ConfigModel):
    """Not for users."""

    audit_logging_enabled: Flag = False
    """Log all calls with their callers."""
    external_sessions: Annotated[dict[str, Any], SecretMark.FREE] = Field(default_factory=dict)
    """Sessions of another system."""
    proxied_servers: tuple[ProxiedServer, ...] = ()
    """Servers behind the master."""
