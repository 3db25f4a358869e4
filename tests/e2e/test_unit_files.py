"""The unit files for systemd: master and agent are restarted when they end, and a training outlives both."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import psutil
import pytest
import yaml

from support.live import READY_S, LiveCluster, kill, until
from support.systemd import UNITS, Systemd, booted, python_service

MASTER, AGENT = "resolute_master", "resolute_agent"
STEPS = 60


@pytest.mark.needs("systemd")
@pytest.mark.parametrize("unit", sorted(path.name for path in UNITS.glob("*.service")))
def test_a_unit_file_holds_what_systemd_understands(unit: str, tmp_path: Path) -> None:
    """The programs of the unit are not installed here, so their path is this machine's."""
    text = (UNITS / unit).read_text().replace("/opt/resolute/bin/python", shutil.which("sh") or "")
    (tmp_path / unit).write_text(text)
    said = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / unit)], capture_output=True, text=True, check=False
    )
    complaints = [line for line in said.stderr.splitlines() if unit in line and "man:" not in line]
    assert (said.returncode, complaints) == (0, [])


class Services(LiveCluster):
    """A cluster whose master and agent are services; a fixed pool of one agent."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, resource_pools=[{"pool_name": "default", "agent_reconnect_wait": "30s"}])
        self.agent_file = directory / "agent.yaml"
        agent = {
            "master_host": "127.0.0.1",
            "master_port": self.port,
            "agent_id": "static-1",
            "artificial_slots": 1,
            "state_dir": str(directory / "agent"),
        }
        self.agent_file.write_text(yaml.safe_dump(agent))

    def drop_ins(self) -> dict[str, str]:
        paths = f"ReadWritePaths={self.directory}\n"
        token = f"Environment=DET_JOIN_TOKEN_FILE={self.directory / 'state' / 'join-token'}\n"
        return {
            f"{MASTER.replace('_', '-')}.service": python_service(
                f"{MASTER} --config-file {self.config_file}", extra=paths
            ),
            f"{AGENT.replace('_', '-')}.service": python_service(f"{AGENT} --config {self.agent_file}", extra=token),
        }


def restarted(systemd: Systemd, module: str) -> None:
    """Kill the service's process with -9, and wait until another one is there."""
    (old,) = until(f"{module} runs", lambda: systemd.processes(module) or None)
    kill(old)
    until(
        f"another {module} runs",
        lambda: [
            one for one in systemd.processes(module) if one.pid != old.pid and one.status() != psutil.STATUS_ZOMBIE
        ],
    )


@pytest.mark.needs("systemd", "namespaces")
def test_killed_services_come_back_and_the_training_goes_on(tmp_path: Path) -> None:
    cluster = Services(tmp_path)
    with booted(tmp_path, cluster.drop_ins()) as systemd:
        try:
            until("the master serves", cluster.answers)
            # An agent that came before the first start had made the token is started again after a while.
            until("the agent has joined", lambda: cluster.client.agents.list() or None)
            experiment = cluster.submit({"script": [f"report {STEPS} every 0.2s"], "event_log": str(cluster.event_log)})
            (task,) = until("the task runs", lambda: systemd.processes(cluster.task_program) or None)
            restarted(systemd, AGENT)
            restarted(systemd, MASTER)
            until("the master serves again", cluster.answers)
            assert task.is_running()
            assert experiment.wait(0.2, timeout_s=READY_S) == "COMPLETED"
            (trial,) = experiment.list_trials()
            assert len(trial.list_allocations()) == 1
        except BaseException:
            print(systemd.log()[-4000:])
            raise
        finally:
            cluster.stop()
