"""How each state looks: a word, an icon and a colour, the same on every page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Look:
    """`colour` is the name of a class of the style sheet; `moves` turns the icon."""

    word: str
    icon: str
    colour: str
    moves: bool = False


_LOOKS: Mapping[str, Look] = {
    "QUEUED": Look("Queued", "circle-dashed", "waiting"),
    "SCHEDULED": Look("Scheduled", "circle-play", "running"),
    "SCHEDULED_BACKFILLED": Look("Backfilled", "circle-play", "running"),
    "PULLING": Look("Pulling", "loader-circle", "starting", moves=True),
    "STARTING": Look("Starting", "loader-circle", "starting", moves=True),
    "RUNNING": Look("Running", "loader-circle", "running", moves=True),
    "ACTIVE": Look("Active", "loader-circle", "running", moves=True),
    "PAUSED": Look("Paused", "circle-pause", "quiet"),
    "STOPPING_COMPLETED": Look("Completing", "loader-circle", "done", moves=True),
    "STOPPING_CANCELED": Look("Canceling", "loader-circle", "quiet", moves=True),
    "STOPPING_KILLED": Look("Killing", "loader-circle", "quiet", moves=True),
    "STOPPING_ERROR": Look("Failing", "loader-circle", "failed", moves=True),
    "COMPLETED": Look("Completed", "circle-check", "done"),
    "CANCELED": Look("Canceled", "circle-slash", "quiet"),
    "ERROR": Look("Error", "circle-x", "failed"),
    "DELETING": Look("Deleting", "trash-2", "quiet"),
    "DELETE_FAILED": Look("Delete failed", "circle-x", "failed"),
    "DELETED": Look("Deleted", "trash-2", "quiet"),
    "PARTIALLY_DELETED": Look("Partly deleted", "trash-2", "quiet"),
    "WAITING": Look("Waiting", "hourglass", "waiting"),
    "TERMINATING": Look("Ending", "loader-circle", "quiet", moves=True),
    "TERMINATED": Look("Ended", "circle", "quiet"),
    "requested": Look("Requested", "cloud", "waiting"),
    "starting": Look("Booting", "loader-circle", "starting", moves=True),
    "running": Look("Running", "server", "running"),
    "busy": Look("Busy", "server", "running"),
    "idle": Look("Idle", "server", "quiet"),
    "draining": Look("Draining", "power-off", "waiting"),
    "stopping": Look("Stopping", "power-off", "quiet"),
    "refused": Look("Refused", "ban", "failed"),
    "gone": Look("Ended", "circle", "quiet"),
    "connected": Look("Connected", "plug", "done"),
    "disconnected": Look("Out of contact", "unplug", "failed"),
    "disabled": Look("Disabled", "ban", "quiet"),
    "ACTIVE_USER": Look("Active", "circle-check", "done"),
    "INACTIVE_USER": Look("Deactivated", "ban", "quiet"),
    "leaving": Look("Leaving", "triangle-alert", "waiting"),
}


def look_of(state: str) -> Look:
    """One that is not known is shown by its own name: a later version may have more."""
    known = _LOOKS.get(state.removeprefix("STATE_"))
    return known or Look(state.removeprefix("STATE_").replace("_", " ").capitalize() or "Unknown", "circle", "quiet")
