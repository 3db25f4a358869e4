"""The local cloud's state: one directory per machine, JSON files that appear whole or not at all.

    <root>/cloud.json                       how often a launch was asked for
    <root>/lock                             held while a launch is decided
    <root>/control/interrupt-<id>.json      an order to take a machine back, consumed by its host
    <root>/instances/<id>/instance.json     what was requested; its presence is the launch
                          agent.json        the machine's boot settings (with the join token)
                          host.json         pid and start time of the host process; written once, by the first process
                          started.json      pid, start time, and from when the machine is paid
                          stop              its presence orders the end
                          notice.json       the machine's own view of its coming interruption
                          gone.json         when and why it ended; the last word
                          machine.log, host.log, state/

Nothing is forced to disk: what must be survived is the death of a process, and a reboot ends every machine anyway.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from resolute_provisioner.clouds.records import Record, read_json, write_json

SAME_START_S = 2.0
"""Two readings of one process's start time differ by less, also when the wall clock was stepped in between."""


@dataclass(frozen=True, slots=True)
class MachineFiles:
    """The paths of one machine."""

    directory: Path

    @property
    def instance(self) -> Path:
        return self.directory / "instance.json"

    @property
    def agent(self) -> Path:
        return self.directory / "agent.json"

    @property
    def host(self) -> Path:
        return self.directory / "host.json"

    @property
    def started(self) -> Path:
        return self.directory / "started.json"

    @property
    def stop(self) -> Path:
        return self.directory / "stop"

    @property
    def notice(self) -> Path:
        return self.directory / "notice.json"

    @property
    def gone(self) -> Path:
        return self.directory / "gone.json"

    @property
    def interrupt_order(self) -> Path:
        return control_directory(self.directory.parent.parent) / f"interrupt-{self.directory.name}.json"


def instances_directory(root: Path) -> Path:
    return root / "instances"


def control_directory(root: Path) -> Path:
    return root / "control"


def machines(root: Path) -> list[tuple[MachineFiles, Record]]:
    """Every machine that was launched and not dropped yet, by name."""
    found = []
    with suppress(FileNotFoundError):
        for directory in sorted(instances_directory(root).iterdir()):
            files = MachineFiles(directory)
            # A name with a leading dot is a launch that was cut off before it became one.
            if not directory.name.startswith(".") and (record := read_json(files.instance)) is not None:
                found.append((files, record))
    return found


def create_machine(root: Path, instance_id: str, record: Mapping[str, Any], agent_json: str) -> MachineFiles:
    """Make the machine's directory appear complete. Call with the lock held."""
    parent = instances_directory(root)
    parent.mkdir(parents=True, exist_ok=True)
    draft = MachineFiles(parent / f".new-{instance_id}")
    shutil.rmtree(draft.directory, ignore_errors=True)
    draft.directory.mkdir()
    (draft.directory / "state").mkdir()
    write_json(draft.instance, record)
    write_json(draft.agent, json.loads(agent_json), private=True)
    final = MachineFiles(parent / instance_id)
    draft.directory.rename(final.directory)
    return final


def process_identity(pid: int) -> Record:
    """The identity of this process, also after its pid is reused."""
    return {"pid": pid, "start_time": psutil.Process(pid).create_time()}


def process_lives(identity: Mapping[str, Any] | None) -> bool:
    """Whether the very process that wrote the identity still runs. A zombie does not."""
    if identity is None or not identity.get("pid"):
        return False
    try:
        process = psutil.Process(int(identity["pid"]))
        same = abs(process.create_time() - float(identity["start_time"])) < SAME_START_S
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
