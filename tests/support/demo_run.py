"""The folder of a small demonstration: twelve steps, a notice after the fourth, a loss after the ninth."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

START = datetime(2031, 5, 1, 12, 0, 0, tzinfo=UTC)
STEPS = 12
PERIOD = 6
PRICE = 3.6
RUNS = (range(1, 5), range(5, 10), range(7, STEPS + 1))
"""The steps that each run reported: it is killed at 9 and has saved at 6."""
SAVES = (("cccc-4", 1, 4, 12.0), ("cccc-6", 2, 6, 30.0), ("cccc-12", 3, 12, 60.0))
"""Checkpoint, run, step, and when, in seconds from the start."""
MACHINES = (("m-1", 0.0, 15.0), ("m-2", 16.0, 35.0), ("m-3", 40.0, 70.0))
NOTICE_AT, DEADLINE = 11.0, 21.0


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def loss(step: int) -> float:
    return 1.0 / (step + 2)


def a_demo_run(root: Path) -> Path:
    """Writes it, and returns the root."""
    _write(root / "observed" / "final.json", observed())
    pool = root / "pools" / "default"
    _write(pool / "cloud.json", {"launch_requests": 4, "machines": 3})
    for id_, begin, end in MACHINES:
        home = pool / "instances" / id_
        _write(home / "instance.json", {"instance_id": id_, "slots": 1})
        _write(home / "started.json", {"paid_from": at(begin).isoformat()})
        how = {"m-1": "by order, 10 s after notice", "m-2": "by order, without notice", "m-3": "terminated"}[id_]
        _write(home / "gone.json", {"at": at(end).isoformat(), "reason": how})
    notice = pool / "instances" / "m-1" / "notice.json"
    _write(notice, {"kind": "interruption", "deadline": at(DEADLINE).isoformat()}, written=NOTICE_AT)
    parent = None
    for uuid, run, step, when in SAVES:
        _write_checkpoint(root / "checkpoints" / uuid, uuid, run, step, when, parent)
        parent = uuid
    reference = root / "reference"
    _write(reference / "reference.json", {"seed": 7, "steps": STEPS, "threads": 1})
    lines = [{"group": "training", "steps_completed": s, "metrics": {"loss": loss(s)}} for s in range(1, STEPS + 1)]
    (reference / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*lines, {"progress": 1.0}]))
    return root


def _write(path: Path, content: Mapping[str, Any], *, written: float | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    if written is not None:
        moment = at(written).timestamp()
        os.utime(path, (moment, moment))


def _write_checkpoint(home: Path, uuid: str, run: int, step: int, when: float, parent: str | None) -> None:
    progress = json.dumps({"steps_completed": step, "trial_seed": 7, "threads": 1}).encode()
    home.mkdir(parents=True)
    (home / "trainer.json").write_bytes(progress)
    files = {"trainer.json": {"size": len(progress), "sha256": hashlib.sha256(progress).hexdigest()}}
    manifest = {"uuid": uuid, "steps_completed": step, "trial_run_id": run, "parent": parent, "files": files}
    _write(home / "manifest.json", {**manifest, "created": at(when - 0.1).isoformat()}, written=when)


def observed() -> dict[str, Any]:
    """What the API said."""
    return {
        "experiment": {"state": "STATE_COMPLETED", "config": {"min_checkpoint_period": {"batches": PERIOD}}},
        "trial": {"totalBatchesProcessed": STEPS},
        "allocations": _allocations(),
        "checkpoints": [{"uuid": uuid, "state": "STATE_COMPLETED"} for uuid, *_ in SAVES],
        "training": [
            {
                "trialRunId": run,
                "totalBatches": step,
                "archived": run == 2 and step > 6,
                "metrics": {"avg_metrics": {"loss": loss(step)}},
            }
            for run, steps in enumerate(RUNS, start=1)
            for step in steps
        ],
        "validation": [
            {"trialRunId": 3, "totalBatches": STEPS, "metrics": {"validation_metrics": {"accuracy": 0.95}}},
        ],
        "trial_log": ["starting", "resumed at step 4", "resumed at step 6"],
        "instances": [_instance("m-0", -5.0, "refused"), *(_instance(id_, b, "gone") for id_, b, _ in MACHINES)],
        "decisions": [
            {"kind": "launch", "subject": "m-0", "reason": "one waiting task"},
            {"kind": "refused", "subject": "m-0", "reason": "no_capacity: scripted"},
        ],
        "ledger": _ledger(),
    }


def _instance(id_: str, asked: float, state: str) -> dict[str, Any]:
    return {"id": id_, "state": state, "requestedAt": at(asked).isoformat()}


def _allocations() -> list[dict[str, Any]]:
    notice = {"kind": "interruption", "deadline": at(DEADLINE).isoformat()}
    starts = (0, 4, 6)
    found: list[dict[str, Any]] = [
        {"allocationId": f"1.t.{run}", "runId": run, "instanceIds": [f"m-{run}"], "stepsAtStart": start}
        for run, start in enumerate(starts, start=1)
    ]
    found[0]["notice"] = notice
    return found


def _row(paid: float, lost: float) -> dict[str, Any]:
    parts = {"useful": paid - 6.0 - lost, "starting": 4.0, "checkpointing": 1.0, "lost": lost, "idle": 1.0}
    price = PRICE / 3600
    return {
        **{f"{name}S": value for name, value in parts.items()},
        "paidS": paid,
        "cost": paid * price,
        "costs": {name: value * price for name, value in parts.items()},
    }


def _ledger() -> dict[str, Any]:
    rows: list[dict[str, Any]] = [
        {"instanceId": id_, "slots": 1, "pricePerHour": PRICE, "row": _row(end - begin, 2.0 if id_ == "m-2" else 0.0)}
        for id_, begin, end in MACHINES
    ]
    names = ("usefulS", "startingS", "checkpointingS", "lostS", "idleS", "paidS", "cost")
    totals: dict[str, Any] = {name: sum(one["row"][name] for one in rows) for name in names}
    totals["costs"] = {"lost": 2.0 * PRICE / 3600}
    totals["stepsLost"] = 3
    return {
        "instances": rows,
        "totals": totals,
        "interruptions": [
            {"allocationId": "1.t.1", "noticed": True, "stepsLost": 0},
            {"allocationId": "1.t.2", "noticed": False, "stepsLost": 3},
        ],
    }
