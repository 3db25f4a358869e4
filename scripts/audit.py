"""Compare the packages of the lock files with published vulnerabilities, by pip-audit.

    python scripts/audit.py

Exit status 0: none is known. 1: some are, listed. 3: not run, since no index here answers for vulnerabilities (a mirror
of files seldom does); this is asked with one package before the others.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FIRST = "requirements/uv.lock"
OTHERS = ("requirements/dev.lock", "requirements/compat.lock", "requirements/torch-gpu.lock")
FOUND, NOT_RUN = 1, 3
TIMEOUT_S = 600


class Advisory(NamedTuple):
    """One published vulnerability of one locked package."""

    package: str
    version: str
    name: str
    mended_in: tuple[str, ...]

    def __str__(self) -> str:
        mended = f"mended in {', '.join(self.mended_in)}" if self.mended_in else "no release mends it yet"
        return f"{self.package} {self.version}: {self.name}; {mended}"


def read_report(text: str) -> tuple[list[Advisory], int]:
    """What pip-audit's JSON says: advisories, and how many packages were looked up at all."""
    found, looked_up = [], 0
    for each in json.loads(text)["dependencies"]:
        if "skip_reason" in each:
            continue
        looked_up += 1
        found += [
            Advisory(each["name"], each["version"], one["id"], tuple(one.get("fix_versions", ())))
            for one in each["vulns"]
        ]
    return found, looked_up


def audit(*locks: str) -> tuple[list[Advisory], int]:
    """Raises `OSError` when pip-audit got no answer."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = [sys.executable, "-m", "pip_audit", "--require-hashes", "--disable-pip", "--progress-spinner", "off"]
        command += ["--format", "json", "--output", report.name, "--timeout", "20"]
        command += [part for lock in locks for part in ("-r", lock)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
        written = Path(report.name).read_text()
    if not written:
        raise OSError((done.stderr.strip().splitlines() or ["no answer"])[-1])
    return read_report(written)


def main() -> int:
    try:
        found, looked_up = audit(FIRST)
        if looked_up:
            more, further = audit(*OTHERS)
            found, looked_up = found + more, looked_up + further
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"pip-audit: not run: the index gave no answer ({error})")
        return NOT_RUN
    if not looked_up:
        print("pip-audit: not run: the package index here knows no vulnerabilities; run `make audit` where one does")
        return NOT_RUN
    for each in sorted(set(found)):
        print(f"pip-audit: {each}")
    print(f"pip-audit: {looked_up} packages looked up, {len(set(found))} vulnerabilities known")
    return FOUND if found else 0


if __name__ == "__main__":
    sys.exit(main())
