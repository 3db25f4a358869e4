"""The configuration of an agent: `agent.yaml`, its environment variables and its flags."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from resolute.config.base import (
    ConfigModel,
    Count,
    Flag,
    Integer,
    NonEmptyText,
    Port,
    Secret,
    SecretMark,
    Text,
    broken_at,
    broken_rule,
)
from resolute.config.durations import Duration, PositiveDuration
from resolute.config.errors import InvalidConfig, Location, problems_of
from resolute.config.host_paths import AgentHostPaths
from resolute.config.layers import read_layers
from resolute.config.masking import masked, refuse_masks
from resolute.config.master_parts import Log
from resolute.config.not_acted_on import AGENT_KEYS, not_acted_on
from resolute.config.resources import MemorySize
from resolute.config.yaml_text import as_json

DEFAULT_AGENT_CONFIG_PATH = Path("/etc/determined/agent.yaml")
SUBJECT = "the agent configuration"
TLS_PORT = 443
PLAIN_PORT = 80


class AgentTls(ConfigModel):
    """The connection to the master."""

    enabled: Flag = False
    """Use TLS."""
    skip_verify: Flag = False
    """Trust any certificate."""
    master_cert: Text = ""
    """File of the authority of the master's certificate."""
    master_cert_name: Text = ""
    """Name to verify instead of the host."""
    client_cert: Text = ""
    """File of the agent's own certificate."""
    client_key: Text = ""
    """File of its key."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.skip_verify and self.master_cert:
            raise broken_rule("skip_verify and master_cert must not both be set")
        if bool(self.client_cert) != bool(self.client_key):
            raise broken_rule("client_cert and client_key must both be set, or none of them")
        return self


class AgentSecurity(ConfigModel):
    """The connection to the master."""

    tls: AgentTls = AgentTls()
    """TLS."""


class Hooks(ConfigModel):
    """Commands that the agent runs."""

    on_connection_lost: tuple[Text, ...] = ()
    """When the master cannot be reached any more, as a list of arguments."""


def _gpu_is_cuda(value: Any) -> Any:
    return "cuda" if value == "gpu" else value


def _socket(text: str) -> str:
    if not text.startswith("unix:///"):
        raise broken_rule("must be a socket of this machine, unix:///path/to/docker.sock")
    return text


class AgentConfig(ConfigModel):
    """A complete configuration of an agent. Durations are seconds."""

    master_host: NonEmptyText
    """Host of the master."""
    master_port: Port | None = None
    """Port of the master; null means 443 with TLS, else 80."""
    agent_id: Text = ""
    """Name of the agent, unique in the cluster; empty means the host's name."""
    resource_pool: NonEmptyText = "default"
    """The pool that it belongs to."""
    container_master_host: Text = ""
    """Host of the master for tasks; empty means `master_host`."""
    container_master_port: Port | None = None
    """Port of the master for tasks; null means the agent's."""
    slot_type: Annotated[Literal["auto", "cuda", "rocm", "cpu", "none"], BeforeValidator(_gpu_is_cuda)] = "auto"
    """What a slot is (old name of cuda: gpu)."""
    visible_gpus: Text = ""
    """GPUs to use by index, UUID, PCI address or serial number, with commas; empty means ROCR_ or CUDA_VISIBLE_DEVICES."""
    artificial_slots: Count = 0
    """Number of slots without devices, for tests and machines without GPUs."""
    slot_threads: Count = 0
    """Threads of a CPU slot's processes (OMP_NUM_THREADS, where the experiment sets none); 0 shares the processors out."""
    security: AgentSecurity = AgentSecurity()
    """The connection to the master."""
    http_proxy: Text = ""
    """Given to tasks as HTTP_PROXY."""
    https_proxy: Text = ""
    """Given to tasks as HTTPS_PROXY."""
    ftp_proxy: Text = ""
    """Given to tasks as FTP_PROXY."""
    no_proxy: Text = ""
    """Given to tasks as NO_PROXY."""
    agent_reconnect_attempts: Count = 5
    """Accepted for old configurations; the agent retries until `master_timeout`."""
    agent_reconnect_backoff: Duration = 5.0
    """Longest pause between two attempts to reach the master."""
    container_runtime: Literal["process", "scripted", "docker"] = "process"
    """What runs tasks: processes of this machine, containers of its Docker engine, or behaviour scripted for tests."""
    docker_host: Annotated[Text, AfterValidator(_socket)] = "unix:///var/run/docker.sock"
    """Socket of the engine, on this machine."""
    docker_memory: MemorySize = 0
    """Most memory of a container, in bytes or as a text such as 16g; 0 sets no limit."""
    docker_ulimits: dict[str, Integer] = Field(default_factory=dict)
    """Limits of a container by name, such as memlock or nofile; -1 is none."""
    host_paths: AgentHostPaths = AgentHostPaths()
    """Paths of this machine that experiments may use."""
    container_auto_remove_disabled: Flag = False
    """Keep the files of ended tasks."""
    hooks: Hooks = Hooks()
    """Commands that the agent runs."""
    api_enabled: Flag = False
    """The agent's own endpoint."""
    bind_ip: Text = "0.0.0.0"
    """Its address."""
    bind_port: Port = 9090
    """Its port."""
    tls: Flag = False
    """Protect it with TLS."""
    tls_cert: Text = ""
    """File of its certificate."""
    tls_key: Text = ""
    """File of its key."""
    debug: Flag = False
    """Write everything to the log."""
    log: Log = Log()
    """The agent's own log."""
    image_root: Text | None = None
    """Has no effect; accepted for old configurations."""
    fluent: Annotated[dict[str, Any] | None, SecretMark.FREE] = None
    """Has no effect; accepted for old configurations."""
    state_dir: NonEmptyText = "/var/lib/resolute-agent"
    """Directory for what must survive the agent: its tasks, their output and exit codes."""
    join_token: Secret = ""
    """Token to join: the cluster's token (`det agent join-token`), or the machine's own on an elastic pool."""
    join_token_file: Text = ""
    """File that holds the token, instead of `join_token`: a systemd credential or a mounted secret."""
    instance_id: Text = ""
    """The machine's id at its cloud, on an elastic pool."""
    notice_source: Text = ""
    """File or http address that announces an interruption of this machine, or ec2 or gce for that cloud's metadata service."""
    master_timeout: PositiveDuration | None = None
    """How long a machine of an elastic pool may fail to reach its master before it ends itself; null for ever."""

    @model_validator(mode="after")
    def _own_endpoint(self) -> Self:
        if self.tls and not (self.tls_cert and self.tls_key):
            raise broken_at((("tls",), "tls needs tls_cert and tls_key", True))
        return self

    @model_validator(mode="after")
    def _one_token(self) -> Self:
        if self.join_token and self.join_token_file:
            raise broken_rule("join_token and join_token_file must not both be set")
        return self

    @property
    def effective_master_port(self) -> int:
        """The port to connect to."""
        return self.master_port or (TLS_PORT if self.security.tls.enabled else PLAIN_PORT)

    @property
    def master_url(self) -> str:
        """Address of the master for the agent."""
        return self._url(self.master_host, self.effective_master_port)

    @property
    def container_master_url(self) -> str:
        """Address of the master for tasks."""
        host = self.container_master_host or self.master_host
        return self._url(host, self.container_master_port or self.effective_master_port)

    def _url(self, host: str, port: int) -> str:
        shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
        return f"{'https' if self.security.tls.enabled else 'http'}://{shown}:{port}"

    def masked(self) -> dict[str, Any]:
        """The complete configuration for display, with every secret masked."""
        return masked(self)

    def warnings(self) -> tuple[str, ...]:
        """Sentences for the agent's log about keys that have no effect."""
        return tuple(
            f"config.{name} has no effect; remove it" for name in ("image_root", "fluent") if getattr(self, name)
        )


def parse_agent_config(
    raw: Mapping[str, Any], *, sources: Mapping[Location, str] | None = None, subject: str = SUBJECT
) -> AgentConfig:
    """Validate and complete an agent's configuration. Raises InvalidConfig with every problem.

    `sources` lists the paths that the file did not set, `subject` is the name of the configuration in errors.
    """
    given = as_json(raw, what=subject)
    refuse_masks(given, subject)
    try:
        config = AgentConfig.model_validate(given)
    except ValidationError as error:
        raise InvalidConfig(subject, problems_of(error, sources)) from None
    problems = not_acted_on(config.model_dump(mode="json"), AGENT_KEYS)
    if problems:
        raise InvalidConfig(subject, problems)
    return config


def load_agent_config(
    path: Path | str | None, environ: Mapping[str, str], flags: Mapping[str, Any] | None = None
) -> AgentConfig:
    """Read the file at `path` (or `DET_CONFIG_FILE`, or none), with the environment and then flags over it.

    A variable is `DET_` and the key's path in upper case joined by `_` (`DET_MASTER_HOST`); a flag is the path
    joined by `-`, `_` or `.`.
    """
    raw, sources, subject = read_layers(AgentConfig, path, environ, flags or {}, what=SUBJECT)
    if not raw.get("visible_gpus"):
        shown = environ.get("ROCR_VISIBLE_DEVICES") or environ.get("CUDA_VISIBLE_DEVICES")
        if shown:
            raw["visible_gpus"] = shown
    return parse_agent_config(raw, sources=sources, subject=subject)
