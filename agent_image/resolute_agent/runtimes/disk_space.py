"""Output that the master has stored takes no disk space any more, and keeps its offsets: a hole in the file. Linux only."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from pathlib import Path
from typing import Any

FREED_AT_ONCE_BYTES = 64 * 1024 * 1024
"""Stored output is kept on the machine up to this size: most tasks never write as much."""

BLOCK_BYTES = 64 * 1024
"""The last stored bytes are kept: the byte before a line shows whether the line is a continuation, and disks free whole blocks."""

_KEEP_SIZE, _PUNCH_HOLE = 0x01, 0x02
_NOT_HERE = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def free_stored(path: Path, *, freed: int, stored: int) -> int:
    """Free what is before `stored` when that is worth it; `freed` was freed before. Returns up to where it is free now.

    A file system that knows no holes keeps everything, as if there were nothing to free.
    """
    end = (stored - 1) // BLOCK_BYTES * BLOCK_BYTES
    if end - freed < FREED_AT_ONCE_BYTES:
        return freed
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        if _libc().fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, ctypes.c_int64(0), ctypes.c_int64(end)) != 0:
            number = ctypes.get_errno()
            if number not in _NOT_HERE:
                raise OSError(number, f"cannot free the beginning of {path}: {os.strerror(number)}")
    finally:
        os.close(descriptor)
    return end


@functools.cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)
