"""Runs the `det` command in a process with its own home directory."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from resolute_cli.invocation import Invocation
from resolute_cli.main import main
from resolute_cli.render import Renderer

NOTHING: Mapping[str, str] = {}


class Det:
    """`det(...)` runs a command that must exit with `code`, and returns its output."""

    def __init__(self, home: Path, master: str = "") -> None:
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DET_", "XDG_"))}
        self.environ = {**kept, "HOME": str(home), **({"DET_MASTER": master} if master else {})}

    def run(
        self, *arguments: str, variables: Mapping[str, str] = NOTHING, within_s: float = 120
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            env={**self.environ, **variables},
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=within_s,
        )

    def __call__(self, *arguments: str, code: int = 0, variables: Mapping[str, str] = NOTHING) -> str:
        ran = self.run(*arguments, variables=variables)
        assert ran.returncode == code, f"det {' '.join(arguments)}: {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    def text(self, *arguments: str) -> str:
        """Text output of a command, run in this process, because the start of a process takes longer than the command."""
        out, err = io.StringIO(), io.StringIO()
        invocation = Invocation(environ=self.environ, render=Renderer(out, err), stdin=io.StringIO())
        code = main(arguments, invocation)
        assert code == 0, f"det {' '.join(arguments)}: {code}\n{out.getvalue()}\n{err.getvalue()}"
        return out.getvalue()

    def json(self, *arguments: str) -> Any:
        """JSON output of a command, run in this process."""
        return json.loads(self.text(*arguments, "--json"))

    def refused(self, *arguments: str, code: int = 1, variables: Mapping[str, str] = NOTHING) -> str:
        """Error output of a command that exits with `code` and prints no result."""
        ran = self.run(*arguments, variables=variables)
        assert (ran.returncode, ran.stdout) == (code, ""), f"{ran.returncode}\n{ran.stdout}\n{ran.stderr}"
        assert "Traceback" not in ran.stderr
        return ran.stderr

    @contextmanager
    def in_background(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Runs an endless command, such as one that follows a log, and ends it with the context."""
        process = subprocess.Popen(
            self.command(*arguments),
            env=self.environ,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()

    @staticmethod
    def command(*arguments: str) -> list[str]:
        return [sys.executable, "-m", "resolute_cli.main", *arguments]
