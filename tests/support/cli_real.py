"""The command line with the real API of a master in this process."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

from resolute_cli.invocation import Invocation
from resolute_cli.main import main
from resolute_cli.render import Renderer
from support.api import PASSWORD, World


class Shell:
    """Runs commands as the administrator, each in a thread, because the master runs in this process."""

    def __init__(self, world: World, home: Path, *, master: str = "") -> None:
        """`master` is the address of a proxy before the master, if there is one."""
        self.world = world
        self.environ = {
            "DET_MASTER": master or str(world.server.make_url("/")).rstrip("/"),
            "DET_USER": "root",
            "DET_PASS": PASSWORD,
            "DET_DEBUG_CONFIG_PATH": str(home / "config"),
            "HOME": str(home),
        }

    async def __call__(self, *words: str, code: int = 0, typed: str = "") -> str:
        """Its output, or its error output if another exit code is expected."""
        out, err = io.StringIO(), io.StringIO()
        invocation = Invocation(environ=self.environ, render=Renderer(out, err), stdin=io.StringIO(typed))
        ended = await asyncio.to_thread(main, words, invocation)
        assert ended == code, err.getvalue()
        return out.getvalue() if code == 0 else err.getvalue()

    async def json(self, *words: str) -> Any:
        return json.loads(await self(*words, "--json"))
