"""`python -m resolute_agent.runtimes.docker_check <unix:///socket> <image>`: whether tasks can run here in that image.

Pulls the image where the engine has none, with its progress on standard error. Exit code 0, or 1 with what is wrong and
what to do about it on standard output.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

from resolute.errors import ResoluteError


async def check(host: str, image: str) -> None:
    """Raises `ResoluteError` saying what is missing."""
    from resolute_agent.runtimes.docker_engine import Engine

    engine = await asyncio.to_thread(Engine, host)
    try:
        if await engine.image(image) is None:
            print(f"pulling {image}", file=sys.stderr, flush=True)
            await engine.pull(image, None, progress=_show)
    finally:
        await engine.close()


def _show(line: str) -> None:
    """The progress of a pull for users: each layer once, when it is complete."""
    if "complete" in line.lower():
        print(f"  {line}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m resolute_agent.runtimes.docker_check")
    parser.add_argument("host", help="the engine's socket, unix:///path")
    parser.add_argument("image")
    options = parser.parse_args(arguments)
    try:
        asyncio.run(check(options.host, options.image))
    except ImportError as error:
        print(f"the package {error.name!r} is not installed; run pip install 'resolute-ml[cli,master,agent,docker]'")
        return 1
    except ResoluteError as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
