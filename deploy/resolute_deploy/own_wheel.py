"""The wheel of the running version, so that the master's machine installs the version that runs here."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from urllib.parse import unquote, urlsplit

from resolute import DISTRIBUTION
from resolute.errors import InvalidInput
from resolute_master.agents.wheel import packed

MADE_BY_INSTALLATION = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json")


def own_wheel(directory: Path) -> Path:
    """Builds the wheel in `directory`: from the checkout if this runs from one, else from the installed files.

    Raises `InvalidInput` if neither is possible.
    """
    try:
        distribution = Distribution.from_name(DISTRIBUTION)
    except PackageNotFoundError:
        raise InvalidInput(
            f"{DISTRIBUTION} is not installed here as a package, so it has no wheel; give one with --wheel"
        ) from None
    directory.mkdir(parents=True, exist_ok=True)
    checkout = _checkout(distribution)
    return _built(checkout, directory) if checkout is not None else _packed(distribution, directory)


def _checkout(distribution: Distribution) -> Path | None:
    text = distribution.read_text("direct_url.json")
    told = json.loads(text) if text else {}
    if not told.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlsplit(told["url"]).path))


def _built(checkout: Path, directory: Path) -> Path:
    for old in directory.glob("*.whl"):
        old.unlink()
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(directory),
        str(checkout),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise InvalidInput(
            f"cannot build a wheel of {checkout}: {said[-1] if said else 'no message of pip'}; give one with --wheel"
        )
    return next(directory.glob("*.whl"))


def _packed(distribution: Distribution, directory: Path) -> Path:
    files: dict[str, bytes] = {}
    for each in distribution.files or ():
        name = each.as_posix()
        by_installation = ".dist-info/" in name and each.name in MADE_BY_INSTALLATION
        if not (name.startswith("..") or "__pycache__" in name or by_installation):
            files[name] = Path(str(each.locate())).read_bytes()
    information = next(name.partition("/")[0] for name in files if ".dist-info/" in name)
    wheel = directory / f"{information.removesuffix('.dist-info')}-py3-none-any.whl"
    wheel.write_bytes(packed(files, information))
    return wheel
