"""What tasks of this agent may reach of its machine, from the agent's settings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from resolute.host_paths import HostPathRules
from resolute.wire.agent_link import ContainerSpec
from resolute_agent.settings import AgentSettings

REMEDY = "an operator allows it with host_paths.allowed in the configuration of the agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """`rules` decide about host paths that a task's configuration names. `keep` are paths that tasks see although they are in
    something that is hidden from them."""

    rules: HostPathRules = field(default_factory=lambda: HostPathRules(remedy=REMEDY))
    keep: tuple[str, ...] = ()


def reach_of(settings: AgentSettings) -> Reach:
    """The agent's own paths and further configured ones, which no task may reach."""
    state = {
        settings.state_dir: "the state of the agent",
        settings.docker_host.removeprefix("unix://"): "the socket of the container engine",
        **dict.fromkeys(settings.hidden_paths, "the state of the cluster"),
    }
    if settings.config_file:
        state[settings.config_file] = "the configuration of the agent"
    if settings.join_token_file:
        state[settings.join_token_file] = "the join token of the agent"
    rules = HostPathRules(state=state, allowed=settings.host_paths_allowed, remedy=REMEDY)
    return Reach(rules=rules, keep=settings.keep_paths)


def rules_for(rules: HostPathRules, spec: ContainerSpec) -> HostPathRules:
    """The rules for one task: what the master's operator gives to tasks is no choice of the experiment."""
    return replace(rules, configured=(*rules.configured, *spec.options.configured_paths))


def refused_path(rules: HostPathRules, spec: ContainerSpec) -> str:
    """Why the task may not have a path that its configuration names; empty when it may have all. Looks at the file system."""
    ours = rules_for(rules, spec)
    named = [
        *(("checkpoint_storage", host) for host, _ in spec.shared_directories),
        *(("bind_mounts", mount.host_path) for mount in spec.options.mounts),
    ]
    return next((f"{key}: {why}" for key, path in named if (why := ours.why_not(path))), "")
