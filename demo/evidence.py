"""Input of the checks: the API's responses while the cluster ran, then the files and the processes.

Only the standard library and psutil: no code of the project takes part in reading its results.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

Json = Mapping[str, Any]

MARKER = "RESOLUTE_INSTANCE"
"""Environment variable with the machine's id in every process of a machine of the local cloud."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine, from the files of its directory. `notice_written_at` is the file's own time, not its content."""

    id: str
    slots: int
    paid_from: datetime
    paid_until: datetime | None
    end_reason: str
    notice: Json | None
    notice_written_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCheckpoint:
    """One checkpoint's directory. `problems` lists differences between its files and its manifest; `published_at` is the time of
    the manifest's file."""

    uuid: str
    steps: int
    run: int
    created: datetime
    published_at: datetime
    parent: str | None
    seed: int
    threads: int
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One training report of a run; `archived` if a later run has repeated the step."""

    run: int
    step: int
    loss: float
    archived: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The uninterrupted run for comparison."""

    seed: int
    threads: int
    losses: Mapping[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Input of all claims. REST responses are unchanged."""

    experiment: Json
    trial: Json
    allocations: Sequence[Json]
    instances: Sequence[Json]
    decisions: Sequence[Json]
    ledger: Json
    checkpoints: Sequence[Json]
    reports: Sequence[Report]
    accuracy: float | None
    trial_log: Sequence[str]
    launch_requests: int
    machines: Sequence[Machine]
    saved: Sequence[SavedCheckpoint]
    reference: Reference
    processes: Sequence[str]
    """Processes of this run that should have ended."""
    master_kept: bool = False


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def read_evidence(root: Path, *, master_may_live: bool) -> Evidence:
    """Reads the evidence of a finished run. Raises OSError, ValueError or KeyError if a required part is missing."""
    seen: Json = json.loads((root / "observed" / "final.json").read_text())
    pool = root / "pools" / "default"
    machines = [_machine(path) for path in sorted((pool / "instances").iterdir()) if (path / "started.json").exists()]
    return Evidence(
        experiment=seen["experiment"],
        trial=seen["trial"],
        allocations=seen["allocations"],
        instances=seen["instances"],
        decisions=seen["decisions"],
        ledger=seen["ledger"],
        checkpoints=seen["checkpoints"],
        reports=[_report(one) for one in seen["training"]],
        accuracy=_accuracy(seen["validation"]),
        trial_log=seen["trial_log"],
        launch_requests=int(json.loads((pool / "cloud.json").read_text())["launch_requests"]),
        machines=machines,
        saved=sorted((_saved(path.parent) for path in (root / "checkpoints").glob("*/manifest.json")), key=_age),
        reference=_reference(root / "reference"),
        processes=living_processes(root, [machine.id for machine in machines], master_may_live=master_may_live),
        master_kept=master_may_live,
    )


def _age(checkpoint: SavedCheckpoint) -> tuple[datetime, str]:
    return checkpoint.created, checkpoint.uuid


def _report(one: Json) -> Report:
    loss = float(one["metrics"]["avg_metrics"]["loss"])
    return Report(run=one["trialRunId"], step=one["totalBatches"], loss=loss, archived=one["archived"])


def _accuracy(validations: Sequence[Json]) -> float | None:
    if not validations:
        return None
    last = max(validations, key=lambda one: (int(one["totalBatches"]), int(one["trialRunId"])))
    return float(last["metrics"]["validation_metrics"]["accuracy"])


def _machine(directory: Path) -> Machine:
    asked, started = _read(directory / "instance.json"), _read(directory / "started.json")
    gone, notice = _read_if_there(directory / "gone.json"), _read_if_there(directory / "notice.json")
    return Machine(
        id=asked["instance_id"],
        slots=int(asked["slots"]),
        paid_from=moment(started["paid_from"]),
        paid_until=moment(gone["at"]) if gone is not None else None,
        end_reason=str((gone or {}).get("reason", "")),
        notice=notice,
        notice_written_at=_written_at(directory / "notice.json") if notice is not None else None,
    )


def _saved(directory: Path) -> SavedCheckpoint:
    manifest, progress = _read(directory / "manifest.json"), _read(directory / "trainer.json")
    problems = [] if progress["steps_completed"] == manifest["steps_completed"] else ["trainer.json has other steps"]
    for name, listed in sorted(manifest["files"].items()):
        path = directory / name
        if not path.is_file():
            problems.append(f"{name} is missing")
        elif path.stat().st_size != listed["size"] or _sha256(path) != listed["sha256"]:
            problems.append(f"{name} has another content")
    return SavedCheckpoint(
        uuid=manifest["uuid"],
        steps=int(manifest["steps_completed"]),
        run=int(manifest["trial_run_id"]),
        created=moment(manifest["created"]),
        published_at=_written_at(directory / "manifest.json"),
        parent=manifest["parent"],
        seed=int(progress["trial_seed"]),
        threads=int(progress["threads"]),
        problems=tuple(problems),
    )


def _reference(directory: Path) -> Reference:
    facts = _read(directory / "reference.json")
    losses = {}
    for line in (directory / "metrics.jsonl").read_text().splitlines():
        one = json.loads(line)
        if one.get("group") == "training":
            losses[int(one["steps_completed"])] = float(one["metrics"]["loss"])
    return Reference(seed=int(facts["seed"]), threads=int(facts["threads"]), losses=losses)


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))


def _read_if_there(path: Path) -> dict[str, Any] | None:
    return _read(path) if path.exists() else None


def _written_at(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ----------------------------------------------------------------------------------------------------------- processes


def living_processes(root: Path, machine_ids: Sequence[str], *, master_may_live: bool) -> list[str]:
    """Processes with a machine's marker, or with the run's folder in command, working directory or environment.

    This process and its ancestors are excluded, and on request the master.
    """
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter():
        if process.pid in own:
            continue
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            command = process.cmdline()
            if master_may_live and command[1:3] == ["-m", "resolute_master"]:
                continue
            marked = process.environ().get(MARKER) in machine_ids
            if marked or any(str(root) in text for text in (*command, process.cwd())):
                found.append(f"{process.pid}: {' '.join(command)[:120]}")
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found
