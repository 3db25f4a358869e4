"""Agents that `det deploy local agent-up` starts on this machine, for a master here or elsewhere.

Each has a directory, `agents/<name>` in that of its cluster:

    agent.json      its settings, complete
    machine.json    the process that keeps it running, and whose end is that of all its tasks
    agent.log its output; `state/` its tasks

The agent is reached as a program only (`python -m resolute_agent.machine`).
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resolute.errors import FailedPrecondition, InvalidInput, NotFound
from resolute_cli import processes
from resolute_cli.private_text import write_private
from resolute_cli.processes import Identity

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")
AGENTS = "agents"
JOIN_TOKEN = "join-token"
"""In the directory of a cluster, written by its master."""

JOIN_LIMIT_S = 60.0
END_GRACE_S = 60.0
"""Tasks end with their machine; an engine may take its time to remove containers."""

Pause = Callable[[float], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPlan:
    """What to start. `settings` are keys of agent.yaml by flag, over those of `own_config`."""

    name: str
    cluster: Path
    """Directory of the cluster on this machine."""
    settings: Mapping[str, Any]
    own_config: Path | None = None
    restart: bool = True
    """Whether an agent that has ended is started again."""

    @property
    def directory(self) -> Path:
        return self.cluster / AGENTS / self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningAgent:
    """An agent and the process that keeps it running."""

    name: str
    master_url: str
    machine: Identity
    directory: Path
    joined: bool = True
    """False where its master could not be reached yet; it continues trying."""


def agent_up(plan: AgentPlan, *, pause: Pause = time.sleep, limit_s: float = JOIN_LIMIT_S) -> RunningAgent:
    """Starts the agent and waits until its master has answered; at most `limit_s`.

    Raises `InvalidInput` for settings that cannot be used and `FailedPrecondition` where one of this name runs or the agent ends.
    """
    if not NAME.fullmatch(plan.name):
        raise InvalidInput(f"--agent-name {plan.name!r}: use letters, digits, '.', '_' and '-'")
    settings = _complete_settings(plan)
    try:
        plan.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise InvalidInput(
            f"cannot use the directory {str(plan.directory)!r}: {error.strerror}; name another with --dir"
        ) from None
    with _locked(plan.directory):
        running = read_agent(plan.directory)
        if running is not None:
            raise FailedPrecondition(
                f"agent '{plan.name}' runs already, for the master at {running.master_url}; end it with "
                f"`det deploy local agent-down --agent-name {plan.name}`, or name this one with --agent-name"
            )
        for name in ("machine.json", "ended.json", "stop", "state/heard"):
            (plan.directory / name).unlink(missing_ok=True)
        write_private(plan.directory / "agent.json", json.dumps(settings, indent=2, sort_keys=True) + "\n")
        _start(plan)
        return _wait_until_joined(plan, str(settings["master_url"]), pause, limit_s)


def agent_down(directory: Path) -> bool:
    """Ends an agent with all its tasks. False where it did not run. Raises `FailedPrecondition` where it will not end."""
    with _locked(directory):
        running = read_agent(directory)
        if running is None:
            return False
        (directory / "stop").touch()
        # Killed only after the grace: it ends its tasks first, and those of an engine only it can.
        if not processes.end(running.machine, grace_s=END_GRACE_S):
            raise FailedPrecondition(
                f"agent '{directory.name}' did not end within {END_GRACE_S:.0f} s and was killed; see {directory}/machine.log"
            )
        return True


def end_agents(cluster: Path) -> list[str]:
    """Ends every agent of a cluster on this machine; the names of those that ran."""
    return [name for name in agent_names(cluster) if agent_down(cluster / AGENTS / name)]


def agent_names(cluster: Path) -> list[str]:
    """Names of all agents that were ever started on this machine for this cluster, sorted."""
    return sorted(path.parent.name for path in (cluster / AGENTS).glob("*/agent.json"))


def read_agent(directory: Path) -> RunningAgent | None:
    """The agent of a directory; None when none runs there."""
    try:
        record = json.loads((directory / "machine.json").read_text(encoding="utf-8"))
        settings = json.loads((directory / "agent.json").read_text(encoding="utf-8"))
        machine = processes.identify(int(record["pid"]))
        same = machine is not None and machine.start_time == int(record["start_time"])
        url = str(settings["master_url"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if machine is None or not same:
        return None
    return RunningAgent(name=directory.name, master_url=url, machine=machine, directory=directory)


def directory_of(cluster: Path, name: str) -> Path:
    """Raises `NotFound` with the names that there are."""
    names = agent_names(cluster)
    if name not in names:
        advice = f"this machine has {', '.join(names)}" if names else "this cluster has none on this machine"
        raise NotFound("agent", name, advice)
    return cluster / AGENTS / name


def _complete_settings(plan: AgentPlan) -> dict[str, Any]:
    """The settings in the file, overridden by the flags. The environment of this command has no effect on them. Raises
    `InvalidInput`."""
    try:
        import msgspec

        from resolute.config.agent import load_agent_config
        from resolute_agent.command_line import settings_from_config
    except ImportError as error:
        raise InvalidInput(
            f"an agent is not installed here ({error.name} is missing); run pip install 'resolute-ml[cli,agent]'"
        ) from None
    if plan.own_config is not None and not plan.own_config.is_file():
        raise InvalidInput(f"--agent-config-path: there is no file {str(plan.own_config)!r}")
    shown = {name: value for name, value in os.environ.items() if name.endswith("_VISIBLE_DEVICES")}
    flags = {"agent_id": plan.name, "state_dir": str(plan.directory / "state"), **plan.settings}
    config = load_agent_config(plan.own_config, shown, flags)
    settings: dict[str, Any] = msgspec.to_builtins(settings_from_config(config))
    settings["hidden_paths"] = [str(plan.cluster)]
    return settings


def _start(plan: AgentPlan) -> None:
    command = [sys.executable, "-m", "resolute_agent.machine", "--detach"]
    command += [] if plan.restart else ["--no-restart"]
    # Variables of a user's client (DET_MASTER and the like) are no settings of an agent.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DET_")}
    done = subprocess.run(
        [*command, str(plan.directory)],
        env=environ,
        cwd=plan.directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise FailedPrecondition(f"the agent did not start: {done.stderr.strip()}")


def _wait_until_joined(plan: AgentPlan, master_url: str, pause: Pause, limit_s: float) -> RunningAgent:
    waited, look_s = 0.0, 0.1
    while True:
        if (plan.directory / "ended.json").exists():
            raise FailedPrecondition(f"the agent ended during its start; its output:\n{_last_words(plan.directory)}")
        running = read_agent(plan.directory)
        joined = (plan.directory / "state" / "heard").exists()
        if running is not None and (joined or waited >= limit_s):
            return RunningAgent(
                name=running.name,
                master_url=master_url,
                machine=running.machine,
                directory=plan.directory,
                joined=joined,
            )
        if waited >= limit_s:
            raise FailedPrecondition(f"the agent did not start; see {plan.directory / 'machine.log'}")
        pause(look_s)
        waited += look_s


def _last_words(directory: Path, lines: int = 8) -> str:
    try:
        text = (directory / "agent.log").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "(it left no log)"
    return "\n".join(text.splitlines()[-lines:])


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One command at a time may change an agent."""
    with os.fdopen(os.open(directory / "deploy.lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
