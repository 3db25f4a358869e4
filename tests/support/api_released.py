"""The released client: its own environment, a home of its own, its commands as a person types them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ENVIRONMENT = Path(__file__).resolve().parent.parent.parent / ".venv-compat"
PYTHON = ENVIRONMENT / "bin" / "python"


class ReleasedDet:
    """`det(...)` runs a command of the released client that must end with `code`, and gives what it printed."""

    def __init__(self, home: Path, master: str, user: str, password: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DET_", "XDG_", "PYTHON"))}
        self._home = home
        self._environ = {
            **kept,
            "HOME": str(home),
            "DET_MASTER": master,
            "DET_USER": user,
            "DET_PASS": password,
            "COLUMNS": "400",
            "PYTHONUNBUFFERED": "1",
        }

    def run(self, *arguments: str, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(ENVIRONMENT / "bin" / "det"), *arguments],
            env=self._environ,
            cwd=self._home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
        )

    def __call__(self, *arguments: str, code: int = 0) -> str:
        ran = self.run(*arguments)
        assert ran.returncode == code, f"det {' '.join(arguments)}: {ran.returncode}\n{ran.stdout}"
        return ran.stdout

    @contextmanager
    def in_background(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """For a command that goes on, such as one that follows a log. It is ended on the way out."""
        process = subprocess.Popen(
            [str(ENVIRONMENT / "bin" / "det"), *arguments],
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
