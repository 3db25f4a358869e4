"""Data of the order in the run directory, so that the launcher need not request it from the master.

The agent writes it before the task begins; a task that was started without it requests the same from the master.
"""

from __future__ import annotations

import json
from typing import Any

from resolute.task_info import RendezvousInfo, TaskInfo
from resolute.wire.agent_link import HandedFile

HANDED = "handed.json"


def read(info: TaskInfo) -> HandedFile:
    """The data of the order; empty for a task without any."""
    try:
        body: dict[str, Any] = json.loads((info.run_dir / HANDED).read_bytes())
    except FileNotFoundError:
        return HandedFile()
    return HandedFile(
        code=body["code"],
        container_addrs=tuple(body["container_addrs"]),
        container_slot_counts=tuple(body["container_slot_counts"]),
    )


def gang_of_one(handed: HandedFile) -> RendezvousInfo | None:
    """The answer of the rendezvous for a gang of one; None for a larger gang, or if it is unknown."""
    if len(handed.container_addrs) != 1:
        return None
    return RendezvousInfo(
        container_addrs=handed.container_addrs, container_rank=0, container_slot_counts=handed.container_slot_counts
    )
