"""A disk without space under a real agent and its tasks: a small tmpfs, filled by a task or by somebody else."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from resolute.wire.states import ContainerState, FailureKind
from support.agent_master import LinkMaster, a_spec
from support.agent_processes import AgentProcess, container_home, eventually, living_task, write_settings

pytestmark = pytest.mark.needs("root")

LINES, LINE_BYTES = 4000, 2000
SIZE_MIB = 4
"""Less than the task writes."""

LEASE_S = 12.0
"""A busy machine renews in time, whatever else it runs."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """The state directory of the machine, on a file system of its own."""
    state = tmp_path / "machine-1" / "state"
    state.mkdir(parents=True, mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m,mode=0700", "tmpfs", str(state)], check=True)
    yield state
    subprocess.run(["umount", "--lazy", str(state)], check=True)


@pytest.fixture
async def master() -> AsyncIterator[LinkMaster]:
    master = LinkMaster(lease_s=LEASE_S)
    await master.start()
    yield master
    await master.stop()


@pytest.fixture
def agent(master: LinkMaster, disk: Path) -> Iterator[AgentProcess]:
    agent = AgentProcess(write_settings(disk.parent, master_url=master.url))
    yield agent
    agent.end_all()


def python(code: str) -> tuple[str, ...]:
    return ("python3", "-c", code)


def fill(disk: Path) -> Path:
    """Take every block that is left."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            for size in (65536, 4096, 1):
                while True:
                    try:
                        file.write(b"x" * size)
                    except OSError as error:
                        assert error.errno == errno.ENOSPC
                        break
        finally:
            os.fsync(file.fileno())
    return ballast


def grow(disk: Path) -> None:
    subprocess.run(["mount", "-o", f"remount,size={8 * SIZE_MIB}m", str(disk)], check=True)


def let_go(agent: AgentProcess) -> None:
    """Lets the task c1 continue after `WAITS`. The file takes no block of the disk."""
    (container_home(agent.settings, "c1") / "run" / "workdir" / "go").symlink_to("/")


async def heartbeats(master: LinkMaster, count: int) -> None:
    before = master.heartbeats
    await master.until(lambda: master.heartbeats >= before + count)


WAITS = "import os, time\nwhile not os.path.lexists('go'): time.sleep(0.05)\n"
WRITES = f"""{WAITS}
for number in range({LINES}):
    print(f"{{number:08d}}".ljust({LINE_BYTES}, "."), flush=True)
"""


async def test_a_task_that_fills_the_disk_waits_and_loses_no_line(
    master: LinkMaster, agent: AgentProcess, disk: Path
) -> None:
    agent.start()
    await master.until_connected()
    master.stores_logs = False
    await master.run(a_spec(command=python(WRITES)))
    # The agent saves a state before it reports it: a task that filled the disk sooner would hold this report back.
    await master.until_state("c1", ContainerState.RUNNING)
    let_go(agent)
    await eventually(lambda: os.statvfs(disk).f_bavail == 0)
    ballast = await asyncio.to_thread(fill, disk)  # what lies between two blocks
    await asyncio.sleep(LEASE_S + 2.0)
    await heartbeats(master, 10)
    assert living_task(container_home(agent.settings, "c1")) and len(master.hellos) == 1, agent.log
    await master.store_late()
    ballast.unlink()
    await asyncio.to_thread(grow, disk)
    report = await master.until_state("c1", ContainerState.TERMINATED)
    assert report.exit is not None and report.exit.code == 0, report
    lines = [line.rstrip(".") for line in master.output("c1")]
    assert lines == [f"{number:08d}" for number in range(LINES)]
    assert {hello.incarnation for hello in master.hellos} == {master.hellos[0].incarnation}, "the agent ended"


async def test_a_disk_that_others_filled_holds_reports_back_and_ends_nothing(
    master: LinkMaster, agent: AgentProcess, disk: Path
) -> None:
    agent.start()
    await master.until_connected()
    await master.run(a_spec(command=python(f"{WAITS}print('went')")))
    await master.run(a_spec("c2", command=python("import time; print('early'); time.sleep(600)")))
    await master.until_state("c1", ContainerState.RUNNING)
    await master.until_state("c2", ContainerState.RUNNING)
    await master.until(lambda: master.output("c2") == ["early"])
    ballast = await asyncio.to_thread(fill, disk)
    saved = json.loads((disk / "agent-state.json").read_bytes()) if (disk / "agent-state.json").exists() else None
    let_go(agent)
    await eventually(lambda: not living_task(container_home(agent.settings, "c1")))
    await master.run(a_spec("c3", command=python("print('third')")))
    await master.kill("c2", 1.0)
    await eventually(lambda: not living_task(container_home(agent.settings, "c2")))  # an end is not held back
    await asyncio.sleep(8.0)
    await heartbeats(master, 10)
    assert master.latest["c1"].state is ContainerState.RUNNING, "an end was reported that is not saved"
    assert "c3" not in master.latest, "a start was acknowledged that is not saved"
    assert saved is None or saved == json.loads((disk / "agent-state.json").read_bytes())
    ballast.unlink()
    ends = {name: await master.until_state(name, ContainerState.TERMINATED) for name in ("c1", "c2", "c3")}
    assert ends["c1"].exit is not None and ends["c1"].exit.code == 0, ends["c1"]
    assert ends["c2"].exit is not None and ends["c2"].exit.failure is not FailureKind.AGENT_FAILED, ends["c2"]
    assert ends["c3"].exit is not None and ends["c3"].exit.code == 0, ends["c3"]
    assert (master.output("c1"), master.output("c3")) == (["went"], ["third"])
    assert {hello.incarnation for hello in master.hellos} == {master.hellos[0].incarnation}, "the agent ended"
