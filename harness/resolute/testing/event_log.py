"""The events of a task, written to disk by the task before its next step, to check the records of the cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from resolute.clock import Clock
from resolute.core.values import rfc3339


class EventLog:
    """One JSON object a line: `event`, `at`, and the fields of `identity`. Each line is flushed to disk before `write` returns.

    `path` names a file, which several processes may share, or a directory (existing, or written with a trailing
    slash), which gets a file per allocation and rank.
    """

    def __init__(self, path: str, *, clock: Clock, identity: Mapping[str, Any]) -> None:
        target = Path(path)
        if path.endswith("/") or target.is_dir():
            target = target / f"{identity['allocation_id']}.rank-{identity['rank']}.jsonl"
        target.parent.mkdir(parents=True, exist_ok=True)
        # Opened for appending, one write a line: lines of several processes never mix.
        self._descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._clock = clock
        self._identity = dict(identity)

    def write(self, event: str, *, step: int, **fields: Any) -> None:
        line = {
            "event": event,
            **self._identity,
            "step": step,
            "pid": os.getpid(),
            "at": rfc3339(self._clock.now()),
            **fields,
        }
        os.write(self._descriptor, (json.dumps(line) + "\n").encode())
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


def read_event_log(path: Path) -> list[dict[str, Any]]:
    """The entries of a file, or of all in a directory. A last line cut short by a kill is left out."""
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    entries = []
    for file in files:
        lines = file.read_text().split("\n")
        entries += [json.loads(line) for line in lines[:-1] if line]  # a whole line ends with a newline
    return entries
