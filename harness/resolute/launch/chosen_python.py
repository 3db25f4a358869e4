"""The Python of a task, if it is not the launcher's own: found, checked, and put first on `PATH`.

`environment.python` of a configuration arrives as the contract's variable `DET_PYTHON_EXECUTABLE`. It holds the path of a virtual
environment or of an interpreter; a relative one starts at the working directory. A name without a slash is no choice: it means
what `PATH` has anyway.
"""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from resolute.errors import InvalidInput
from resolute.task_info import TaskInfo
from resolute.wire.agent_link import PYTHON_VARIABLE, named_python

logger = logging.getLogger(__name__)

NEEDED = (3, 11)
"""Oldest version of Python on which the package `resolute` runs."""

CHECK_S = 60.0
"""An interpreter on a network file system may take seconds to start."""

_LOOK = (
    "import os, sys, sysconfig; packages = sysconfig.get_paths()['purelib']; "
    "print(*sys.version_info[:2], int(not os.path.exists(packages) or os.access(packages, os.R_OK | os.X_OK)), packages)"
)
_NAMES = ("bin/python3", "bin/python")


def interpreter_of(value: str, workdir: Path) -> Path | None:
    """The interpreter at that path; None when there is none (yet).

    Raises `InvalidInput` for one that the task's user may not look at.
    """
    place = workdir / value
    try:
        if place.is_dir():
            return next((place / name for name in _NAMES if (place / name).is_file()), None)
        return place if place.is_file() else None
    except PermissionError as error:
        raise _unreadable(value, str(error)) from None


def for_hooks(environ: Mapping[str, str], info: TaskInfo) -> dict[str, str]:
    """The variables of the startup hooks, as in `for_entrypoint`. The hooks may create the environment."""
    value = named_python(environ)
    python = interpreter_of(value, info.workdir) if value else None
    return dict(environ) if python is None else _with(environ, python, info)


def for_entrypoint(environ: Mapping[str, str], info: TaskInfo) -> tuple[dict[str, str], str]:
    """The variables of the entrypoint, and its interpreter: the launcher's own unless the task names another.

    Raises `InvalidInput` when the one that is named is not there or does not run for this user.
    """
    value = named_python(environ)
    if not value:
        return dict(environ), sys.executable
    python = interpreter_of(value, info.workdir)
    if python is None:
        raise InvalidInput(
            f"environment.python: {value} has no Python interpreter that this task can see; name a virtual environment "
            f"(with {' or '.join(_NAMES)} in it) or an interpreter, by its path on the machine or relative to the model code"
        )
    chosen = _with(environ, python, info)
    _check(value, python, chosen)
    return chosen, str(python)


def _with(environ: Mapping[str, str], python: Path, info: TaskInfo) -> dict[str, str]:
    """The variables under which `python3` and the programs beside it are those of the chosen environment."""
    first = [str(python.parent)]
    if not _is_python3_there(python):
        first.insert(0, str(_named_python3(python, info.run_dir / "bin")))
    rest = [path for path in environ.get("PATH", "").split(os.pathsep) if path and path not in first]
    chosen = {**environ, PYTHON_VARIABLE: str(python), "PATH": os.pathsep.join([*first, *rest])}
    chosen.pop("VIRTUAL_ENV", None)
    if (python.parent.parent / "pyvenv.cfg").is_file():
        chosen["VIRTUAL_ENV"] = str(python.parent.parent)
    return chosen


def _is_python3_there(python: Path) -> bool:
    beside = python.parent / "python3"
    return beside.exists() and beside.samefile(python)


def _named_python3(python: Path, directory: Path) -> Path:
    """Programs named `python3` and `python` that are an interpreter of another name, such as `python3.12` beside the system's."""
    directory.mkdir(exist_ok=True)
    for name in ("python3", "python"):
        (directory / name).write_text(f'#!/bin/sh\nexec {shlex.quote(str(python))} "$@"\n')
        (directory / name).chmod(0o755)
    return directory


def _check(value: str, python: Path, environ: Mapping[str, str]) -> None:
    """Run the interpreter once. Without `PYTHON*` variables, so that the answer concerns the interpreter itself."""
    try:
        ran = subprocess.run(
            [str(python), "-I", "-c", _LOOK],
            env=dict(environ),
            capture_output=True,
            text=True,
            timeout=CHECK_S,
            check=False,
        )
    except PermissionError as error:
        raise _unreadable(value, str(error)) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InvalidInput(f"environment.python: {python} does not run on this machine: {error}") from None
    words = ran.stdout.split(maxsplit=3)
    if ran.returncode != 0 or len(words) != 4 or not all(word.isdigit() for word in words[:3]):
        said = (ran.stderr or ran.stdout).strip().splitlines()
        why = said[-1] if said else f"it ended with code {ran.returncode}"
        raise InvalidInput(f"environment.python: {python} does not run as a Python interpreter: {why}")
    major, minor, readable, packages = int(words[0]), int(words[1]), words[2] == "1", words[3].strip()
    if not readable:
        raise _unreadable(value, f"its packages in {packages} cannot be read")
    logger.info("the entrypoint runs with Python %d.%d of %s", major, minor, python)
    if (major, minor) < NEEDED:
        logger.warning(
            "Python %d.%d of environment.python cannot import resolute, which needs %d.%d or newer",
            major,
            minor,
            *NEEDED,
        )


def _unreadable(value: str, why: str) -> InvalidInput:
    return InvalidInput(
        f"environment.python: {value} cannot be used by the user of this task (uid {os.getuid()}): {why}; let every user "
        f"read it (chmod -R o+rX {value}, and o+x on the directories above it), or link an agent user that may "
        "(det user link-with-agent-user)"
    )
