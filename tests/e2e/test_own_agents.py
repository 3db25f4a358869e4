"""Agents of machines that no cloud pool launched, as real processes: they join with the token, and may be killed at any point."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from resolute.client import Resolute
from resolute.errors import PermissionDenied
from support.effort import repeated
from support.live import LiveCluster, client_of, until

COMMAND = "det agent join-token"
KILLS = repeated(push=2, night=8)


class Machine:
    """One machine of one's own: its state directory, and the agent on it."""

    def __init__(self, directory: Path, port: int, **config: object) -> None:
        directory.mkdir()
        self.file, self.log_file = directory / "agent.yaml", directory / "agent.log"
        self.config = {
            "master_host": "127.0.0.1",
            "master_port": port,
            "agent_id": "own-1",
            "artificial_slots": 1,
            "agent_reconnect_backoff": "200ms",
            "state_dir": str(directory / "agent"),
            **config,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.file.write_text(yaml.safe_dump(self.config))
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "resolute_agent", "--config", str(self.file)], stdout=log, stderr=log
            )

    def ends(self) -> int:
        assert self._process is not None
        return self._process.wait(60)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    made = LiveCluster(tmp_path / "cluster", resource_pools=[{"pool_name": "default", "agent_reconnect_wait": "15s"}])
    made.start()
    try:
        yield made
    finally:
        made.stop()


def connected(cluster: LiveCluster) -> list[str]:
    return [agent.id for agent in cluster.client.agents.list()]


@pytest.fixture
def administrator(cluster: LiveCluster, tmp_path: Path) -> Iterator[Resolute]:
    with client_of(cluster.url, tmp_path / "administrator", user="admin") as session:
        yield session


def test_a_refused_agent_prints_the_command_and_the_token_of_that_command_lets_it_in(
    cluster: LiveCluster, administrator: Resolute, tmp_path: Path
) -> None:
    machine = Machine(tmp_path / "own", cluster.port)
    machine.start()
    try:
        assert machine.ends() == 78
        assert COMMAND in machine.log and "/etc/determined/agent.yaml" in machine.log
        assert connected(cluster) == []
        with pytest.raises(PermissionDenied, match="may not"):
            cluster.client.agents.join_token()
        token = administrator.agents.join_token().join_token
        machine.config["join_token"] = token
        machine.start()
        until("it joins", lambda: connected(cluster) == ["own-1"])
        machine.kill()

        twin = Machine(tmp_path / "twin", cluster.port, join_token=token)
        twin.start()
        assert twin.ends() == 78
        assert "det agent forget own-1" in twin.log
        until("it is given up", lambda: connected(cluster) == [])
        twin.start()
        assert twin.ends() == 78, "a name outlives its agent's registration"
        administrator.agents.forget("own-1")
        twin.start()
        try:
            until("it joins", lambda: connected(cluster) == ["own-1"])
        finally:
            twin.kill()
        machine.start()
        assert machine.ends() == 78
    finally:
        machine.kill()


def test_agent_and_master_are_killed_at_any_moment_of_the_join_and_the_machine_is_not_lost(
    cluster: LiveCluster, tmp_path: Path
) -> None:
    """Each round begins with a free name; the kills come later and later after the agent's start."""
    token_file = tmp_path / "cluster" / "state" / "join-token"
    machine = Machine(tmp_path / "own", cluster.port, join_token_file=str(token_file))
    try:
        for number, after_s in zip(range(KILLS), itertools.count(0.3, 1.2 / KILLS), strict=False):
            machine.config |= {"agent_id": f"own-{number}", "state_dir": str(tmp_path / f"state-{number}")}
            machine.start()
            time.sleep(after_s)
            first, second = (machine.kill, cluster.kill_master) if number % 2 else (cluster.kill_master, machine.kill)
            first()
            second()
            cluster.start()
            machine.start()
            until("it is back", lambda name=f"own-{number}": name in connected(cluster))  # type: ignore[misc]
            machine.kill()
    finally:
        machine.kill()
