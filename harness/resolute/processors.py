"""How many processors there are to share out."""

from __future__ import annotations

import os


def usable_processors() -> int:
    """Those that this process, and what it starts, may use: a container may be held to some of the machine's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
