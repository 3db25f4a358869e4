"""The local cloud's memory: one directory a machine, JSON files that appear whole or not at all.

    <root>/cloud.json                       how often a launch was asked for
    <root>/lock                             held while a launch is decided
    <root>/control/interrupt-<id>.json      an order to take a machine back, consumed by its host
    <root>/instances/<id>/instance.json     what was asked for; its presence is the launch
                          agent.json        what the machine is told at boot (holds the join token)
                          host.json         pid and start time of the host process; written once, by whoever comes first
                          started.json      pid, start time, and from when the machine is paid
                          stop              its presence orders the end
                          notice.json       the machine's own view of its coming interruption
                          gone.json         when and why it ended; the last word
                          machine.log, host.log, state/

Nothing is forced to disk: what must be survived is the death of a process, and a reboot ends every machine anyway.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

SAME_START_S = 2.0
"""Two readings of one process's start time differ by less, also when the wall clock was stepped in between."""

Record = dict[str, Any]


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


def read_json(path: Path) -> Record | None:
    """None when there is no such file."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def write_json(path: Path, record: Mapping[str, Any], *, private: bool = False) -> None:
    """Replace the file as a whole. `private` keeps other users from reading it."""
    temporary = _write_beside(path, record, private=private)
    temporary.replace(path)


def claim_json(path: Path, record: Mapping[str, Any]) -> bool:
    """Create the file as a whole if nobody has. True for exactly one of all who try."""
    temporary = _write_beside(path, record, private=False)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _write_beside(path: Path, record: Mapping[str, Any], *, private: bool) -> Path:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    mode = 0o600 if private else 0o644
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(json.dumps(record, indent=2, sort_keys=True) + "\n")
    return temporary


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """One process at a time decides about launches. The lock ends with its holder, however that dies."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def machines(root: Path) -> list[tuple[MachineFiles, Record]]:
    """Every machine that was ever launched and not yet forgotten, by name."""
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
    """What tells this process from every other one, also after its pid was given out again."""
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


def time_text(moment: datetime) -> str:
    return moment.isoformat()


def parse_time(text: object) -> datetime | None:
    return datetime.fromisoformat(str(text)) if text else None
