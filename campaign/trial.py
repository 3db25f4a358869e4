"""The scripted trial with points in its checkpoints and at its start. It prints each line of its event log before it writes the
line.

Runs inside of a task from its uploaded context, as `python3 -m campaign.trial`; the hyperparameters are those of
`resolute.testing.scripted_trial`, and `orders`, the directory of the orders.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from campaign.points import Points
from resolute import core
from resolute.clock import SystemClock
from resolute.errors import ResoluteError
from resolute.storage.base import CheckpointStorage, OpenCheckpoint, Selector
from resolute.testing.event_log import EventLog
from resolute.testing.script import parse_script
from resolute.testing.scripted_trial import Preempted, ScriptedTrial

SAID = "event"
"""First word of a printed entry: `event <run> <event> <step>`."""


class PointedStorage:
    """A storage with points in the lifecycle of a checkpoint."""

    def __init__(self, inner: CheckpointStorage, points: Points) -> None:
        self._inner = inner
        self._points = points

    @property
    def place(self) -> str:
        return self._inner.place

    @property
    def direct(self) -> bool:
        return self._inner.direct

    def check_writable(self) -> None:
        self._inner.check_writable()

    def stage(self, uuid: str, part: str) -> Path:
        return self._inner.stage(uuid, part)

    def put(self, uuid: str, part: str, names: Iterable[str]) -> None:
        self._points.reached("checkpoint.staged")
        self._inner.put(uuid, part, names)
        self._points.reached("checkpoint.put")

    def commit(self, uuid: str, manifest: bytes) -> None:
        self._points.reached("checkpoint.written")
        self._inner.commit(uuid, manifest)
        self._points.reached("checkpoint.published")

    def abort(self, uuid: str) -> None:
        self._inner.abort(uuid)

    def manifest(self, uuid: str) -> bytes:
        return self._inner.manifest(uuid)

    @contextmanager
    def restore(self, uuid: str, *, wanted: Selector | None = None, without_manifest: bool = False) -> Iterator[Path]:
        with self._inner.restore(uuid, wanted=wanted, without_manifest=without_manifest) as path:
            yield path

    def open(self, uuid: str) -> OpenCheckpoint:
        return self._inner.open(uuid)

    def remove_files(self, uuid: str, matches: Selector) -> dict[str, int]:
        return self._inner.remove_files(uuid, matches)

    def remove_below(self, path: str) -> None:
        self._inner.remove_below(path)

    def delete(self, uuid: str) -> None:
        self._inner.delete(uuid)

    def list(self) -> tuple[str, ...]:
        return self._inner.list()

    def unreported(self) -> tuple[str, ...]:
        return self._inner.unreported()

    def reported(self, uuid: str) -> None:
        self._points.reached("checkpoint.told")
        self._inner.reported(uuid)

    def sweep(self, older_than: datetime) -> tuple[str, ...]:
        return self._inner.sweep(older_than)


class PointedTrial(ScriptedTrial):
    """Prints an entry before it writes it, so that every entry of the event log was printed."""

    def __init__(self, context: core.Context, event_log: EventLog, points: Points, hparams: dict[str, Any]) -> None:
        super().__init__(context, parse_script(hparams["script"]), event_log, "loss")
        self._points = points

    def _note(self, event: str, **fields: Any) -> None:
        if event == "save":
            self._points.reached("checkpoint.acknowledged")
        print(f"{SAID} {self._run_id} {event} {self._position.step}", flush=True)
        super()._note(event, **fields)


def main() -> int:
    clock = SystemClock()
    info = core.get_cluster_info()
    assert info is not None and info.trial is not None
    hparams = info.trial.hparams
    points = Points(Path(hparams["orders"]))
    points.reached("task.begun")
    storage = core.task_storage(info, info.trial.config["checkpoint_storage"])
    try:
        with core.init(checkpoint_storage=PointedStorage(storage, points), clock=clock) as context:
            points.reached("task.joined")
            identity = {
                "allocation_id": info.allocation_id,
                "trial_id": info.trial.trial_id,
                "trial_run_id": info.trial.trial_run_id,
                "rank": 0,
            }
            event_log = EventLog(hparams["event_log"], clock=clock, identity=identity)
            PointedTrial(context, event_log, points, dict(hparams)).run(info.latest_checkpoint)
    except Preempted:
        return 0
    except ResoluteError as error:
        print(f"ERROR: campaign.trial: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
