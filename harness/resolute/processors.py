"""The number of usable processors."""

from __future__ import annotations

import os


def usable_processors() -> int:
    """Processors that this process and its children may use. A container may be limited to some of the machine's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
