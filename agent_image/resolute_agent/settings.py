"""The settings of an agent process at its start; one frozen value, passed down by constructor."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from resolute.errors import InvalidInput
from resolute.providers import NOTICE_SOURCES

SLOT_TYPES = ("auto", "cpu", "cuda", "gpu", "rocm", "none")

METADATA = tuple(NOTICE_SOURCES)
"""Metadata services that announce a machine's end."""

RUNTIMES = ("process", "docker", "scripted")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Everything that can be configured of an agent.

    `state_dir` belongs to this agent alone. `container_master_url` is the master as tasks reach it, when that differs
    from `master_url`. `master_timeout_s`: a machine without an answer from a master for this long ends itself (`None`: it
    waits for ever); `reconnect_cap_s` is the longest pause between two attempts to reach it. `notice_file` or
    `notice_url` is where an interruption is announced, or `notice_metadata` names the cloud whose metadata service does it.
    `join_token_file` holds the token that `join_token` is otherwise.
    `docker_host` is the engine's socket, `docker_memory_bytes` the most memory of a container (0: no limit) and
    `docker_ulimits` its limits by name. `keep_paths` stay visible to tasks although they are in something that is hidden
    from them, such as `/tmp`. `hidden_paths` hold state of the cluster, which no task may reach; `config_file` is where the
    settings came from. `host_paths_allowed` lists what experiments may name of the machine (`None`: all but state and system).
    `slot_threads`: number of compute threads of a CPU slot's processes (0: its share of the processors).
    """

    master_url: str
    state_dir: str
    agent_id: str
    resource_pool: str = "default"
    instance_id: str = ""
    join_token: str = ""
    join_token_file: str = ""
    slot_type: str = "auto"
    artificial_slots: int = 0
    slot_threads: int = 0
    visible_gpus: tuple[str, ...] = ()
    address: str = ""
    container_master_url: str = ""
    master_timeout_s: float | None = None
    reconnect_cap_s: float = 30.0
    notice_file: str = ""
    notice_url: str = ""
    notice_metadata: str = ""
    runtime: str = "process"
    docker_host: str = "unix:///var/run/docker.sock"
    docker_memory_bytes: int = 0
    docker_ulimits: Mapping[str, int] = field(default_factory=dict)
    private_root: bool = True
    keep_paths: tuple[str, ...] = ()
    hidden_paths: tuple[str, ...] = ()
    host_paths_allowed: tuple[str, ...] | None = None
    config_file: str = ""
    proxies: Mapping[str, str] = field(default_factory=dict)
    tls_master_cert: str = ""
    tls_skip_verify: bool = False
    tls_cert_name: str = ""
    log_level: str = "info"
    log_format: str = "text"
    log_color: bool = True

    def __post_init__(self) -> None:
        problems = []
        if not self.master_url.startswith(("http://", "https://")):
            problems.append(f"master_url: {self.master_url!r} is no URL of a master; write http://host:port")
        if not self.agent_id:
            problems.append("agent_id: must not be empty")
        if not self.state_dir:
            problems.append("state_dir: must not be empty; name a directory for this agent alone")
        if self.join_token and self.join_token_file:
            problems.append("join_token and join_token_file: give one of them")
        if self.slot_type not in SLOT_TYPES:
            problems.append(f"slot_type: {self.slot_type!r} is none of {', '.join(SLOT_TYPES)}")
        if self.artificial_slots < 0:
            problems.append(f"artificial_slots: {self.artificial_slots} must not be negative")
        if self.slot_threads < 0:
            problems.append(f"slot_threads: {self.slot_threads} must not be negative; 0 shares the processors out")
        if self.runtime not in RUNTIMES:
            problems.append(f"runtime: {self.runtime!r} is none of {', '.join(RUNTIMES)}")
        if self.runtime == "docker" and not self.docker_host.startswith("unix:///"):
            problems.append(
                f"docker_host: {self.docker_host!r} is no socket of this machine; write unix:///path/to/docker.sock"
            )
        if self.docker_memory_bytes < 0:
            problems.append(f"docker_memory_bytes: {self.docker_memory_bytes} must not be negative; 0 sets no limit")
        if self.master_timeout_s is not None and self.master_timeout_s <= 0:
            problems.append(f"master_timeout_s: {self.master_timeout_s} must be more than 0, or absent")
        if sum(map(bool, (self.notice_file, self.notice_url, self.notice_metadata))) > 1:
            problems.append("notice_file, notice_url and notice_metadata: give one of them")
        if self.notice_metadata and self.notice_metadata not in METADATA:
            problems.append(f"notice_metadata: {self.notice_metadata!r} is none of {', '.join(METADATA)}")
        if self.tls_skip_verify and self.tls_master_cert:
            problems.append("tls_skip_verify and tls_master_cert: give one of them")
        if problems:
            raise InvalidInput("; ".join(problems))


MAX_TOKEN_FILE_BYTES = 4096
"""Largest size of a file with a join token. A longer file is not one."""


def join_token_of(settings: AgentSettings) -> str:
    """The token to show, from the settings or from its file. Raises `InvalidInput` for a file that holds none."""
    if not settings.join_token_file:
        return settings.join_token
    path = Path(settings.join_token_file)
    hint = "write what `det agent join-token` prints into it"
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TOKEN_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"join_token_file: {path} cannot be read: {error.strerror or error}; {hint}") from error
    words = data.split()
    if len(data) > MAX_TOKEN_FILE_BYTES or len(words) != 1 or not words[0].isascii():
        raise InvalidInput(f"join_token_file: {path} does not hold one token; {hint}")
    return words[0].decode("ascii")


def settings_from_mapping(values: Mapping[str, Any], *, origin: str) -> AgentSettings:
    """Settings from parsed JSON or YAML. Raises `InvalidInput` naming the key; unknown keys are errors."""
    known = AgentSettings.__dataclass_fields__
    for key in values:
        if key not in known:
            near = get_close_matches(str(key), known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InvalidInput(f"{origin}: unknown key {key!r}{hint}")
    missing = [key for key in ("master_url", "state_dir", "agent_id") if key not in values]
    if missing:
        raise InvalidInput(f"{origin}: {', '.join(missing)} must be given")
    try:
        return msgspec.convert(dict(values), AgentSettings)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{origin}: {error}") from error


def read_settings(path: Path) -> AgentSettings:
    """Settings from a JSON file, as the local cloud writes it for each of its machines."""
    try:
        values = json.loads(path.read_text())
    except FileNotFoundError:
        raise InvalidInput(f"{path}: there is no such configuration file") from None
    except ValueError as error:
        raise InvalidInput(f"{path}: not a JSON file: {error}") from error
    if not isinstance(values, dict):
        raise InvalidInput(f"{path}: must hold one JSON object")
    return settings_from_mapping({"config_file": str(path.absolute()), **values}, origin=str(path))
