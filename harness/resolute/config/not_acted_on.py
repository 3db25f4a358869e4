"""Keys that are understood and not acted on yet: the one table, which shrinks.

A value other than the default of such a key is refused by name, so that no user waits for something that will not
happen. The default itself is always accepted: it is what the cluster returns. Keys that a process on the machine
cannot honour, or that only keep old configurations readable, are accepted with a warning in the task's log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from resolute.config.errors import Location, Problem, quoted
from resolute.config.searcher import SEARCHER_NAMES
from resolute.config.training import Optimizations

if TYPE_CHECKING:
    from resolute.config.experiment import ExperimentConfig

ACTED_ON_SEARCHERS = ("single", "random", "grid", "async_halving", "adaptive_asha", "pbt", "optuna")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotActedOn:
    """One key: `accepted` are the values without an effect, `reason` is the remedy for others."""

    path: str
    accepted: tuple[Any, ...]
    reason: str


def _searcher_row() -> Iterable[NotActedOn]:
    retired = ", ".join(name for name in SEARCHER_NAMES if name not in ACTED_ON_SEARCHERS)
    reason = f"use one of {', '.join(ACTED_ON_SEARCHERS)} ({retired} were retired and can only be read)"
    yield NotActedOn(path="searcher.name", accepted=ACTED_ON_SEARCHERS, reason=reason)


def _optimization_rows() -> Iterable[NotActedOn]:
    for key, value in Optimizations().model_dump(mode="json").items():
        yield NotActedOn(
            path=f"optimizations.{key}", accepted=(value,), reason="do it in the training code, and remove the key"
        )


EXPERIMENT_KEYS: tuple[NotActedOn, ...] = (
    *_searcher_row(),
    NotActedOn(path="environment.proxy_ports", accepted=([],), reason="the proxy is not available yet; remove the key"),
    NotActedOn(path="integrations", accepted=(None,), reason="webhooks are not available yet; remove the key"),
    NotActedOn(path="tensorboard_storage", accepted=(None,), reason="TensorBoard is not available yet; remove the key"),
    *_optimization_rows(),
)

WARNED_KEYS: tuple[NotActedOn, ...] = (
    NotActedOn(path="environment.pod_spec", accepted=(None,), reason="this cluster does not use Kubernetes"),
    NotActedOn(path="resources.native_parallel", accepted=(False,), reason="it is kept for old configurations only"),
    NotActedOn(path="profiling.enabled", accepted=(False,), reason="profiling is not available yet"),
    NotActedOn(path="slurm", accepted=(None,), reason="this cluster does not use it"),
    NotActedOn(path="pbs", accepted=(None,), reason="this cluster does not use it"),
    NotActedOn(path="security", accepted=(None, {"kerberos": None}), reason="it is kept for old configurations only"),
)

_OFF: tuple[Any, ...] = ({"enabled": False}, {})

MASTER_KEYS: tuple[NotActedOn, ...] = (
    NotActedOn(
        path="resource_manager.require_authentication",
        accepted=(False,),
        reason="certificates of agents are not available yet; remove the key",
    ),
    NotActedOn(
        path="resource_manager.client_ca",
        accepted=("",),
        reason="certificates of agents are not available yet; remove the key",
    ),
    NotActedOn(path="feature_switches", accepted=([],), reason="no feature is switched by name here; remove the key"),
    NotActedOn(path="logging.type", accepted=("default",), reason="logs are kept in the database; remove the key"),
    NotActedOn(path="__internal.external_sessions", accepted=({},), reason="it is not available yet; remove the key"),
    NotActedOn(path="__internal.proxied_servers", accepted=([],), reason="it is not available yet; remove the key"),
    NotActedOn(
        path="__internal.audit_logging_enabled", accepted=(False,), reason="it is not available yet; remove the key"
    ),
    NotActedOn(
        path="reserved_ports",
        accepted=([],),
        reason="tasks get ports from 12350, 12360, 12365 and 29400 upwards; keep other programs off them, and remove the key",
    ),
    NotActedOn(
        path="cache.cache_dir",
        accepted=("/var/cache/determined",),
        reason="this master keeps no cache on the disk; remove the key",
    ),
    NotActedOn(
        path="ui_customization", accepted=({"logo_paths": None},), reason="the logo cannot be changed; remove the key"
    ),
    NotActedOn(
        path="security.authz.rbac_ui_enabled",
        accepted=(None, False),
        reason="there are no roles but administrator and user; remove the key",
    ),
    NotActedOn(
        path="security.authz.workspace_creator_assign_role",
        accepted=({"enabled": True, "role_id": 2}, {"enabled": False, "role_id": 2}),
        reason="the creator of a workspace owns it; remove the key",
    ),
    *(
        NotActedOn(
            path=f"security.token.{name}", accepted=(30,), reason="there are no access tokens yet; remove the key"
        )
        for name in ("default_lifespan_days", "max_lifespan_days")
    ),
    NotActedOn(path="notebook_timeout", accepted=(None,), reason="there are no notebooks yet; remove the key"),
    NotActedOn(path="tensorboard_timeout", accepted=("5m",), reason="there are no TensorBoards yet; remove the key"),
    *(
        NotActedOn(path=f"security.ssh.{name}", accepted=(default,), reason="there are no shells yet; remove the key")
        for name, default in (("rsa_key_size", 1024), ("key_type", "ED25519"))
    ),
    NotActedOn(path="telemetry.enabled", accepted=(False,), reason="there is no telemetry; remove the key"),
    NotActedOn(
        path="retention_policy.schedule",
        accepted=(None,),
        reason="old logs are removed when an administrator asks for it (POST /api/v1/cleanup_logs); remove the key",
    ),
    *(
        NotActedOn(path=name, accepted=_OFF, reason="it belongs to the original's enterprise edition; remove it")
        for name in ("scim", "saml", "oidc", "det_cloud")
    ),
)

AGENT_KEYS: tuple[NotActedOn, ...] = (
    NotActedOn(
        path="container_auto_remove_disabled",
        accepted=(False,),
        reason="the output of tasks is kept until the master has it; remove the key",
    ),
    NotActedOn(
        path="hooks.on_connection_lost",
        accepted=([],),
        reason="set master_timeout, after which a machine ends itself, and remove the key",
    ),
    NotActedOn(
        path="security.tls.client_cert",
        accepted=("",),
        reason="certificates of agents are not available yet; remove the key",
    ),
    NotActedOn(path="api_enabled", accepted=(False,), reason="the agent has no endpoint yet; remove the key"),
)


def look_up(value: Any, path: str) -> list[tuple[Location, Any]]:
    """What a serialised configuration has at a dotted path, `[]` meaning each entry of a list; None for nothing."""
    found: list[tuple[Location, Any]] = [((), value)]
    for part in path.split("."):
        key = part.removesuffix("[]")
        found = [((*at, key), one.get(key) if isinstance(one, Mapping) else None) for at, one in found]
        if part.endswith("[]"):
            found = [((*at, index), inner) for at, one in found for index, inner in enumerate(one or ())]
    return found


def not_acted_on(config: Mapping[str, Any], table: tuple[NotActedOn, ...] = EXPERIMENT_KEYS) -> list[Problem]:
    """What a serialised complete configuration asks for that will not be done."""
    return [
        Problem(path=path, message=f"this value is not acted on yet{quoted(value, path)}; {row.reason}")
        for row in table
        for path, value in look_up(config, row.path)
        if value not in row.accepted
    ]


def runtime_warnings(config: ExperimentConfig) -> tuple[str, ...]:
    """Sentences for the task's log about what a process on the machine cannot honour."""
    return tuple(problem.line("config") for problem in _warned(config.to_json()))


def _warned(written: Mapping[str, Any]) -> list[Problem]:
    return [
        Problem(path=path, message=f"has no effect here; {row.reason}")
        for row in WARNED_KEYS
        for path, value in look_up(written, row.path)
        if value is not None and value not in row.accepted
    ]
