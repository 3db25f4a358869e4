"""What `make release` makes: it is whole, says its version once, and works where it is installed."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest
from scripts.release import ReleaseFailed, changes_of, compare_with_sdist, release

import resolute

VERSION = resolute.__version__


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("release")
    (directory / "of-another-release.whl").touch()
    release(directory)
    return directory


def test_a_release_is_whole_and_its_checksums_hold(made: Path) -> None:
    names = {
        f"resolute_ml-{VERSION}-py3-none-any.whl",
        f"resolute_ml-{VERSION}.tar.gz",
        f"resolute_ml-{VERSION}-py3-none-any.cdx.json",
        f"CHANGES-{VERSION}.md",
    }
    assert {path.name for path in made.iterdir()} == {*names, "SHA256SUMS"}
    sums = dict(reversed(line.split("  ")) for line in (made / "SHA256SUMS").read_text().splitlines())
    assert sums == {name: hashlib.sha256((made / name).read_bytes()).hexdigest() for name in names}
    about = json.loads((made / f"resolute_ml-{VERSION}-py3-none-any.cdx.json").read_text())["metadata"]["component"]
    assert (about["version"], about["hashes"][0]["content"]) == (
        VERSION,
        sums[f"resolute_ml-{VERSION}-py3-none-any.whl"],
    )


def test_an_installed_release_says_its_version_outside_of_the_checkout(made: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-index", "--no-deps"]
    subprocess.run([*install, str(made / f"resolute_ml-{VERSION}-py3-none-any.whl")], check=True)
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = subprocess.run([str(python), "-c", where], capture_output=True, text=True, check=True).stdout.strip()
    these = subprocess.run([sys.executable, "-c", where], capture_output=True, text=True, check=True).stdout
    # What it depends on, by a path alone: the editable installation of the checkout is not followed.
    (Path(packages) / "dependencies.pth").write_text(these)
    det = str(tmp_path / "env" / "bin" / "det")
    said = subprocess.run([det, "--version"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert said.split()[-1] == VERSION
    ask = "import importlib.metadata, resolute; print(importlib.metadata.version('resolute-ml'), resolute.__file__)"
    version, place = subprocess.run(
        [str(python), "-P", "-c", ask], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout.split()
    assert version == VERSION and Path(place).is_relative_to(tmp_path)


def test_a_file_that_the_sdist_lacks_fails_the_release(made: Path, tmp_path: Path) -> None:
    whole, less = made / f"resolute_ml-{VERSION}.tar.gz", tmp_path / "less.tar.gz"
    with tarfile.open(whole) as source, tarfile.open(less, "w:gz") as copy:
        for member in source:
            if not member.name.endswith("resolute_cli/local_plan.py"):
                copy.addfile(member, source.extractfile(member) if member.isfile() else None)
    with pytest.raises(ReleaseFailed, match=r"differ in resolute_cli/local_plan\.py"):
        compare_with_sdist(made / f"resolute_ml-{VERSION}-py3-none-any.whl", less)


def test_a_version_without_changes_is_no_release() -> None:
    text = "# Changes\n\n## 2.0.0\n\nNew.\n\n## 1.0.0 (2026-01-01)\n\nOld.\n\n## 0.9.0\n\n"
    assert (changes_of("2.0.0", text), changes_of("1.0.0", text)) == ("New.\n", "Old.\n")
    for version in ("0.9.0", "3.0.0"):
        with pytest.raises(ReleaseFailed, match=f"version {version} has no section"):
            changes_of(version, text)
