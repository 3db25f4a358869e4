"""Containers outlive agent and engine: they are adopted, their output is whole, leases and kills are carried out."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from resolute.wire.states import FailureKind
from resolute_agent import supervisor
from resolute_agent.runtimes import docker_watch
from resolute_agent.runtimes.base import STREAMS
from resolute_agent.runtimes.docker import DockerRuntime
from resolute_agent.runtimes.docker_watch import OWNER_LABEL
from support.agent_processes import eventually
from support.agent_scripts import a_container, a_context
from support.docker import TASK, DockerEngine
from support.docker_agents import Agents, agents_of, watched

pytestmark = pytest.mark.needs("docker")

LINES = 2000
COUNTING = (
    "import sys, time\n"
    f"for number in range({LINES}):\n"
    "    stream = sys.stderr if number % 3 == 0 else sys.stdout\n"
    "    print('line', number, 'x' * (number % 50), file=stream, flush=True)\n"
    "    time.sleep(0.001)\n"
    "sys.stdout.write('no end of line')\n"
)


@pytest.fixture
async def agents(docker: DockerEngine, tmp_path: Path) -> AsyncIterator[Agents]:
    async with agents_of(docker, tmp_path / "agent") as agents:
        yield agents


async def counting(runtime: DockerRuntime) -> None:
    await runtime.start(a_container("exit 0", command=("python3", "-c", COUNTING)), a_context(600.0))
    await lines_written(runtime, 50)


async def lines_written(runtime: DockerRuntime, count: int) -> None:
    await eventually(lambda: runtime.read_output("c1", "stdout", 0, 10**6).count(b"\n") >= count, 60)


def told(runtime: DockerRuntime) -> dict[str, list[int]]:
    """The numbers of the lines of each stream, as the agent tells them."""
    output = {stream: runtime.read_output("c1", stream, 0, 10**7).decode().splitlines() for stream in STREAMS}
    return {
        stream: [int(line.split()[1]) for line in lines if line.startswith("line")] for stream, lines in output.items()
    }


def engine_kept(docker: DockerEngine) -> dict[str, list[int]]:
    """The same from the engine's own file."""
    kept: dict[str, list[int]] = {stream: [] for stream in STREAMS}
    for file in docker.directory.glob("data/containers/*/*-json.log"):
        # The last line may still be on its way into the file.
        for text in file.read_text().split("\n")[:-1]:
            entry = json.loads(text)
            if entry["log"].startswith("line"):
                kept[entry["stream"]].append(int(entry["log"].split()[1]))
    return kept


def assert_whole(runtime: DockerRuntime) -> None:
    """Each line once, in order, with a time for each."""
    told = {stream: runtime.read_output("c1", stream, 0, 10**7).decode().splitlines() for stream in STREAMS}
    for stream in STREAMS:
        expected = [n for n in range(LINES) if (n % 3 == 0) is (stream == "stderr")]
        lines = [line for line in told[stream] if line.startswith("line")]
        assert [int(line.split()[1]) for line in lines] == expected
        assert runtime.output_time("c1", stream, 0) is not None
    assert told["stdout"][-1] == "no end of line"
    times = [runtime.output_time("c1", "stdout", offset) for offset in range(0, 15_000, 500)]
    known = [time for time in times if time is not None]
    assert len(known) == len(times)
    assert sorted(known) == known


async def test_output_is_whole_over_agents_that_come_and_go(agents: Agents) -> None:
    runtime = await agents.next()
    await counting(runtime)
    for wanted in (300, 600):
        runtime = await agents.next()
        (found,) = await runtime.adopt()
        assert found.container_id == "c1"
        await lines_written(runtime, wanted)
    await agents.close()
    await asyncio.sleep(2.0)  # it ends, or nearly, while nobody looks
    runtime = await agents.next()
    await runtime.adopt()
    async with asyncio.timeout(60):
        assert (await runtime.wait("c1")).code == 0
    assert_whole(runtime)
    await eventually(lambda: agents.containers() == [])


async def test_what_the_engine_kept_is_told_over_its_restart(agents: Agents, docker: DockerEngine) -> None:
    runtime = await agents.next()
    await counting(runtime)
    await asyncio.to_thread(docker.restart)
    await eventually(lambda: b"line 1900" in runtime.read_output("c1", "stdout", 0, 10**7), 60)
    kept = engine_kept(docker)
    async with asyncio.timeout(60):
        assert (await runtime.wait("c1")).code == 0
    for stream, mine in told(runtime).items():
        assert mine[: len(kept[stream])] == kept[stream], "what the engine has is told, once and in order"
        # An engine that is stopped may drop what it has in hand, as one that dies.
        assert mine == sorted(set(mine))
    assert LINES - sum(map(len, told(runtime).values())) < 100
    await eventually(lambda: agents.containers() == [])


async def test_a_death_of_the_engine_costs_what_it_had_in_hand_and_doubles_nothing(
    agents: Agents, docker: DockerEngine
) -> None:
    runtime = await agents.next()
    await counting(runtime)
    docker.kill()
    await runtime.kill("nobody", 0.0)
    assert not runtime.output_ended("c1")
    await asyncio.to_thread(docker.start)
    async with asyncio.timeout(60):
        assert (await runtime.wait("c1")).code == 0
    for numbers in told(runtime).values():
        assert numbers == sorted(set(numbers))
    # What the engine has read from a stream and not yet written is lost with it: at most its buffer of each.
    assert LINES - sum(map(len, told(runtime).values())) < 100
    await eventually(lambda: agents.containers() == [])


async def test_a_start_waits_for_an_engine_that_is_being_restarted(agents: Agents, docker: DockerEngine) -> None:
    runtime = await agents.next()
    docker.kill()
    start = asyncio.create_task(runtime.start(a_container("exit 4"), a_context()))
    await asyncio.to_thread(docker.start)
    async with asyncio.timeout(60):
        await start
        assert (await runtime.wait("c1")).code == 4


async def test_what_ended_while_nobody_was_there_is_told(agents: Agents) -> None:
    runtime = await agents.next()
    await runtime.start(a_container("say last words; exit 9"), a_context())
    await agents.close()
    runtime = await agents.next()
    await runtime.adopt()
    assert (await runtime.wait("c1")).code == 9
    assert runtime.read_output("c1", "stdout", 0, 100) == b"last words\n"


async def test_a_container_that_somebody_removed_is_told_as_such(agents: Agents, docker: DockerEngine) -> None:
    runtime = await agents.next()
    await runtime.start(a_container("run 600s"), a_context())
    with docker.client() as client:
        client.remove_container("resolute-c1", force=True)
    end = await runtime.wait("c1")
    assert end.failure in (FailureKind.TASK_ERROR, FailureKind.CONTAINER_FAILED)
    await agents.close()
    runtime = await agents.next()
    (found,) = await runtime.adopt()
    assert found.exit == end


async def test_a_lease_and_a_kill_are_carried_out_without_an_agent(agents: Agents) -> None:
    runtime = await agents.next()
    await runtime.start(a_container("ignore kill; say deaf; run 600s", "killed"), a_context(600.0))
    # Both are to end after the agent, which would remove them.
    await runtime.start(a_container("run 600s", "leased"), a_context(lease_s=15.0))
    await runtime.kill("killed", 12.0)
    await agents.close()
    with agents.engine.client() as client:
        await eventually(
            lambda: (
                [client.inspect_container(f"resolute-{one}")["State"]["Status"] for one in ("leased", "killed")]
                == ["exited", "exited"]
            )
        )
    runtime = await agents.next()
    await runtime.adopt()
    assert (await runtime.wait("leased")).failure is FailureKind.AGENT_FAILED
    assert (await runtime.wait("killed")).code == 137


async def test_a_watch_that_dies_is_replaced_with_the_next_renewal(agents: Agents) -> None:
    runtime = await agents.next()
    await runtime.start(a_container("run 600s"), a_context(lease_s=600.0))
    await eventually(lambda: watched(agents.directory))
    os.kill(_watch_of(agents.directory), signal.SIGKILL)
    await eventually(lambda: not watched(agents.directory))
    runtime.renew("c1", 601.0)
    await eventually(lambda: watched(agents.directory))
    await runtime.kill("c1", 0.0)
    assert (await runtime.wait("c1")).code == 137


def _watch_of(directory: Path) -> int:
    """The pid of the directory's watch."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                command = Path("/proc", name, "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if docker_watch.__name__ in command and str(directory) in command:
                return int(name)
    raise AssertionError("no watch")


async def test_what_nobody_stands_for_is_removed(agents: Agents, docker: DockerEngine) -> None:
    """Containers whose start was cut off: before the engine was asked, after it had made one, after it ran."""
    runtime = await agents.next()
    await runtime.start(a_container("run 600s", "kept"), a_context())
    await runtime.start(a_container("run 600s", "cut"), a_context())
    await agents.close()
    (agents.directory / "containers" / "cut" / docker_watch.STARTED).unlink()
    (agents.directory / "containers" / "half").mkdir()
    with docker.client() as client:
        labels = {OWNER_LABEL: str(agents.directory)}
        client.create_container(TASK, ["sleep", "600"], name="resolute-late", labels=labels)
        client.create_container(TASK, ["sleep", "600"], name="somebody-elses", labels={OWNER_LABEL: "/other"})
    runtime = await agents.next()
    assert [found.container_id for found in await runtime.adopt()] == ["kept"]
    assert agents.containers() == ["/resolute-kept"]
    assert sorted(path.name for path in (agents.directory / "containers").iterdir()) == ["kept"]
    with docker.client() as client:
        client.remove_container("somebody-elses")


async def test_a_machine_that_goes_takes_its_containers_along(agents: Agents, docker: DockerEngine) -> None:
    runtime = await agents.next()
    for number in range(3):
        await runtime.start(a_container("run 600s", f"c{number}"), a_context())
    await asyncio.to_thread(docker_watch.end_all, agents.directory, docker.host.removeprefix("unix://"))
    assert agents.containers() == []


def test_orders_of_a_container() -> None:
    now = supervisor.boot_time()
    far = float("inf")
    nothing = docker_watch.orders_of(now, "", None, None)
    assert (nothing.stop_at, nothing.kill_at, nothing.lease_over) == (far, far, False)
    leased = docker_watch.orders_of(now, f"{now + 10} 2", None, None)
    assert (leased.stop_at, leased.kill_at, leased.lease_over) == (now + 8, now + 10, False)
    asked = docker_watch.orders_of(now, f"{now + 1} 2", None, None)
    assert asked.lease_over and asked.kill_at == now + 1
    killed = docker_watch.orders_of(now, f"{now + 10} 2", {"at": now, "grace_s": 3}, None)
    assert (killed.stop_at, killed.kill_at, killed.lease_over) == (now, now + 3, False)
    renewed_too_late = docker_watch.orders_of(now, f"{now + 99} 2", None, {"hard_at": now + 1})
    assert (renewed_too_late.stop_at, renewed_too_late.kill_at) == (now, now + 1)
