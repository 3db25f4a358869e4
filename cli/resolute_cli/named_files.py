"""Files that an entrypoint names: they must be among those that are sent."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath
from typing import Any

PROGRAMS = (".py", ".sh", ".bash", ".ipynb")


def named_files(entrypoint: Any) -> tuple[str, ...]:
    """Programs by relative paths, as `train.py` in `python3 train.py --epochs 3`."""
    if isinstance(entrypoint, str):
        try:
            words = shlex.split(entrypoint)
        except ValueError:  # an open quotation: the shell of the task will say so
            return ()
    elif isinstance(entrypoint, list):
        words = [word for word in entrypoint if isinstance(word, str)]
    else:
        return ()
    plain = [word for word in words if word.endswith(PROGRAMS) and not word.startswith(("/", "-", "$", "~"))]
    return tuple(dict.fromkeys(str(PurePosixPath(word)) for word in plain if not set(word) & set("*?{}$=;&|<>")))


def missing_files(config: Mapping[str, Any], sent: Collection[str]) -> str | None:
    """A warning where the entrypoint names files that are not sent, else None. `sent`: paths in the context."""
    missing = [name for name in named_files(config.get("entrypoint")) if name not in sent]
    if not missing:
        return None
    names = " and ".join(f"'{name}'" for name in missing)
    if not sent:
        return (
            f"the entrypoint names {names}, and no file is submitted; name the directory that contains it "
            f"(det experiment create CONFIG DIRECTORY), or send it with --include {missing[0]}"
        )
    return f"the entrypoint names {names}, which is not among the submitted files; check the directory and .detignore"
