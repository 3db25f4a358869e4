"""Directories of tests that other users of the machine may enter: pytest's own are closed to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def open_to_everybody(directory: Path) -> Iterator[None]:
    """Everybody may enter the directory and those above it, below `/tmp`."""
    changed: list[tuple[Path, int]] = []
    for each in (directory, *directory.parents):
        mode = each.stat().st_mode & 0o7777
        if mode & 0o011 != 0o011:
            changed.append((each, mode))
            each.chmod(mode | 0o055)
    try:
        yield
    finally:
        for each, mode in changed:
            if each.exists():
                each.chmod(mode)
