"""Write a software bill of materials (CycloneDX 1.6, JSON) of the wheel, or of the packages of an image.

    python scripts/sbom.py [--image NAME] [--directory dist]

The wheel's bill lists what its extras install, by requirements/master.lock, with hashes. An image's bill lists what the image's
`python3` finds installed, and the packages of a Debian below it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements" / "master.lock"


def main() -> int:
    parser = argparse.ArgumentParser(description="Write a software bill of materials.")
    parser.add_argument("--image", metavar="NAME", help="of the packages of this image (needs docker)")
    parser.add_argument("--directory", type=Path, default=ROOT / "dist", help="where to write (default: dist)")
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    try:
        written = (
            image_bill(options.image, options.directory) if options.image else wheel_bill(options.directory.resolve())
        )
    except subprocess.CalledProcessError as error:
        print(f"{error.cmd[0]} failed: {(error.stderr or error.stdout or '').strip()}", file=sys.stderr)
        return 1
    except FileNotFoundError as error:
        print(f"{error.filename} is not installed", file=sys.stderr)
        return 1
    print(written)
    return 0


def wheel_bill(directory: Path) -> Path:
    """Builds the wheel and writes its bill beside it."""
    output(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory))
    wheel = max(directory.glob("resolute_ml-*.whl"), key=lambda path: path.stat().st_mtime_ns)
    bill = json.loads(bill_of(str(LOCK), "--pyproject", str(ROOT / "pyproject.toml")))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    bill["metadata"]["component"]["version"] = wheel.name.split("-")[1]
    bill["metadata"]["component"]["hashes"] = [{"alg": "SHA-256", "content": digest}]
    return write(bill, directory / f"{wheel.name.removesuffix('.whl')}.cdx.json")


LISTING = """
import importlib.metadata, shutil, subprocess
for name, version in sorted({(d.metadata["Name"], d.version) for d in importlib.metadata.distributions()}):
    print(f"{name}=={version}")
if shutil.which("dpkg-query"):
    form = "deb ${db:Status-Status} ${Package} ${Version} ${Architecture}\\\\n"
    print(subprocess.run(["dpkg-query", "-W", "-f", form], capture_output=True, text=True, check=True).stdout)
"""
"""Run by the image's own interpreter, which may have no pip."""


def image_bill(image: str, directory: Path) -> Path:
    """Asks the image's `python3`, without network, and writes the bill of what is installed there."""
    identity = output("docker", "image", "inspect", "--format", "{{.Id}}", image).strip()
    run = ("docker", "run", "--rm", "--network", "none", "--entrypoint", "python3", image)
    lines = output(*run, "-c", LISTING).splitlines()
    bill = json.loads(bill_of("-", given="\n".join(line for line in lines if "==" in line.split(" ")[0]) + "\n"))
    bill["metadata"]["component"] = {"type": "container", "bom-ref": "image", "name": image, "version": identity}
    bill.setdefault("components", []).extend(
        debian_component(line) for line in lines if line.startswith("deb installed ")
    )
    return write(bill, directory / f"{re.sub(r'[^A-Za-z0-9._-]+', '_', image)}.cdx.json")


def debian_component(line: str) -> dict[str, str]:
    """From a line of the listing, `deb installed <name> <version> <architecture>`."""
    _, _, name, version, architecture = line.split(" ")
    purl = f"pkg:deb/debian/{quote(name)}@{quote(version, safe='')}?arch={architecture}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def bill_of(*arguments: str, given: str | None = None) -> str:
    command = (
        "-m",
        "cyclonedx_py",
        "requirements",
        "--no-validate",
        "--output-reproducible",
        "--spec-version",
        "1.6",
        *arguments,
    )
    return output(sys.executable, *command, given=given)


def write(bill: dict[str, Any], path: Path) -> Path:
    """Raises `ValueError` where the bill is not what the format says."""
    from cyclonedx.schema import SchemaVersion  # takes seconds
    from cyclonedx.validation.json import JsonStrictValidator

    text = json.dumps(bill, indent=2, sort_keys=True) + "\n"
    if wrong := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise ValueError(f"{path}: {wrong}")
    path.write_text(text)
    return path


def output(*command: str, given: str | None = None) -> str:
    """Its standard output. Raises `CalledProcessError`, and `FileNotFoundError` where there is no such program."""
    return subprocess.run(command, cwd=ROOT, input=given, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
