"""What Compute Engine does with an insert, done here: machines that the fake has running are booted with the start-up script
that it holds, those that it ends lose their power, and those that power themselves off are stopped in it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.booted_machines import BootedMachine, Network
from support.compute_engine import FakeComputeEngine
from support.compute_engine_rules import Json

LOOK_S = 0.1


class GceBridge:
    def __init__(self, engine: FakeComputeEngine, directory: Path, network: Network) -> None:
        self.machines: dict[str, BootedMachine] = {}
        """Every one that was ever booted, by its name."""
        self._engine = engine
        self._directory = directory
        self._network = network
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    @contextmanager
    def watching(self) -> Iterator[GceBridge]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()
            for machine in self.machines.values():
                machine.remove()
        if self._failure is not None:
            raise self._failure

    def living(self) -> list[str]:
        """Raises what ended the bridge."""
        if self._failure is not None:
            raise self._failure
        return sorted(name for name, machine in self.machines.items() if machine.runs)

    def preempt(self, name: str, *, notice_s: float) -> None:
        """The machine is told, and after `notice_s` it is gone."""
        self._engine.preempt(name, notice_s=notice_s)
        self.machines[name].tell({"instance/preempted": "TRUE"})

    def _run(self) -> None:
        try:
            while not self._stop.wait(LOOK_S):
                self._look()
        except BaseException as error:
            self._failure = error

    def _look(self) -> None:
        there = {path.split("/")[1]: (path, status, body) for path, (status, body) in self._engine.there().items()}
        for name, (path, status, body) in there.items():
            machine = self.machines.get(name)
            if machine is None and status == "RUNNING":
                self._boot(path, body)
            elif machine is not None and machine.powered_itself_off and status == "RUNNING":
                self._engine.power_off(name)
        for name, machine in self.machines.items():
            if machine.runs and (name not in there or there[name][1] == "TERMINATED"):
                machine.cut()

    def _boot(self, path: str, body: Json) -> None:
        zone, name = path.split("/")
        (script,) = (item["value"] for item in body["metadata"]["items"] if item["key"] == "startup-script")
        told = {"instance/name": name, "instance/zone": f"projects/1/zones/{zone}"}
        self.machines[name] = BootedMachine(
            self._directory / name, self._network, script.encode(), told, "support.gce_metadata_main"
        )


@contextmanager
def gce_bridge(engine: FakeComputeEngine, directory: Path) -> Iterator[tuple[GceBridge, Network]]:
    network = Network()
    with network.up(), GceBridge(engine, directory, network).watching() as bridge:
        yield bridge, network
