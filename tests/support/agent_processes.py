"""Real agent processes and machines for tests. All of them end with the test."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from resolute_agent import processes, supervisor


def write_settings(directory: Path, *, master_url: str, **changes: object) -> Path:
    """`agent.json` of a machine in `directory`, marked so that a test can find every process of it."""
    directory.mkdir(parents=True, exist_ok=True)
    settings: dict[str, object] = {
        "master_url": master_url,
        "agent_id": directory.name,
        "instance_id": f"{directory.name}-{os.getpid()}-{abs(hash(str(directory)))}",
        "state_dir": str(directory / "state"),
        "artificial_slots": 2,
        "reconnect_cap_s": 1.0,
        "notice_file": str(directory / "cloud-notice.json"),
    }
    file = directory / "agent.json"
    file.write_text(json.dumps({**settings, **changes}))
    return file


class AgentProcess:
    """One agent, run as `python -m resolute_agent`."""

    def __init__(self, settings: Path) -> None:
        self.settings = settings
        self.instance_id: str = json.loads(settings.read_text())["instance_id"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.settings.parent / "agent.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "resolute_agent", "--config", str(self.settings)],
                stdout=log,
                stderr=log,
                env={**os.environ, "RESOLUTE_INSTANCE": self.instance_id},
            )

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def ended(self, limit_s: float = 60.0) -> int:
        process = self._process
        assert process is not None
        await eventually(lambda: process.poll() is not None, limit_s)
        assert process.returncode is not None
        return process.returncode

    async def kill_9(self) -> None:
        self.signal(signal.SIGKILL)
        await self.ended()

    @property
    def log(self) -> str:
        return (self.settings.parent / "agent.log").read_text(errors="replace")

    def end_all(self) -> None:
        """Ends all processes of the test."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        assert not processes.end_marked("RESOLUTE_INSTANCE", self.instance_id)


def container_home(settings: Path, container_id: str) -> Path:
    return Path(json.loads(settings.read_text())["state_dir"]) / "containers" / container_id


def living_task(home: Path) -> bool:
    """Whether the first process of a container exists."""
    task = supervisor.read_json(str(home / supervisor.TASK))
    return task is not None and processes.is_alive(task["pid"], task["start_time"])


async def eventually(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    """Polls for an event without a notification, such as the end of a process."""
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0.03)
