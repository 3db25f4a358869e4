"""Docker runtimes with a private engine, in sequence, like successive agent processes on one machine."""

from __future__ import annotations

import fcntl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from resolute.wire.agent_link import ContainerSpec
from resolute_agent.runtimes.base import TaskContext
from resolute_agent.runtimes.docker import DockerRuntime
from resolute_agent.runtimes.docker_engine import Engine
from resolute_agent.runtimes.docker_request import EngineOptions
from resolute_agent.runtimes.docker_watch import OWNER_LABEL, WATCH_LOCK
from support.agent_processes import eventually
from support.docker import TASK, DockerEngine

QUICK_PULL_PAUSES_S = (0.1,)


class TaskImageRuntime(DockerRuntime):
    """By default runs containers with the task image and the host's network, which is the fastest."""

    async def start(self, spec: ContainerSpec, context: TaskContext) -> None:
        if not spec.image:
            spec = replace(spec, image=TASK, options=replace(spec.options, network_mode="host"))
        await super().start(spec, context)


class Agents:
    """The runtimes of one directory. Each `next` ends the previous one, like the death of its process."""

    def __init__(
        self, engine: DockerEngine, directory: Path, options: EngineOptions, login_file: Path | None = None
    ) -> None:
        self.engine = engine
        self.directory = directory
        self._options = options
        self._login_file = login_file
        self._opened: DockerRuntime | None = None

    async def next(self) -> DockerRuntime:
        await self.close()
        engine = Engine(self.engine.host, login_file=self._login_file)
        self._opened = await TaskImageRuntime.open(
            self.directory, engine, self._options, pull_pauses_s=QUICK_PULL_PAUSES_S
        )
        return self._opened

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()
            self._opened = None

    def containers(self) -> list[str]:
        """The names of this agent's containers in the engine, in any state."""
        label = {OWNER_LABEL: str(self.directory)}
        return sorted(each["Names"][0] for each in self.engine.containers(**label))


@asynccontextmanager
async def agents_of(
    engine: DockerEngine, directory: Path, options: EngineOptions | None = None, login_file: Path | None = None
) -> AsyncIterator[Agents]:
    """Removes the containers after the test. The watch process then ends by itself."""
    agents = Agents(engine, directory, options or EngineOptions(), login_file)
    try:
        yield agents
    finally:
        last = await agents.next()
        for found in await last.adopt():
            await last.kill(found.container_id, 0.0)
            await last.wait(found.container_id)
            await last.forget(found.container_id)
        await agents.close()
        assert agents.containers() == []
        await eventually(lambda: not watched(directory))


def watched(directory: Path) -> bool:
    """Whether a watch process of this directory exists."""
    lock = directory / WATCH_LOCK
    if not lock.exists():
        return False
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
