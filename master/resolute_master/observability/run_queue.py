"""How long a thread has waited for a processor.

Linux counts it for each thread: from the moment that there was something to do for it until a processor took it. It is what a
machine that is too busy costs, and nothing that the program computes is in it.
"""

from __future__ import annotations

import os
import threading
from types import TracebackType

_NANOSECONDS = 1e-9


class RunQueue:
    """The wait of the thread that makes this, in seconds since the thread began; always 0.0 if the system does not count it.

    Source: the second number of `/proc/<pid>/task/<tid>/schedstat` (Linux, Documentation/scheduler/sched-stats.rst).
    """

    def __init__(self) -> None:
        self._file = -1
        try:
            self._file = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            pass  # another system, or one that counts nothing

    def __enter__(self) -> RunQueue:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def waited_s(self) -> float:
        """Up to now. Costs a few microseconds."""
        if self._file < 0:
            return 0.0
        return int(os.pread(self._file, 80, 0).split()[1]) * _NANOSECONDS
