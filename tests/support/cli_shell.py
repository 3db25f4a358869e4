"""Runs the command line in this process: arguments in, output and exit code out."""

from __future__ import annotations

import io
from pathlib import Path

from resolute_cli.invocation import Invocation
from resolute_cli.main import main
from resolute_cli.render import Renderer
from support.cli_master import FakeMaster
from support.cli_messages import PASSWORD


class Shell:
    """Runs commands with private streams and variables."""

    def __init__(self, master: FakeMaster, directory: Path) -> None:
        self.master = master
        self.directory = directory
        self.environ = {
            "DET_MASTER": master.url,
            "DET_USER": "determined",
            "DET_PASS": PASSWORD,
            "DET_DEBUG_CONFIG_PATH": str(directory / "config"),
            "HOME": str(directory),
        }
        self.out = self.err = ""

    def __call__(self, *words: str, answers: str = "") -> int:
        out, err = io.StringIO(), io.StringIO()
        invocation = Invocation(environ=self.environ, render=Renderer(out, err), stdin=io.StringIO(answers))
        code = main(words, invocation)
        self.out, self.err = out.getvalue(), err.getvalue()
        return code

    def ok(self, *words: str) -> str:
        assert self(*words) == 0, self.err
        return self.out

    def header(self, *words: str) -> list[str]:
        """Titles of the first table."""
        lines = [line for line in self.ok(*words).splitlines() if "|" in line]
        return [title.strip() for title in lines[0].split("|")]
