"""Make a virtual environment of what a lock file lists: with uv when it can be had, else with pip.

    python scripts/environment.py <directory> <lock> [--torch] [--editable]

Needs Python >= 3.11 and nothing else. Every package is compared with the hashes of its lock. uv does not read pip's
configuration, so pip's own settings (extra indexes, find-links, certificates) are passed on. PyTorch is installed first, as
a CPU build where one can be had: a plain one brings gigabytes of GPU libraries to a machine without a GPU.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST = (3, 11)
REQUIREMENTS = Path(__file__).resolve().parents[1] / "requirements"
TORCH_BESIDE_INDEXES = REQUIREMENTS / "torch-cpu.lock"
TORCH_OF_INDEX = REQUIREMENTS / "torch-gpu.lock"
"""With the libraries for GPUs that the build of the index for Linux needs."""
PIP_TO_UV = {
    "find-links": "UV_FIND_LINKS",
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "cert": "SSL_CERT_FILE",
}
FORMER_NAME = "resolute"
"""Former name of the distribution. An environment made for it has an editable installation of the same files, with the same
programs."""


def main() -> int:
    if sys.version_info < OLDEST:
        print(
            f"Resolute needs Python {OLDEST[0]}.{OLDEST[1]} or newer, this is {sys.version.split()[0]}", file=sys.stderr
        )
        return 1
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("lock")
    parser.add_argument("--torch", action="store_true", help="with PyTorch, of requirements/torch-*.lock")
    parser.add_argument("--editable", action="store_true", help="with the distribution of this checkout")
    options = parser.parse_args()
    python = make(options.directory)
    environ = uv_environment(python)
    if options.torch and (failed := install_torch(python, environ)):
        return failed
    if failed := install(python, ["--require-hashes", "-r", options.lock], environ).returncode:
        return failed
    if not options.editable:
        return 0
    subprocess.run([str(python), "-m", "pip", "uninstall", "-q", "-y", FORMER_NAME], check=False, capture_output=True)
    # What builds it is in the lock as well.
    return install(python, ["--no-deps", "--no-build-isolation", "-e", "."], environ).returncode


def make(directory: Path) -> Path:
    """The environment's python; an existing environment is kept."""
    python = directory / "bin" / "python"
    if not python.exists():
        print(f"making {directory}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
    if not (directory / "bin" / "uv").exists() and not shutil.which("uv"):
        locked = ["--require-hashes", "-r", str(REQUIREMENTS / "uv.lock")]
        subprocess.run([str(python), "-m", "pip", "install", "-q", *locked], check=False)
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
    environ.setdefault("UV_COMPILE_BYTECODE", "1")  # as pip does; else the first start of each program compiles
    return environ


def install_torch(python: Path, environ: dict[str, str]) -> int:
    """The locked build from where pip looks beside indexes, else a CPU build of PyTorch's own index, else the index's build.

    Only the second is not compared with hashes, since no index that `make lock` asks lists them: continuous integration
    (`CI` is set) does without it.
    """
    if subprocess.run([str(python), "-c", "import torch"], capture_output=True, check=False).returncode == 0:
        return 0
    offline = ["--require-hashes", "--no-deps", "--no-index", "-r", str(TORCH_BESIDE_INDEXES)]
    if install(python, offline, without(environ, "UV_INDEX", "UV_DEFAULT_INDEX"), quiet=True).returncode == 0:
        return 0
    if not environ.get("CI"):
        pinned = (REQUIREMENTS / "torch.in").read_text().strip()
        if install(python, [pinned, "--torch-backend", "cpu"], environ, quiet=True).returncode == 0:
            return 0
    of_index = ["--require-hashes", "-r", str(TORCH_OF_INDEX)]
    return install(python, of_index, without(environ, "UV_FIND_LINKS")).returncode


def without(environ: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in names}


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
