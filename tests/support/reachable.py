"""Test directories that other users of the machine may enter, unlike those of pytest."""

from __future__ import annotations

from pathlib import Path


def open_to_everybody(directory: Path) -> None:
    """Allows all users to enter the directory and its parents below `/tmp`.

    They stay open: the tests of other processes are below the same directories.
    """
    for each in (directory, *directory.parents):
        mode = each.stat().st_mode & 0o7777
        if mode & 0o011 != 0o011:
            each.chmod(mode | 0o055)
