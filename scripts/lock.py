"""Write the lock files: every package that development, continuous integration, images and new machines install, with its hashes.

    python scripts/lock.py [--upgrade | --upgrade-package NAME]...

Needs uv. Without an option, versions stay as long as they satisfy pyproject.toml. Releases younger than `SETTLED` are left out:
most packages that an attacker has taken over are noticed within days. The machine's settings of other indexes are not
looked at, and no address enters a file: a lock installs from any index that has the same files.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SETTLED = "7 days"
OLDEST_PYTHON = "3.11"
OTHER_INDEXES = ("UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_INDEX_STRATEGY", "UV_CONSTRAINT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """One file and what it is made of. `extras` are those of pyproject.toml."""

    file: str
    inputs: tuple[str, ...]
    extras: tuple[str, ...] = ()
    within: str = ""
    """A lock whose versions this one repeats."""
    torch: bool = False
    """Whether PyTorch itself is listed. It is installed before the others, from wherever a small build can be had."""


BUILD = ("requirements/build.in", "requirements/uv.in")
DEVELOPMENT = "requirements/dev.lock"
EVERYTHING = (
    "agent",
    "audit",
    "aws",
    "azure",
    "bench",
    "cli",
    "deploy",
    "docker",
    "gcp",
    "master",
    "optuna",
    "otel",
    "test",
    "torch",
)
LOCKS = (
    Lock(file=DEVELOPMENT, inputs=("pyproject.toml", *BUILD), extras=EVERYTHING),
    Lock(
        file="requirements/demo.lock",
        inputs=("pyproject.toml", *BUILD),
        extras=("agent", "cli", "master", "torch"),
        within=DEVELOPMENT,
    ),
    Lock(
        file="requirements/master.lock",
        inputs=("pyproject.toml",),
        extras=("agent", "aws", "azure", "cli", "docker", "gcp", "master", "otel"),
        within=DEVELOPMENT,
    ),
    Lock(
        file="agent_image/resolute_agent/requirements.lock",
        inputs=("pyproject.toml",),
        extras=("agent", "docker"),
        within=DEVELOPMENT,
    ),
    Lock(file="requirements/uv.lock", inputs=("requirements/uv.in",), within=DEVELOPMENT),
    Lock(
        file="requirements/torch-gpu.lock",
        inputs=("requirements/torch.in",),
        within=DEVELOPMENT,
        torch=True,
    ),
    Lock(file="requirements/compat.lock", inputs=("tests/compat/requirements.txt",)),
)


def command_of(lock: Lock, uv: str, options: argparse.Namespace) -> list[str]:
    """The resolution of one file, as uv is asked for it."""
    command = [uv, "pip", "compile", "--quiet", *lock.inputs, "--output-file", lock.file, "--generate-hashes"]
    command += ["--universal", "--python-version", OLDEST_PYTHON, "--exclude-newer", SETTLED]
    command += ["--no-annotate", "--custom-compile-command", "make lock"]
    command += [part for extra in lock.extras for part in ("--extra", extra)]
    command += ["--constraints", lock.within] if lock.within else []
    if lock.torch:
        command += ["--no-config"]
    else:
        command += ["--config-file", "requirements/uv.toml", "--no-emit-package", "torch"]
        command += ["--constraints", "requirements/torch.in"]
    command += ["--upgrade"] if options.upgrade and not lock.within else []
    return command + [part for name in options.upgrade_package for part in ("--upgrade-package", name)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the lock files.")
    parser.add_argument("--upgrade", action="store_true", help="take the newest releases that pyproject.toml allows")
    parser.add_argument("--upgrade-package", action="append", default=[], metavar="NAME", help="of this package only")
    options = parser.parse_args()
    beside = Path(sys.executable).parent / "uv"
    uv = str(beside) if beside.exists() else shutil.which("uv")
    if uv is None:
        print("scripts/lock.py needs uv; run `make lock`, which installs it", file=sys.stderr)
        return 1
    environ = {name: value for name, value in os.environ.items() if name not in OTHER_INDEXES}
    for lock in LOCKS:
        print("locking", lock.file, flush=True)
        done = subprocess.run(command_of(lock, uv, options), cwd=ROOT, env=environ, check=False)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
