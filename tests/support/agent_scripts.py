"""One description of a container's behaviour for every runtime: a script, and the shell command that does the same."""

from __future__ import annotations

from resolute.wire.agent_link import ContainerSpec
from resolute_agent.runtimes.base import TaskContext
from resolute_agent.runtimes.scripted import SCRIPT_VARIABLE, parse_script
from support.agent_master import a_spec


def shell_of(script: str) -> str:
    """A shell command that behaves as the script says, for runtimes that run commands."""
    parts = []
    for step in parse_script(script):
        match step.verb:
            case "run":
                # In small portions, so that a signal is handled between two of them.
                parts.append(f"n={int(step.number * 20)}; while [ $n -gt 0 ]; do sleep 0.05; n=$((n-1)); done")
            case "log":
                parts.append(f"i=0; while [ $i -lt {int(step.number)} ]; do echo line $i; i=$((i+1)); done")
            case "say":
                parts.append(f"echo '{step.text}'")
            case "ignore kill":
                parts.append("trap '' TERM")
            case "exit":
                parts.append(f"exit {int(step.number)}")
            case verb:
                raise AssertionError(f"a command cannot {verb}")
    return "; ".join(parts) or "true"


def a_container(script: str, container_id: str = "c1", **changes: object) -> ContainerSpec:
    """A container that any runtime can run."""
    fields = {"environment": {SCRIPT_VARIABLE: script}, **changes}
    if "command" not in fields:
        fields["command"] = ("sh", "-c", shell_of(script))
    return a_spec(container_id, **fields)


def a_context(lease_s: float = 60.0) -> TaskContext:
    return TaskContext(environment={"DET_AGENT_ID": "agent-1"}, devices=(), lease_s=lease_s)
