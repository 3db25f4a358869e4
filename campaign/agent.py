"""An agent with points: `python -m campaign.agent <orders> --config <file>`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from campaign.points import Points
from resolute.wire.agent_link import ContainerSpec
from resolute_agent.command_line import settings_from_command_line
from resolute_agent.main import run
from resolute_agent.memory import FileMemory
from resolute_agent.reach import reach_of
from resolute_agent.runtimes.base import Runtime, TaskContext
from resolute_agent.runtimes.process import ProcessRuntime
from resolute_agent.settings import AgentSettings
from resolute_agent.state import Durable

UNDER_WAY_S = 0.004
"""Delay after which a start is in progress: the start of a process takes longer."""


class PointedMemory(FileMemory):
    """The agent's record, with points before and after its replacement."""

    def __init__(self, path: Path, points: Points) -> None:
        super().__init__(path)
        self._points = points

    def save(self, durable: Durable) -> None:
        self._points.reached("agent.record.due")
        super().save(durable)
        self._points.reached("agent.record.kept")


class PointedRuntime(ProcessRuntime):
    """The process runtime, with points before, during and after a start."""

    points = Points(None)

    async def start(self, spec: ContainerSpec, context: TaskContext) -> None:
        self.points.reached("agent.start.ordered")
        work = asyncio.ensure_future(super().start(spec, context))
        try:
            done, _ = await asyncio.wait([work], timeout=UNDER_WAY_S)
            if not done:
                self.points.reached("agent.start.begun")
            await work
        finally:
            work.cancel()
        self.points.reached("agent.start.done")


def main(arguments: Sequence[str]) -> int:
    points = Points(Path(arguments[0]))

    async def open_runtime(settings: AgentSettings) -> Runtime:
        directory = Path(settings.state_dir) / "containers"
        # The points of a trial kill its machine and its master, whose processes it could not see.
        runtime = await PointedRuntime.open(
            directory, private_root=settings.private_root, isolated=False, reach=reach_of(settings)
        )
        assert isinstance(runtime, PointedRuntime)
        runtime.points = points
        return runtime

    settings = settings_from_command_line(arguments[1:], os.environ)
    return run(settings, open_runtime, lambda path: PointedMemory(path, points))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
