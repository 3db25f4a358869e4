"""Make a release of the stated version: wheel, sdist, checksums, bill of materials and the section of the changelog.

    python -m scripts.release [--directory dist/release]

The version is stated in `harness/resolute/__init__.py` and nowhere else. A changelog without a section for it is an error.
The wheel is built from the sdist too, and both must hold the same files. SHA256SUMS is in the form that `sha256sum -c` reads.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from scripts.sbom import wheel_bill

from resolute import __version__

ROOT = Path(__file__).resolve().parents[1]
CHANGES = "CHANGELOG.md"


class ReleaseFailed(Exception):
    """What is missing or differs, and what to do."""


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make a release of the stated version.")
    parser.add_argument("--directory", type=Path, default=ROOT / "dist" / "release", help="where to write")
    options = parser.parse_args(given)
    try:
        for made in release(options.directory.resolve()):
            print(made)
    except (ReleaseFailed, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"{' '.join(map(str, error.cmd[:5]))} failed: {error.stderr or error.stdout}", file=sys.stderr)
        return 1
    return 0


def release(directory: Path) -> list[Path]:
    """Everything that is published, in a directory that holds nothing else. Raises `ReleaseFailed`."""
    notes = changes_of(__version__, (ROOT / CHANGES).read_text())
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    bill = wheel_bill(directory)
    built("sdist", ROOT, directory)
    (wheel,), (sdist,) = directory.glob("*.whl"), directory.glob("*.tar.gz")
    for each in (wheel, sdist):
        if not re.fullmatch(rf"resolute_ml-{re.escape(__version__)}(-py3-none-any\.whl|\.tar\.gz)", each.name):
            raise ReleaseFailed(
                f"{each.name} is not of version {__version__}, which harness/resolute/__init__.py states"
            )
    compare_with_sdist(wheel, sdist)
    changes = directory / f"CHANGES-{__version__}.md"
    changes.write_text(notes)
    published = sorted([wheel, sdist, bill, changes])
    sums = directory / "SHA256SUMS"
    sums.write_text("".join(f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in published))
    for left in set(directory.iterdir()) - {*published, sums}:
        left.unlink()
    return [*published, sums]


def changes_of(version: str, text: str) -> str:
    """The section of a version. Raises `ReleaseFailed` where there is none, or an empty one."""
    found = re.search(rf"^## {re.escape(version)}[^\n]*\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None or not found.group(1).strip():
        raise ReleaseFailed(
            f"{CHANGES}: version {version} has no section; write `## {version}` and what changed below it"
        )
    return found.group(1).strip() + "\n"


def compare_with_sdist(wheel: Path, sdist: Path) -> None:
    """A wheel from the sdist has what the wheel has: otherwise a file is missing from the sdist."""
    with tempfile.TemporaryDirectory(prefix="resolute-release-") as place:
        with tarfile.open(sdist) as packed:
            # Python has filters from 3.11.4 on.
            packed.extraction_filter = tarfile.data_filter if hasattr(tarfile, "data_filter") else None
            packed.extractall(place)
        (source,) = Path(place).iterdir()
        built("wheel", source, Path(place) / "again")
        (again,) = (Path(place) / "again").glob("*.whl")
        ours, theirs = contents(wheel), contents(again)
    differing = sorted({name for name, _ in ours ^ theirs})
    if differing:
        raise ReleaseFailed(
            f"wheel and sdist differ in {', '.join(differing[:5])}; see tool.hatch.build in pyproject.toml"
        )


def contents(wheel: Path) -> set[tuple[str, int]]:
    """Name and checksum of each file but the list of them."""
    with zipfile.ZipFile(wheel) as packed:
        return {(each.filename, each.CRC) for each in packed.infolist() if not each.filename.endswith("/RECORD")}


def built(kind: str, source: Path, directory: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(directory)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, text=True)


if __name__ == "__main__":
    sys.exit(main())
