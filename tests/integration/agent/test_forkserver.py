"""Starting through the forkserver: its death, the launcher that runs without a new interpreter, starts nobody answers for."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from resolute.wire.agent_link import ContainerSpec, Exit
from resolute.wire.states import FailureKind
from resolute_agent import forkserver, processes, supervisor
from resolute_agent.runtimes.base import LaunchFailed
from resolute_agent.runtimes.process import ProcessRuntime
from resolute_agent.runtimes.starting import Forkserver
from support.agent_processes import eventually, living_task
from support.agent_scripts import a_container, a_context

LAUNCHER = ("python3", "-m", forkserver.LAUNCHER)


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[ProcessRuntime]:
    runtime = await ProcessRuntime.open(tmp_path / "containers", private_root=False)
    yield runtime
    for found in await runtime.adopt():
        await runtime.kill(found.container_id, 0.0)
        await runtime.wait(found.container_id)
    await runtime.close()


@pytest.fixture
def instance(monkeypatch: pytest.MonkeyPatch) -> str:
    """The mark of a machine, which every process of it inherits."""
    mark = f"forkserver-{os.getpid()}"
    monkeypatch.setenv("RESOLUTE_INSTANCE", mark)
    return mark


async def end_of(runtime: ProcessRuntime, container_id: str) -> Exit:
    async with asyncio.timeout(30):
        return await runtime.wait(container_id)


def a_launcher(container_id: str, port: int) -> ContainerSpec:
    """A trial's launcher that asks the master at `port` for its code."""
    variables = {
        "DET_ALLOCATION_ID": "1.a.1",
        "DET_TASK_ID": "1.a",
        "DET_SESSION_TOKEN": "token",
        "DET_TASK_TYPE": "COMMAND",
    }
    master = {"DET_MASTER": f"http://127.0.0.1:{port}"}
    return a_container("exit 0", container_id, command=LAUNCHER, environment={**variables, **master})


async def warmed_up(runtime: ProcessRuntime) -> None:
    """The forkserver imports the launcher after its first start."""
    await runtime.start(a_container("exit 0", "first"), a_context())
    await end_of(runtime, "first")


def command_of(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def forkservers() -> list[int]:
    """The living forkservers of this process."""
    return [
        pid
        for pid in supervisor.descendants(os.getpid())
        if b"resolute_agent.forkserver" in command_of(pid) and supervisor.parent_of(pid) == os.getpid()
    ]


async def test_a_forkserver_that_was_killed_is_replaced_and_its_tasks_go_on(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    await runtime.start(a_container("run 600s", "before"), a_context())
    (pid,) = forkservers()
    os.kill(pid, signal.SIGKILL)
    await runtime.start(a_container("exit 7", "after"), a_context())
    assert (await end_of(runtime, "after")).code == 7
    assert living_task(tmp_path / "containers" / "before")
    assert forkservers() != [pid]


async def test_the_forkserver_ends_with_its_runtime_and_tasks_go_on(tmp_path: Path) -> None:
    runtime = await ProcessRuntime.open(tmp_path / "containers", private_root=False)
    await runtime.start(a_container("run 600s"), a_context())
    assert len(forkservers()) == 1
    await runtime.close()
    assert forkservers() == []
    assert living_task(tmp_path / "containers" / "c1")
    await runtime.kill("c1", 0.0)
    await runtime.wait("c1")


async def test_the_launcher_runs_in_a_fork_with_its_own_environment_and_exit_code(runtime: ProcessRuntime) -> None:
    """Without a master to name, it says so and fails: by its own code, read from its own variables."""
    await warmed_up(runtime)
    await runtime.start(a_container("exit 0", "c1", command=LAUNCHER, environment={}), a_context())
    assert (await end_of(runtime, "c1")).code == 1
    assert "this is no task environment" in runtime.read_output("c1", "stderr", 0, 10_000).decode()


async def test_a_forked_launcher_is_found_by_its_mark_and_ends_with_its_supervisor(
    runtime: ProcessRuntime, tmp_path: Path
) -> None:
    mark = f"marked-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as silent:  # a master that never answers
        await warmed_up(runtime)
        await runtime.start(a_launcher(mark, silent.getsockname()[1]), a_context())
        home = tmp_path / "containers" / mark
        task = supervisor.read_json(str(home / supervisor.TASK))
        await eventually(lambda: processes.marked(supervisor.MARK, mark) == [task["pid"]])
        assert b"resolute_agent.forkserver" in command_of(task["pid"]), "no new interpreter"
        await eventually(
            lambda: len(os.listdir(f"/proc/{task['pid']}/fd")) == 4
        )  # three streams, its socket to the master
        os.kill(supervisor.read_json(str(home / supervisor.SUPERVISOR))["pid"], signal.SIGKILL)
        end = await end_of(runtime, mark)
    assert (end.failure, end.message) == (
        FailureKind.TASK_ERROR,
        "its supervisor was killed; the exit code of the task is unknown",
    )
    assert processes.marked(supervisor.MARK, mark) == []


async def test_a_launcher_of_another_interpreter_is_executed(runtime: ProcessRuntime, tmp_path: Path) -> None:
    """A `python3` that the user put first on the PATH is not ours to replace: here it does not even come to our module."""
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\necho other $*\n")
    other.chmod(0o755)
    command = (str(other), *LAUNCHER[1:])
    await runtime.start(a_container("exit 0", "c1", command=command), a_context())
    assert (await end_of(runtime, "c1")).code == 0
    assert runtime.read_output("c1", "stdout", 0, 100) == b"other -m resolute.launch\n"


class SilentStarter(Forkserver):
    """Its first answer is lost: before anything was started, or after."""

    def __init__(self, *, starts: bool) -> None:
        super().__init__()
        self._starts = starts
        self.asked = 0

    async def ask(self, request: Mapping[str, Any]) -> str:
        self.asked += 1
        if self.asked > 1 or self._starts:
            said = await super().ask(request)
        return said if self.asked > 1 else ""


async def test_a_start_whose_answer_is_lost_is_ended_and_told(tmp_path: Path) -> None:
    opened = await ProcessRuntime.open(tmp_path / "containers", private_root=False)
    runtime = ProcessRuntime(tmp_path / "containers", opened.private_roots, starter=SilentStarter(starts=True))
    mark = f"unanswered-{os.getpid()}"
    with pytest.raises(LaunchFailed, match="the supervisor died before the task ran"):
        await runtime.start(a_container("run 600s", mark), a_context())
    assert processes.marked(supervisor.MARK, mark) == []
    assert await runtime.adopt() == ()
    assert not (tmp_path / "containers" / mark).exists()


async def test_a_start_that_nobody_has_begun_is_asked_for_once_more(tmp_path: Path) -> None:
    opened = await ProcessRuntime.open(tmp_path / "containers", private_root=False)
    starter = SilentStarter(starts=False)
    runtime = ProcessRuntime(tmp_path / "containers", opened.private_roots, starter=starter)
    await runtime.start(a_container("exit 7"), a_context())
    assert ((await end_of(runtime, "c1")).code, starter.asked) == (7, 2)


async def reserve_of(server: int, instance: str, home: Path) -> int:
    """The supervisor in reserve: what else has the machine's mark once the supervisor of the container in `home` is gone."""
    before = int(json.loads((home / supervisor.SUPERVISOR).read_text())["pid"])
    found: set[int] = set()

    def only_the_reserve() -> bool:
        found.clear()
        found.update(set(processes.marked("RESOLUTE_INSTANCE", instance)) - {server})
        return len(found) == 1 and before not in found

    await eventually(only_the_reserve)
    return found.pop()


async def test_a_supervisor_in_reserve_that_was_killed_is_done_without(
    instance: str, runtime: ProcessRuntime, tmp_path: Path
) -> None:
    await warmed_up(runtime)
    (server,) = forkservers()
    reserve = await reserve_of(server, instance, tmp_path / "containers" / "first")
    os.kill(reserve, signal.SIGKILL)
    await eventually(lambda: supervisor.start_time(reserve) is None)
    await runtime.start(a_container("exit 7", "after"), a_context())
    assert (await end_of(runtime, "after")).code == 7


async def test_the_supervisor_in_reserve_ends_with_the_forkserver(
    instance: str, runtime: ProcessRuntime, tmp_path: Path
) -> None:
    await warmed_up(runtime)
    (server,) = forkservers()
    reserve = await reserve_of(server, instance, tmp_path / "containers" / "first")
    os.kill(server, signal.SIGKILL)
    await eventually(lambda: supervisor.start_time(reserve) is None)
