"""JSON files in which a cloud on the master's machine stores its requests: each appears whole or not at all."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def read_json(path: Path) -> Record | None:
    """Content of a file; None if it does not exist."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None


def write_json(path: Path, record: Mapping[str, Any], *, private: bool = False, durable: bool = False) -> None:
    """Replace the file as a whole. `private` keeps other users from reading it; `durable` has it on the disk when this returns."""
    temporary = _write_beside(path, record, private=private, durable=durable)
    temporary.replace(path)
    if durable:
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def claim_json(path: Path, record: Mapping[str, Any]) -> bool:
    """Create the file atomically if it does not exist. True for exactly one of concurrent callers."""
    temporary = _write_beside(path, record, private=False)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _write_beside(path: Path, record: Mapping[str, Any], *, private: bool, durable: bool = False) -> Path:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    mode = 0o600 if private else 0o644
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(json.dumps(record, indent=2, sort_keys=True) + "\n")
        if durable:
            file.flush()
            os.fsync(file.fileno())
    return temporary


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Lock with which one process at a time decides about launches. It ends with its holder, also if that is killed."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def time_text(moment: datetime) -> str:
    return moment.isoformat()


def parse_time(text: object) -> datetime | None:
    return datetime.fromisoformat(str(text)) if text else None
