"""One machine of the local cloud: a detached init process, `python -m resolute_agent.machine [--detach] <directory>`.

It keeps an agent running (settings: `agent.json` in the directory), adopts what the agent's tasks leave behind, and
ends everything on request (SIGTERM, or a file `stop`), when the agent reports that the machine should end, or with
`--no-restart` when the agent ends. Its own death, also by SIGKILL, is the machine's: the kernel then kills the agent and
tells each supervisor, which ends its task.

    machine.json   {"pid", "start_time", "instance_id"}: with the start time, the pid names this very process
    ended.json     {"reason"}: the machine ended in order
    agent.log      what the agent said
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from resolute import printable, private_files
from resolute.errors import InvalidInput
from resolute_agent import kernel, processes, supervisor
from resolute_agent.exit_codes import EXIT_MACHINE_ENDS, EXIT_MISCONFIGURED
from resolute_agent.runtimes import docker_watch
from resolute_agent.settings import AgentSettings, read_settings

AGENT, MACHINE, STOP, ENDED = "agent.json", "machine.json", "stop", "ended.json"
INSTANCE_VARIABLE = "RESOLUTE_INSTANCE"
DOCKER = "docker"
"""The Docker runtime's directory in the agent's state."""
AGENT_PROGRAM = ("-m", "resolute_agent")
"""What the interpreter is given to run an agent."""

LOOK_S = 0.2
"""How often the `stop` file is looked for."""

FIRST_RESTART_S, SLOWEST_RESTART_S = 0.2, 5.0
STEADY_S = 10.0
"""An agent that ran for this long has not failed at its start: the next restart is quick again."""


class Machine:
    """The machine's life: `run` returns why it ended, when nothing of it is left."""

    def __init__(
        self, directory: Path, settings: AgentSettings, agent: Sequence[str] = AGENT_PROGRAM, *, restart: bool = True
    ) -> None:
        self._directory = directory
        self._restart = restart
        self._program = tuple(agent)
        self._settings = settings
        self._reason = ""
        self._agent = 0
        self._environment = {
            **os.environ,
            INSTANCE_VARIABLE: settings.instance_id or settings.agent_id,
            supervisor.MACHINE_PID_VARIABLE: str(os.getpid()),
        }

    def run(self) -> str:
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        me = {
            "pid": os.getpid(),
            "start_time": supervisor.start_time(os.getpid()),
            "instance_id": self._settings.instance_id,
        }
        supervisor.write_whole(str(self._directory / MACHINE), json.dumps(me).encode())
        reason = self._keep_agent()
        self._end_everything()
        supervisor.write_whole(str(self._directory / ENDED), json.dumps({"reason": reason}).encode())
        return reason

    def _on_signal(self, number: int, _: object) -> None:
        self._reason = f"ordered by {signal.Signals(number).name}"

    def _keep_agent(self) -> str:
        """Start the agent again and again; returns why the machine is to end."""
        pause_s = FIRST_RESTART_S
        while True:
            started = time.monotonic()
            self._agent = self._start_agent()
            code: int | None = None
            while code is None:
                if reason := self._stop_requested():
                    return reason
                time.sleep(LOOK_S)
                code = self._reap()
            if code == EXIT_MACHINE_ENDS:
                return "the agent requested the end of the machine"
            if code == EXIT_MISCONFIGURED:
                return "the agent cannot run with its settings; see agent.log"
            if not self._restart:
                return f"the agent ended with code {code}, and is not to be started again"
            if time.monotonic() - started > STEADY_S:
                pause_s = FIRST_RESTART_S
            until = time.monotonic() + pause_s
            pause_s = min(SLOWEST_RESTART_S, pause_s * 2)
            while time.monotonic() < until:
                if reason := self._stop_requested():
                    return reason
                time.sleep(min(LOOK_S, pause_s))

    def _start_agent(self) -> int:
        """Fork and execute; a plain fork, because every child here is collected by one `waitpid`."""
        me = os.getpid()
        log = os.open(self._directory / "agent.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        pid = os.fork()
        if pid:
            os.close(log)
            return pid
        try:
            kernel.die_with_parent(signal.SIGKILL, me)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            with open(os.devnull) as nothing:
                os.dup2(nothing.fileno(), 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            command = [sys.executable, *self._program, "--config", str(self._directory / AGENT)]
            os.execve(sys.executable, command, self._environment)
        finally:
            os._exit(127)

    def _stop_requested(self) -> str:
        if not self._reason and (self._directory / STOP).exists():
            self._reason = "reported by the stop file"
        return self._reason

    def _reap(self) -> int | None:
        """Collect what ended below this init; the agent's exit code when it is among them."""
        code = None
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return code
            if pid == 0:
                return code
            if pid == self._agent:
                code = os.waitstatus_to_exitcode(status)

    def _end_everything(self) -> None:
        """SIGKILL to every process of the machine, again until none is left."""
        instance = self._environment[INSTANCE_VARIABLE]
        until = time.monotonic() + 10.0
        while living := supervisor.descendants(os.getpid()):
            for pid in living:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            if time.monotonic() > until:
                break
            time.sleep(0.005)
            self._reap()
        processes.end_marked(INSTANCE_VARIABLE, instance)
        self._reap()
        try:
            end_containers(self._settings)
        except OSError as error:
            print(f"machine: {printable.lines(str(error))}", file=sys.stderr)


def end_containers(settings: AgentSettings) -> None:
    """Remove the containers that the machine's agent had an engine run. Raises `OSError` when that cannot be done."""
    if settings.runtime == "docker":
        docker_watch.end_all(Path(settings.state_dir).resolve() / DOCKER, settings.docker_host.removeprefix("unix://"))


def serve(directory: Path, agent: Sequence[str] = AGENT_PROGRAM, *, restart: bool = True) -> int:
    """Be the machine of `directory` until it ends; the process's exit code."""
    private_files.keep_private()
    for sentence in private_files.mend(directories=[directory], files=private_files.state_files(directory)):
        print(f"machine: {sentence}", file=sys.stderr)
    settings = read_settings(directory / AGENT)
    lock = (directory / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InvalidInput(f"{directory} is the directory of a machine that is running") from None
    with lock:
        print(f"machine ended: {Machine(directory, settings, agent, restart=restart).run()}", file=sys.stderr)
    return 0


def detach(directory: Path, *, restart: bool = True) -> int:
    """Be the machine in a session of its own, detached from its parent. The caller's process returns at once."""
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return 0
    os.setsid()
    if os.fork():
        os._exit(0)
    log = os.open(directory / "machine.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    return serve(directory, restart=restart)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m resolute_agent.machine", description="Run one machine of the local cloud."
    )
    parser.add_argument("--detach", action="store_true", help="return at once and leave the machine running")
    parser.add_argument("--no-restart", action="store_true", help="end the machine when its agent has ended")
    parser.add_argument(
        "--power-off", action="store_true", help="remove the containers of a machine whose processes have ended"
    )
    parser.add_argument("directory", type=Path, help="the machine's own directory, with agent.json in it")
    given = parser.parse_args(arguments)
    directory: Path = given.directory.resolve()
    try:
        settings = read_settings(directory / AGENT)  # so that a detaching caller gets the error
        if given.power_off:
            end_containers(settings)
            return 0
        restart = not given.no_restart
        return detach(directory, restart=restart) if given.detach else serve(directory, restart=restart)
    except InvalidInput as error:
        print(f"machine: {printable.lines(str(error))}", file=sys.stderr)
        return EXIT_MISCONFIGURED
    except OSError as error:
        print(f"machine: {printable.lines(str(error))}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
