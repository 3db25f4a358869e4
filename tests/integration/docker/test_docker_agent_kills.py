"""An agent that is killed at any moment of a start leaves no container that nobody stands for, and starts none twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from resolute.wire.agent_link import ContainerOptions
from resolute.wire.states import ContainerState
from resolute_agent.runtimes.docker_watch import OWNER_LABEL
from support.agent_master import LinkMaster, a_spec
from support.agent_processes import AgentProcess, eventually, write_settings
from support.docker import TASK, DockerEngine

pytestmark = pytest.mark.needs("docker")

SEED = 20261121
JITTER_S = 0.05
STAGES = ("ordered", "prepared", "created", "running", "told")
"""How far the start is when the agent is killed, at a seeded moment thereafter."""
SETTLED = (ContainerState.RUNNING, ContainerState.TERMINATED)


@pytest.fixture
async def master() -> AsyncIterator[LinkMaster]:
    master = LinkMaster()
    await master.start()
    yield master
    await master.stop()


async def test_kills_at_seeded_moments_of_a_start(docker: DockerEngine, master: LinkMaster, tmp_path: Path) -> None:
    settings = write_settings(
        tmp_path / "machine", master_url=master.url, runtime="docker", docker_host=docker.host, artificial_slots=1
    )
    label = {OWNER_LABEL: str(tmp_path / "machine" / "state" / "docker")}
    agent = AgentProcess(settings)
    rng = random.Random(SEED)
    outcomes: dict[str, str] = {}
    homes = tmp_path / "machine" / "state" / "docker" / "containers"
    try:
        agent.start()
        for number, stage in enumerate(rng.sample(STAGES, len(STAGES))):
            name = f"c{number}"
            began = tmp_path / "shared" / name
            await master.until_connected(times=number + 1)
            spec = a_spec(
                name,
                slots=(0,),
                image=TASK,
                command=("sh", "-c", f"echo began >> /shared/{name}; trap 'exit 0' TERM; sleep 600 & wait"),
                options=ContainerOptions(network_mode="host"),
                shared_directories=((str(tmp_path / "shared"), "/shared"),),
            )
            await master.run(spec)
            await eventually(lambda stage=stage, name=name: reached(stage, name, docker, master, homes), 60)
            await asyncio.sleep(rng.uniform(0, JITTER_S))
            await agent.kill_9()
            agent.start()
            await master.until_connected(times=number + 2)
            if name not in {report.container_id for report in master.hellos[-1].containers}:
                await master.run(spec)  # the order was not heard, or not yet written down: a master repeats it
            await master.until(lambda name=name: name in master.latest and master.latest[name].state in SETTLED)
            if master.latest[name].state is ContainerState.RUNNING:
                outcomes[stage] = "goes on"
                assert [each["Names"] for each in docker.containers(**label)] == [[f"/resolute-{name}"]]
                await eventually(began.exists)
                await master.kill(name, grace_s=5.0)
                await master.until_state(name, ContainerState.TERMINATED)
            else:
                outcomes[stage] = "undone"
            await eventually(lambda: docker.containers(**label) == [])
            assert not began.exists() or began.read_text() == "began\n"
        assert outcomes["told"] == "goes on"
        await eventually(lambda: not list(homes.iterdir()))
    finally:
        agent.end_all()


def reached(stage: str, container_id: str, docker: DockerEngine, master: LinkMaster, homes: Path) -> bool:
    """Whether the start has come so far, seen from outside."""
    if stage == "ordered":
        return True
    if stage == "prepared":
        return (homes / container_id).exists()
    if stage == "told":
        return container_id in master.latest and master.latest[container_id].state is ContainerState.RUNNING
    found = [each for each in docker.containers() if each["Names"] == [f"/resolute-{container_id}"]]
    return bool(found) and (stage == "created" or found[0]["State"] == "running")
