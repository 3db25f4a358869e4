"""One machine of the local cloud: its agent is kept alive, and its end leaves nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from resolute.wire.agent_link import Shutdown
from resolute.wire.states import ContainerState
from resolute_agent import processes, supervisor
from resolute_agent.machine import ENDED, MACHINE, STOP
from support.agent_master import LinkMaster, a_spec
from support.agent_processes import container_home, eventually, living_task, write_settings


class MachineProcess:
    def __init__(self, directory: Path, master_url: str) -> None:
        self.directory = directory
        self.settings = write_settings(directory, master_url=master_url)
        self.instance_id: str = json.loads(self.settings.read_text())["instance_id"]
        self.identity: dict[str, int] = {}

    async def start(self) -> None:
        command = [sys.executable, "-m", "resolute_agent.machine", "--detach", str(self.directory)]
        await asyncio.to_thread(subprocess.run, command, check=True)
        await eventually((self.directory / MACHINE).exists)
        self.identity = json.loads((self.directory / MACHINE).read_text())

    @property
    def alive(self) -> bool:
        return processes.is_alive(self.identity["pid"], self.identity["start_time"])

    def signal(self, number: signal.Signals) -> None:
        assert processes.send_signal(self.identity["pid"], self.identity["start_time"], number)

    def agent_pid(self) -> int:
        """The child of the machine that is its agent (supervisors are children too, once they are adopted)."""
        for pid in processes.marked("RESOLUTE_INSTANCE", self.instance_id):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if supervisor.parent_of(pid) == self.identity["pid"] and b"resolute_agent" in command:
                return pid
        raise AssertionError("the machine has no agent")

    def living(self) -> list[int]:
        return processes.marked("RESOLUTE_INSTANCE", self.instance_id)

    def end_all(self) -> None:
        if self.identity:
            processes.send_signal(self.identity["pid"], self.identity["start_time"], signal.SIGKILL)
        assert not processes.end_marked("RESOLUTE_INSTANCE", self.instance_id)


@pytest.fixture
async def master() -> AsyncIterator[LinkMaster]:
    master = LinkMaster()
    await master.start()
    yield master
    await master.stop()


@pytest.fixture
def machine(master: LinkMaster, tmp_path: Path) -> Iterator[MachineProcess]:
    machine = MachineProcess(tmp_path / "machine-1", master.url)
    yield machine
    machine.end_all()


STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
print("ready")
time.sleep(600)
"""
"""A task that ignores being asked, with a process that has left its session and its parent."""


async def running(master: LinkMaster, machine: MachineProcess) -> Path:
    await machine.start()
    await master.until_connected()
    await master.run(a_spec(command=("python3", "-c", STUBBORN)))
    await master.until(lambda: master.output("c1") == ["ready"])
    return container_home(machine.settings, "c1")


async def test_the_agent_of_a_machine_comes_back_and_adopts(master: LinkMaster, machine: MachineProcess) -> None:
    home = await running(master, machine)
    os.kill(machine.agent_pid(), signal.SIGKILL)
    await master.until_connected(times=2)
    assert living_task(home)
    await master.kill("c1")
    report = await master.until_state("c1", ContainerState.TERMINATED)
    assert report.exit is not None and report.exit.code == 137
    assert machine.alive


async def test_a_machine_killed_without_notice_leaves_no_process(master: LinkMaster, machine: MachineProcess) -> None:
    home = await running(master, machine)
    assert len(machine.living()) >= 4
    machine.signal(signal.SIGKILL)
    await eventually(lambda: not machine.living())
    assert not (home / supervisor.EXIT).exists(), "a machine that is gone leaves no word"


async def test_a_machine_told_to_stop_leaves_no_process(master: LinkMaster, machine: MachineProcess) -> None:
    await running(master, machine)
    (machine.directory / STOP).touch()
    await eventually(lambda: not machine.alive)
    assert machine.living() == []
    assert "stop file" in json.loads((machine.directory / ENDED).read_text())["reason"]


async def test_a_machine_ends_when_its_agent_says_so(master: LinkMaster, machine: MachineProcess) -> None:
    await running(master, machine)
    await master.send(Shutdown(reason="the pool has enough"))
    await eventually(lambda: not machine.alive)
    assert machine.living() == []
    assert json.loads((machine.directory / ENDED).read_text())["reason"].startswith("the agent requested")


async def test_a_directory_has_one_machine(master: LinkMaster, machine: MachineProcess) -> None:
    await machine.start()
    command = [sys.executable, "-m", "resolute_agent.machine", str(machine.directory)]
    second = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    assert second.returncode == 78
    assert "is running" in second.stderr
    assert machine.alive


def test_settings_that_cannot_be_used_are_told_before_the_machine_detaches(tmp_path: Path) -> None:
    (tmp_path / "agent.json").write_text('{"master_url": "http://m", "agent_id": "a", "state_dirr": "/x"}')
    said = subprocess.run(
        [sys.executable, "-m", "resolute_agent.machine", "--detach", str(tmp_path)], capture_output=True, text=True
    )
    assert said.returncode == 78
    assert "'state_dirr'" in said.stderr and "'state_dir'" in said.stderr
