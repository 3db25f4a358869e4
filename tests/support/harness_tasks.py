"""Starts launchers as an agent does, and ends all of them after a test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HARNESS = Path(__file__).resolve().parents[2] / "harness"
GENEROUS_S = 120.0


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: str
    err: str


class Tasks:
    """The task processes of one test, each in a session of its own."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[str]] = []

    def start(
        self, variables: Mapping[str, str], *command: str, module: str = "resolute.launch"
    ) -> subprocess.Popen[str]:
        arguments = [sys.executable, "-m", module, *(["--", *command] if command else [])]
        return self.start_command(variables, arguments)

    def start_command(self, variables: Mapping[str, str], arguments: Sequence[str]) -> subprocess.Popen[str]:
        task = subprocess.Popen(
            list(arguments),
            env={"PYTHONPATH": str(HARNESS), "OMP_NUM_THREADS": "1", **variables},
            cwd=variables.get("DET_RUN_DIR"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._running.append(task)
        return task

    def finish(self, task: subprocess.Popen[str], timeout_s: float = GENEROUS_S) -> Ended:
        out, err = task.communicate(timeout=timeout_s)
        code = task.returncode
        return Ended(code if code >= 0 else 128 - code, out, err)  # A signal, in the format of supervisors.

    def run(self, variables: Mapping[str, str], *command: str, module: str = "resolute.launch") -> Ended:
        return self.finish(self.start(variables, *command, module=module))

    def end_all(self) -> None:
        for task in self._running:
            try:
                os.killpg(task.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            task.communicate()
