"""The bill of materials, and what is made of a report of vulnerabilities."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

from scripts.audit import Advisory, read_report

ROOT = Path(__file__).resolve().parents[2]


def sbom(*arguments: str, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/sbom.py", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )


def test_the_bill_of_the_wheel_names_the_wheel_and_every_locked_package(tmp_path: Path) -> None:
    done = sbom("--directory", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    bill = json.loads(Path(done.stdout.strip()).read_text())
    about = bill["metadata"]["component"]
    assert (bill["bomFormat"], about["name"]) == ("CycloneDX", "resolute-ml")
    assert about["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}]
    listed = {f"{each['name']}=={each['version']}" for each in bill["components"]}
    locked = {
        line.split()[0] for line in (ROOT / "requirements/master.lock").read_text().splitlines() if line[:1].isalpha()
    }
    assert listed == locked and len(locked) > 30
    assert all(each["externalReferences"][0]["hashes"] for each in bill["components"])


def test_the_bill_of_an_image_lists_what_its_python_has(tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text(
        '#!/bin/sh\nif [ "$1" = image ]; then echo sha256:0a1b; else printf "six==1.17.0\\ntorch==2.13.0+cpu\\n'
        'deb installed libc6 2.36-9+deb12u10 amd64\\ndeb config-files gone 1:2 all\\n"; fi\n'
    )
    docker.chmod(0o755)
    done = sbom("--directory", str(tmp_path), "--image", "team/train:1", path=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    bill = json.loads((tmp_path / "team_train_1.cdx.json").read_text())
    assert bill["metadata"]["component"]["name"] == "team/train:1"
    assert bill["metadata"]["component"]["version"] == "sha256:0a1b"
    assert [(each["name"], each["version"]) for each in bill["components"]] == [
        ("six", "1.17.0"),
        ("torch", "2.13.0+cpu"),
        ("libc6", "2.36-9+deb12u10"),
    ]
    assert bill["components"][2]["purl"] == "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64"


def test_an_image_that_cannot_be_read_is_an_error_with_words(tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho 'no such image' >&2\nexit 1\n")
    docker.chmod(0o755)
    done = sbom("--directory", str(tmp_path), "--image", "x", path=f"{tmp_path}:{os.environ['PATH']}")
    assert (done.returncode, done.stderr) == (1, "docker failed: no such image\n")
    assert not list(tmp_path.glob("*.json"))


def test_a_report_of_vulnerabilities_tells_what_was_not_looked_up() -> None:
    report = {
        "dependencies": [
            {"name": "six", "version": "1.17.0", "vulns": []},
            {"name": "idna", "skip_reason": "Dependency not found"},
            {"name": "jinja2", "version": "3.0", "vulns": [{"id": "CVE-2024-1", "fix_versions": ["3.1.6"]}]},
        ],
        "fixes": [],
    }
    found, looked_up = read_report(json.dumps(report))
    assert (found, looked_up) == ([Advisory("jinja2", "3.0", "CVE-2024-1", ("3.1.6",))], 2)
    assert str(found[0]) == "jinja2 3.0: CVE-2024-1; mended in 3.1.6"
