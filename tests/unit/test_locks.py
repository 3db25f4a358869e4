"""What is installed is listed with hashes, of one version everywhere, and this environment is what the list says."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from scripts.lock import EVERYTHING, LOCKS

ROOT = Path(__file__).resolve().parents[2]
WRITTEN_BY_HAND = "requirements/torch-cpu.lock"
FILES = (*(lock.file for lock in LOCKS), WRITTEN_BY_HAND)
PINNED = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>[^\\]+))? \\")


def entries(file: str) -> dict[str, set[tuple[str, str]]]:
    """Name -> {(version, marker)} of one lock, whose every line is a pinned package, a hash or a comment."""
    found: dict[str, set[tuple[str, str]]] = {}
    for line in (ROOT / file).read_text().splitlines():
        if line.startswith("#") or re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line):
            continue
        match = PINNED.fullmatch(line)
        assert match, f"{file}: {line!r} names no version with hashes"
        found.setdefault(canonicalize_name(match["name"]), set()).add(
            (match["version"], (match["marker"] or "").strip())
        )
    return found


def versions(file: str) -> dict[str, set[str]]:
    return {name: {version for version, _ in each} for name, each in entries(file).items()}


def wanted() -> list[Requirement]:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras) == set(EVERYTHING), "scripts/lock.py does not lock every extra"
    return [Requirement(text) for extra in extras.values() for text in extra]


@pytest.mark.parametrize("file", FILES)
def test_each_package_has_one_version_and_hashes(file: str) -> None:
    text = (ROOT / file).read_text()
    assert len(entries(file)) >= 1
    for block in re.split(r"\n(?=[A-Za-z])", text)[1:]:
        assert "--hash=sha256:" in block, block
    assert "://" not in text and "--index" not in text and "--find-links" not in text


def test_the_lock_of_development_has_what_the_project_asks_for() -> None:
    locked = versions("requirements/dev.lock")
    missing = [
        str(each)
        for each in wanted()
        if each.name != "torch"
        and not all(map(each.specifier.contains, locked.get(canonicalize_name(each.name), {"none"})))
    ]
    assert missing == [], "pyproject.toml has changed: `make lock KEEP=1`"


@pytest.mark.parametrize("lock", [lock for lock in LOCKS if lock.within], ids=lambda lock: lock.file)
def test_the_other_locks_repeat_its_versions(lock: object) -> None:
    file = lock.file  # type: ignore[attr-defined]
    whole = versions("requirements/dev.lock")
    apart = {name: each for name, each in versions(file).items() if name in whole and not each <= whole[name]}
    assert apart == {}


def test_both_builds_of_pytorch_are_of_one_version() -> None:
    asked = Requirement((ROOT / "requirements/torch.in").read_text().strip())
    (for_gpus,) = versions("requirements/torch-gpu.lock")["torch"]
    (for_cpus,) = versions(WRITTEN_BY_HAND)["torch"]
    assert str(asked.specifier) == f"=={for_gpus}"
    assert for_cpus == f"{for_gpus}+cpu"
    (range_,) = (each for each in wanted() if each.name == "torch")
    assert range_.specifier.contains(for_gpus)


def test_this_environment_is_what_the_lock_says() -> None:
    other = [
        f"{name}: {metadata.version(name)}, locked {version}"
        for name, each in entries("requirements/dev.lock").items()
        for version, marker in each
        if (not marker or Marker(marker).evaluate()) and metadata.version(name) != version
    ]
    assert other == [], "make the environment anew: `make lint` does"
