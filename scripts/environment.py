"""Make a virtual environment and install into it: with uv when it can be had, else with pip.

    python scripts/environment.py <directory> <requirement>... [--editable] [-r FILE]

Needs Python >= 3.11 and nothing else. uv does not read pip's configuration, so what pip has been told (extra indexes, find-links,
certificates) is passed on. PyTorch is installed first, as a CPU build where one can be had: a plain one brings gigabytes
of GPU libraries to a machine without a GPU.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST = (3, 11)
TORCH = ("torch==2.13.0", "torch>=2.4,<3")
"""Wanted first, and what will do."""
PIP_TO_UV = {
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "cert": "SSL_CERT_FILE",
}


def main() -> int:
    if sys.version_info < OLDEST:
        print(
            f"Resolute needs Python {OLDEST[0]}.{OLDEST[1]} or newer, this is {sys.version.split()[0]}", file=sys.stderr
        )
        return 1
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("requirements", nargs="*")
    parser.add_argument("-r", dest="files", action="append", default=[])
    parser.add_argument("--editable", action="store_true")
    options = parser.parse_args()
    python = make(options.directory)
    environ = uv_environment(python)
    if any("torch" in requirement for requirement in options.requirements):
        install_torch(python, environ)
    wanted = [part for name in options.requirements for part in (["-e", name] if options.editable else [name])]
    wanted += [part for name in options.files for part in ("-r", name)]
    return install(python, wanted, environ).returncode


def make(directory: Path) -> Path:
    """The environment's python; an existing environment is kept."""
    python = directory / "bin" / "python"
    if not python.exists():
        print(f"making {directory}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
    if not (directory / "bin" / "uv").exists() and not shutil.which("uv"):
        subprocess.run([str(python), "-m", "pip", "install", "-q", "uv"], check=False)
    return python


def uv_environment(python: Path) -> dict[str, str]:
    """Our environment with pip's settings in uv's words."""
    environ = dict(os.environ)
    for setting, variable in PIP_TO_UV.items():
        found = subprocess.run(
            [str(python), "-m", "pip", "config", "get", f"global.{setting}"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.strip() or os.environ.get(f"PIP_{setting.replace('-', '_').upper()}", "")
        if found:
            environ.setdefault(variable, " ".join(found.split()))
    # pip takes the best version of all indexes; uv by default looks no further than the first that knows the name.
    environ.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    return environ


def install_torch(python: Path, environ: dict[str, str]) -> None:
    """The wanted version from where pip looks, else a CPU build, else any."""
    if subprocess.run([str(python), "-c", "import torch"], capture_output=True, check=False).returncode == 0:
        return
    exact, loose = TORCH
    attempts = [[exact, "--only-binary", "torch", "--no-index"], [loose, "--torch-backend", "cpu"], [loose]]
    for attempt in attempts:
        offline = "--no-index" in attempt
        environ_ = (
            environ if not offline else {k: v for k, v in environ.items() if k not in ("UV_INDEX", "UV_DEFAULT_INDEX")}
        )
        wanted = [*attempt, "--no-deps"] if offline else attempt
        if install(python, wanted, environ_, quiet=offline).returncode == 0:
            return


def install(
    python: Path, wanted: list[str], environ: dict[str, str], *, quiet: bool = False
) -> subprocess.CompletedProcess[bytes]:
    uv = python.parent / "uv"
    command = [str(uv)] if uv.exists() else ([found] if (found := shutil.which("uv")) else [])
    if command:
        print("installing", *wanted, flush=True)
        done = subprocess.run(
            [*command, "pip", "install", "-q", "--python", str(python), *wanted],
            env=environ,
            check=False,
            stderr=subprocess.DEVNULL if quiet else None,
        )
        if done.returncode == 0 or quiet:
            return done
        print("uv could not install; trying pip", flush=True)
    plain = [part for part in wanted if part not in ("--torch-backend", "cpu")]
    return subprocess.run([str(python), "-m", "pip", "install", "-q", *plain], check=False)


if __name__ == "__main__":
    sys.exit(main())
