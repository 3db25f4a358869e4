"""Take the browser libraries, fonts and icons of the web interface from their npm packages, and write what was taken.

`python scripts/vendor_web_assets.py` downloads each package at the version below with `npm pack`, copies the files that are used
and the licence, and writes a `manifest.json` with the SHA-256 of each. A test compares the files with it. Nothing is built.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SERVED = ROOT / "master" / "resolute_web" / "vendor"
TESTED_WITH = ROOT / "tests" / "web" / "vendor"
"""What no cluster serves: the checker of accessibility, which tests put into pages."""

ICONS = [
    "archive",
    "archive-restore",
    "arrow-down",
    "arrow-up",
    "ban",
    "chart-line",
    "chevron-left",
    "chevron-right",
    "circle",
    "circle-alert",
    "circle-check",
    "circle-dashed",
    "circle-dollar-sign",
    "circle-pause",
    "circle-play",
    "circle-slash",
    "circle-x",
    "cloud",
    "columns-3",
    "download",
    "file",
    "file-code",
    "flask-conical",
    "folder",
    "git-fork",
    "hourglass",
    "house",
    "info",
    "key",
    "layers",
    "list-ordered",
    "loader-circle",
    "lock",
    "log-out",
    "menu",
    "monitor",
    "moon",
    "octagon-x",
    "pause",
    "play",
    "plug",
    "plus",
    "power",
    "power-off",
    "search",
    "server",
    "settings",
    "square",
    "sun",
    "tag",
    "trash-2",
    "triangle-alert",
    "unplug",
    "upload",
    "user",
    "x",
    "zap",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """What is taken of one package: name in the package to name here."""

    name: str
    version: str
    licence: str
    folder: str
    files: dict[str, str]
    licence_file: str = "LICENSE"
    root: Path = SERVED


PACKAGES = (
    Package(
        name="htmx.org",
        version="4.0.1",
        licence="0BSD",
        folder="htmx",
        files={"dist/htmx.min.js": "htmx.min.js", "dist/ext/hx-sse.min.js": "hx-sse.min.js"},
    ),
    Package(
        name="uplot",
        version="1.6.32",
        licence="MIT",
        folder="uplot",
        files={"dist/uPlot.iife.min.js": "uplot.min.js", "dist/uPlot.min.css": "uplot.min.css"},
    ),
    Package(
        name="@fontsource-variable/inter",
        version="5.3.0",
        licence="OFL-1.1",
        folder="inter",
        files={"files/inter-latin-wght-normal.woff2": "inter.woff2"},
    ),
    Package(
        name="@fontsource-variable/jetbrains-mono",
        version="5.3.0",
        licence="OFL-1.1",
        folder="jetbrains-mono",
        files={"files/jetbrains-mono-latin-wght-normal.woff2": "jetbrains-mono.woff2"},
    ),
    Package(
        name="lucide-static",
        version="1.62.0",
        licence="ISC",
        folder="lucide",
        files={f"icons/{icon}.svg": f"{icon}.svg" for icon in ICONS},
    ),
    Package(
        name="axe-core",
        version="4.14.1",
        licence="MPL-2.0",
        folder="axe",
        files={"axe.min.js": "axe.min.js"},
        root=TESTED_WITH,
    ),
)


def main() -> None:
    for root in (SERVED, TESTED_WITH):
        rows = [row for package in PACKAGES if package.root == root for row in _take(package)]
        text = json.dumps({"files": rows}, indent=1) + "\n"
        (root / "manifest.json").write_text(text, encoding="utf-8")


def _take(package: Package) -> list[dict[str, str]]:
    target = package.root / package.folder
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", f"{package.name}@{package.version}", "--silent"]
        archive = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.split()[-1]
        with tarfile.open(Path(folder) / archive) as packed:
            wanted = {**package.files, package.licence_file: "LICENSE"}
            return [_copy(packed, package, source, target / name) for source, name in wanted.items()]


def _copy(packed: tarfile.TarFile, package: Package, source: str, target: Path) -> dict[str, str]:
    member = packed.extractfile(f"package/{source}")
    if member is None:
        raise SystemExit(f"{package.name} {package.version} has no file {source}")
    content = member.read()
    target.write_bytes(content)
    return {
        "file": target.relative_to(package.root).as_posix(),
        "package": f"{package.name}@{package.version}",
        "path": source,
        "licence": package.licence,
        "sha256": hashlib.sha256(content).hexdigest(),
    }


if __name__ == "__main__":
    main()
