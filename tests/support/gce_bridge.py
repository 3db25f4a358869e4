"""The bridge of Compute Engine: machines boot with their start-up script, and their metadata server publishes a preemption."""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path

from resolute_provisioner.clouds.gcp.fake_compute_engine import FakeComputeEngine
from support.booted_machines import BootedMachine, Network
from support.cloud_bridge import CloudBridge


class GceBridge(CloudBridge):
    def __init__(self, engine: FakeComputeEngine, directory: Path, network: Network) -> None:
        super().__init__(directory, network)
        self._engine = engine

    def preempt(self, name: str, *, notice_s: float) -> None:
        """Publishes the notice to the machine, and removes the machine after `notice_s`."""
        self._engine.preempt(name, notice_s=notice_s)
        self.machines[name].tell({"instance/preempted": "TRUE"})

    def _running(self) -> tuple[Set[str], Set[str]]:
        states = {path.split("/")[1]: status for path, (status, _) in self._engine.there().items()}
        running = {name for name, status in states.items() if status == "RUNNING"}
        return running, {name for name, status in states.items() if status != "TERMINATED"}

    def _power_off(self, name: str) -> None:
        self._engine.power_off(name)

    def _booted(self, name: str) -> BootedMachine:
        ((zone, body),) = (
            (path.split("/")[0], body) for path, (_, body) in self._engine.there().items() if path.split("/")[1] == name
        )
        (script,) = (item["value"] for item in body["metadata"]["items"] if item["key"] == "startup-script")
        told = {"instance/name": name, "instance/zone": f"projects/1/zones/{zone}"}
        return BootedMachine(self._directory / name, self._network, script.encode(), told, "support.gce_metadata_main")


@contextmanager
def gce_bridge(engine: FakeComputeEngine, directory: Path) -> Iterator[tuple[GceBridge, Network]]:
    network = Network()
    with network.up(), GceBridge(engine, directory, network).watching() as bridge:
        yield bridge, network
