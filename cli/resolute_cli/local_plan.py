"""What `det deploy local` starts: the flags of a cluster as one value, and the configuration of the master that they come to."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from resolute.config.default_images import DEFAULT_CPU_IMAGE
from resolute.errors import InvalidInput

DEFAULT_DOCKER_HOST = "unix:///var/run/docker.sock"
DEFAULT_PORT = 8080
SSL_MODES = ("disable", "require", "verify-ca", "verify-full")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """What to start. Times are in seconds; `password` None generates one."""

    name: str
    directory: Path
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    machines: bool = True
    """Whether the master starts machines on this computer; without them agents join it."""
    slots_per_instance: int = 1
    max_instances: int = 4
    slot_type: str = "cpu"
    gpus: tuple[str, ...] = ()
    """UUIDs of the GPUs that the machines share out, where `slot_type` is `cuda` or `rocm`."""
    boot_delay_s: float = 0.0
    price_per_hour: float = 0.0
    idle_s: float = 300.0
    storage: Path | None = None
    password: str | None = None
    own_config: Path | None = None
    database: Mapping[str, Any] = field(default_factory=dict)
    """The `db` of the configuration; empty takes SQLite in the directory of the cluster."""
    work_dir: Path | None = None
    """Working directory of commands and notebooks, mounted under its own path."""
    docker: bool = False
    """Tasks run in containers of the engine at `docker_host`, in `image` where their experiment names none."""
    tls: bool = False
    """The master serves TLS with a certificate of its own authority."""
    docker_host: str = DEFAULT_DOCKER_HOST
    image: str = DEFAULT_CPU_IMAGE
    program: tuple[str, ...] = (sys.executable, "-m", "resolute_master")

    @property
    def command(self) -> str:
        return "cluster-up" if self.machines else "master-up"


def database_of(url: str, password: str | None) -> dict[str, Any]:
    """The `db` of a master's configuration from `postgresql://user:password@host:port/name?sslmode=require`.

    `password` goes over that of the URL. Raises `InvalidInput`, without the password in its text.
    """
    parts = urlsplit(url)
    hint = "write postgresql://user@host:port/name, and the password with --db-password"
    try:
        port = parts.port or 5432
    except ValueError:
        raise InvalidInput(f"--db-url: its port is no number; {hint}") from None
    if parts.scheme not in ("postgresql", "postgres"):
        raise InvalidInput(f"--db-url: {parts.scheme or 'nothing'!r} is no kind of database; {hint}")
    name = unquote(parts.path.removeprefix("/"))
    for what, value in (("host", parts.hostname), ("user", parts.username), ("name of a database", name)):
        if not value:
            raise InvalidInput(f"--db-url: it has no {what}; {hint}")
    mode = parse_qs(parts.query).get("sslmode", ["disable"])[-1]
    if mode not in SSL_MODES:
        raise InvalidInput(f"--db-url: sslmode {mode!r} is none of {', '.join(SSL_MODES)}")
    return {
        "type": "postgres",
        "host": parts.hostname,
        "port": port,
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or "") if password is None else password,
        "name": name,
        "ssl_mode": mode,
    }


def master_configuration(plan: ClusterPlan, password: str | None) -> dict[str, Any]:
    """The contents of `master.yaml`. A password is meant for a new database only."""
    pool: dict[str, Any] = {"pool_name": "default"}
    if plan.machines:
        pool["provider"] = _provider(plan)
    config: dict[str, Any] = {
        "host": plan.host,
        "port": plan.port,
        "cluster_name": plan.name,
        "cluster_state_dir": str(plan.directory),
        "db": dict(plan.database) or {"type": "sqlite", "path": str(plan.directory / "resolute.db")},
        "checkpoint_storage": {"type": "shared_fs", "host_path": str(plan.storage or plan.directory / "checkpoints")},
        "resource_pools": [pool],
    }
    defaults: dict[str, Any] = {}
    if plan.docker:  # the master listens on this machine only, so tasks must be on its network
        defaults |= {"network_mode": "host", "image": plan.image}
    if plan.work_dir is not None:
        place = str(plan.work_dir)
        defaults |= {"work_dir": place, "bind_mounts": [{"host_path": place, "container_path": place}]}
    if defaults:
        config["task_container_defaults"] = defaults
    security: dict[str, Any] = {} if password is None else {"initial_user_password": password}
    if plan.tls:
        security["tls"] = {"enabled": True}
    if security:
        config["security"] = security
    return config


def _provider(plan: ClusterPlan) -> dict[str, Any]:
    provider: dict[str, Any] = {
        "type": "local",
        "slots_per_instance": plan.slots_per_instance,
        "max_instances": plan.max_instances,
        "boot_delay": plan.boot_delay_s,
        "price_per_hour": plan.price_per_hour,
        "max_idle_agent_period": plan.idle_s,
    }
    if plan.gpus:
        provider |= {"slot_type": plan.slot_type, "visible_gpus": list(plan.gpus)}
    if plan.docker:
        provider |= {"container_runtime": "docker", "docker_host": plan.docker_host}
    return provider


# ---------------------------------------------------------------------------------------- what differs from before


DATABASE = "--db-url"
SQLITE = "SQLite"


def settings_of(plan: ClusterPlan) -> dict[str, Any]:
    """What a cluster was started with, by flag and without secrets; kept beside it for the next start."""
    database = plan.database
    return {
        "command": plan.command,
        "--host": plan.host,
        "--master-port": plan.port,
        "--master-config-path": str(plan.own_config.absolute()) if plan.own_config else None,
        "--storage-host-path": str(plan.storage) if plan.storage else None,
        "--auto-work-dir": str(plan.work_dir) if plan.work_dir else None,
        "--tls": plan.tls,
        "--docker": plan.docker,
        DATABASE: "postgresql://{user}@{host}:{port}/{name}".format(**database) if database else SQLITE,
        **(_settings_of_machines(plan) if plan.machines else {}),
    }


def _settings_of_machines(plan: ClusterPlan) -> dict[str, Any]:
    return {
        "--image": plan.image if plan.docker else None,
        "--gpu": bool(plan.gpus),
        "--slots-per-instance": plan.slots_per_instance,
        "--max-instances": plan.max_instances,
        "--boot-delay": plan.boot_delay_s,
        "--price-per-hour": plan.price_per_hour,
        "--max-idle-agent-period": plan.idle_s,
    }


def differences(before: Mapping[str, Any], now: Mapping[str, Any], flags: set[str]) -> list[str]:
    """Half a sentence for each of the flags in which a cluster differs from what was requested.

    The command counts always: a cluster with machines of its own is another thing than a master without.
    """
    found = []
    for name in sorted(flags | {"command"}):
        if name not in before or name not in now or before[name] == now[name]:
            continue
        if name == "command":
            found.append(f"it was started by {before[name]}, not by {now[name]}")
        elif isinstance(before[name], bool):
            found.append(f"it was started {'with' if before[name] else 'without'} {name}")
        else:
            had = "not given" if before[name] is None else before[name]
            found.append(f"{name} is {had}, not {now[name]}")
    return found
