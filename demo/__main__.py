"""`python -m demo [--keep]`, `python -m demo --stop FOLDER`."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from demo import cluster, run
from demo.folder import Folder
from resolute.errors import ResoluteError

FAILED, INTERRUPTED = 1, 130


def main(arguments: Sequence[str]) -> int:
    """Returns 0 if every claim holds, 1 if one does not or an error occurred, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m demo", description="An elastic cluster trains a real model here.")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running at the end")
    parser.add_argument(
        "--storage", choices=("directory", "s3"), default="directory", help="where checkpoints are kept"
    )
    parser.add_argument("--stop", type=Path, metavar="FOLDER", help="end a cluster that was kept")
    given = parser.parse_args(arguments)
    if given.keep and given.storage == "s3":
        parser.error("--keep: the S3 of --storage s3 ends with the demonstration; leave one of the two out")
    console = Console(width=None if sys.stdout.isatty() else 120)
    # SIGTERM and SIGHUP (a supervisor, a closed terminal) are handled like Ctrl-C: the cluster is ended first.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    if given.stop is not None:
        return _stop(Folder(given.stop.resolve()), console)
    folder = Folder(Path(tempfile.mkdtemp(prefix="resolute-demo-")).resolve())
    kept = False
    try:
        proven = run.run(folder, console, keep=given.keep, in_bucket=given.storage == "s3")
        kept = given.keep
        return 0 if proven else FAILED
    except KeyboardInterrupt:
        console.print("\nInterrupted: ending the cluster ...", highlight=False)
        return INTERRUPTED
    except ResoluteError as error:
        console.print(
            f"\nThe demonstration failed: {error}", style="red", highlight=False, markup=False, soft_wrap=True
        )
        return FAILED
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # A second Ctrl-C must not interrupt the end of the cluster.
        if not kept:
            _stop(folder, console, quiet=True)
        console.print(f"Everything it left is in {folder.root}", highlight=False, soft_wrap=True)


def _interrupt(number: int, _: object) -> None:
    raise KeyboardInterrupt


def _stop(folder: Folder, console: Console, *, quiet: bool = False) -> int:
    try:
        cluster.end(folder)
    except ResoluteError as error:
        console.print(f"The cluster could not be ended: {error}", style="red", highlight=False, markup=False)
        return FAILED
    if not quiet:
        console.print(f"The cluster in {shlex.quote(str(folder.root))} has ended; no process of it is left.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
