"""Runtimes over the test run's engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from resolute_agent.runtimes.docker import DockerRuntime
from support.docker import DockerEngine
from support.docker_agents import Agents, agents_of


@pytest.fixture
async def agents(docker: DockerEngine, tmp_path: Path) -> AsyncIterator[Agents]:
    async with agents_of(docker, tmp_path / "agent") as agents:
        yield agents


@pytest.fixture
async def runtime(agents: Agents) -> DockerRuntime:
    return await agents.next()
