"""Connects a fake cloud with machines: boots the machines that the cloud runs with their stored boot data, powers off those that it
ends, and ends in the cloud those that power themselves off."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from support.booted_machines import BootedMachine, Network

LOOK_S = 0.2


class CloudBridge(ABC):
    def __init__(self, directory: Path, network: Network) -> None:
        self.machines: dict[str, BootedMachine] = {}
        """Every booted machine, by the cloud's id."""
        self._directory = directory
        self._network = network
        self._may_boot = threading.Event()
        self._may_boot.set()
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    @contextmanager
    def watching(self) -> Iterator[Self]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()
            for machine in self.machines.values():
                machine.remove()
        self.check()

    def check(self) -> None:
        """Raises the error of the bridge, if it has failed."""
        if self._failure is not None:
            raise self._failure

    def living(self) -> list[str]:
        """Raises the error of the bridge, if it has failed."""
        self.check()
        return sorted(name for name, machine in self.machines.items() if machine.runs)

    @contextmanager
    def boots_held(self) -> Iterator[None]:
        """Delays boots until the end of the context, independent of the computer's speed."""
        self._may_boot.clear()
        try:
            yield
        finally:
            self._may_boot.set()

    @abstractmethod
    def _running(self) -> tuple[Set[str], Set[str]]:
        """Running machines of the cloud, and powered machines: the running ones and those that are ending."""

    @abstractmethod
    def _booted(self, name: str) -> BootedMachine: ...

    @abstractmethod
    def _power_off(self, name: str) -> None:
        """Records in the cloud that the machine has powered itself off."""

    def _run(self) -> None:
        try:
            while not self._stop.wait(LOOK_S):
                self._look()
        except BaseException as error:
            self._failure = error

    def _look(self) -> None:
        running, powered = self._running()
        for name in sorted(running):
            machine = self.machines.get(name)
            if machine is None and self._may_boot.is_set():
                self.machines[name] = self._booted(name)
            elif machine is not None and machine.powered_itself_off:
                self._power_off(name)
        for name, machine in self.machines.items():
            if machine.runs and name not in powered:
                machine.cut()
