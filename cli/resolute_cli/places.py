"""Deletion of workspaces and projects: ordered once, and followed to its end."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from resolute.errors import FailedPrecondition, NotFound
from resolute.wire.rest.enums import WorkspaceState
from resolute_cli.invocation import Invocation
from resolute_cli.render import confirmed

if TYPE_CHECKING:
    from resolute.wire.rest.workspaces import Project, Workspace

POLL_S = 1.0


def delete_place(
    cli: Invocation,
    args: argparse.Namespace,
    place: Workspace | Project,
    called: str,
    *,
    delete: Callable[[int], bool],
    read: Callable[[int], Workspace | Project],
    pause: Callable[[float], object] = time.sleep,
) -> None:
    """Until it is gone. Raises `FailedPrecondition` with the master's reason when the deletion fails."""
    question = f"Delete {called} with all of its experiments, their checkpoints and logs for good?"
    if not args.yes and not confirmed(question, cli.render, cli.stdin):
        cli.render.done("Nothing was deleted", id=place.id, deleted=False)
        return
    gone = delete(place.id)
    while not gone:
        try:
            now = read(place.id)
        except NotFound:
            break
        if now.state is WorkspaceState.DELETE_FAILED:
            raise FailedPrecondition(f"{called} is not deleted: {now.error_message}")
        pause(POLL_S)
    cli.render.done(f"Deleted {called}", id=place.id, deleted=True)


def yes_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
