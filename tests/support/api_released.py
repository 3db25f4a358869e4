"""The released client with its own environment and home directory; runs its commands."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

ENVIRONMENT = Path(__file__).resolve().parent.parent.parent / ".venv-compat"
PYTHON = ENVIRONMENT / "bin" / "python"
COMPAT = Path(__file__).resolve().parent.parent / "compat"
RECORDER = COMPAT / "recorder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """One response that the released client decoded: of an operation, or of a request without the bindings."""

    by: str
    operation: str = ""
    method: str = ""
    path: str = ""


def accepted(evidence: Path) -> set[Accepted]:
    """The recorder's distinct records up to now."""
    lines = evidence.read_text().splitlines() if evidence.exists() else []
    return {Accepted(**json.loads(line)) for line in lines}


class ReleasedDet:
    """`det(...)` runs a command of the released client that must exit with `code`, and returns its output.

    With `evidence`, decoded responses are recorded in that file. `more` contains further variables.
    """

    def __init__(
        self,
        home: Path,
        master: str,
        user: str,
        password: str,
        *,
        evidence: Path | None = None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DET_", "XDG_", "PYTHON"))}
        recording = {"PYTHONPATH": str(RECORDER), "RECORD_ACCEPTED": str(evidence)} if evidence is not None else {}
        self._home = home
        self._environ = {
            **kept,
            **recording,
            "HOME": str(home),
            "DET_MASTER": master,
            "DET_USER": user,
            "DET_PASS": password,
            "COLUMNS": "400",
            "PYTHONUNBUFFERED": "1",
            **(more or {}),
        }

    def run(self, *arguments: str, typed: str = "", timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        """`typed` is the input for its prompts."""
        return self._run(self.command(*arguments), typed, timeout_s)

    @staticmethod
    def command(*arguments: str) -> list[str]:
        return [str(ENVIRONMENT / "bin" / "det"), *arguments]

    def script(self, file: Path, *arguments: str, timeout_s: float = 120.0) -> str:
        """Output of a program that uses the released package; it must exit with 0."""
        ran = self._run([str(PYTHON), str(file), *arguments], "", timeout_s)
        assert ran.returncode == 0, f"{file.name} {' '.join(arguments)}: {ran.returncode}\n{ran.stdout}"
        return ran.stdout

    def _run(self, command: list[str], typed: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=self._environ,
            cwd=self._home,
            input=typed,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            # Without a terminal, passwords are read from the standard input.
            start_new_session=True,
        )

    def __call__(self, *arguments: str, code: int = 0, typed: str = "") -> str:
        ran = self.run(*arguments, typed=typed)
        assert ran.returncode == code, f"det {' '.join(arguments)}: {ran.returncode}\n{ran.stdout}"
        return ran.stdout

    @contextmanager
    def in_background(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Runs an endless command, such as one that follows a log, and ends it with the context."""
        process = subprocess.Popen(
            self.command(*arguments),
            env=self._environ,
            cwd=self._home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            process.communicate(timeout=20)


class ForkedDet(ReleasedDet):
    """The same commands with the same variables, each in a fork of a process that has imported the client (`released_det.py`)."""

    @contextmanager
    def ready(self) -> Iterator[Self]:
        """Runs that process during the context."""
        command = [str(PYTHON), str(COMPAT / "released_det.py")]
        with subprocess.Popen(
            command, env=self._environ, cwd=self._home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as self._process:
            yield self  # It ends at the end of its input.

    def run(self, *arguments: str, typed: str = "", timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        given, printed = self._home / ".typed", self._home / ".printed"
        given.write_text(typed)
        asked = {"arguments": arguments, "typed": str(given), "printed": str(printed), "seconds": math.ceil(timeout_s)}
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        if code == -signal.SIGALRM:
            raise subprocess.TimeoutExpired(self.command(*arguments), timeout_s, printed.read_text())
        return subprocess.CompletedProcess(self.command(*arguments), code, printed.read_text())


def created(printed: str) -> str:
    """The id in the output of `experiment create`."""
    line = next(line for line in printed.splitlines() if line.startswith("Created experiment "))
    return line.removeprefix("Created experiment ").strip()
