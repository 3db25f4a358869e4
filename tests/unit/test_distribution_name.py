"""What is installed is called `resolute-ml`: on the public index, `resolute` is the project of somebody else."""

from __future__ import annotations

import re
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

from resolute import DISTRIBUTION, __version__

ROOT = Path(__file__).resolve().parents[2]

TAKEN = (
    re.compile(
        r"\b(?:pip|pipx|uv|tool) install\b[^\n]{0,60}?(?<![\w./-])resolute(?![\w./-])(?= *$|[ \[='\"`<>~!,;)])"
    ),  # pip install resolute
    re.compile(r"(?<![\w./-])resolute\[\w"),  # resolute[agent]
    re.compile(r"(?<![\w./-])resolute\s*(==|>=|~=)\s*\d"),  # resolute==1.0
    re.compile(
        r"(?<![\w./-])resolute-(\d|\{version\})[^\s]*\.(whl|tar\.gz|dist-info)"
    ),  # resolute-1.0-py3-none-any.whl
    re.compile(
        r"(?:version|distribution|metadata|requires|files)\([\"']resolute[\"']\)"
    ),  # metadata.version("resolute")
)


def offences(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if any(pattern.search(line) for pattern in TAKEN)]


def test_no_text_sends_anybody_to_the_package_of_a_stranger() -> None:
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    found, looked = [], 0
    for name in names:
        path = ROOT / name
        if not path.is_file() or path == Path(__file__).resolve():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        looked += 1
        found += [f"{name}: {line[:120]}" for line in offences(text)]
    assert looked > 500
    assert found == []


def test_the_rule_knows_each_way_to_name_it() -> None:
    for line in (
        "pip install resolute",
        "python -m pip install -U 'resolute'",
        "uv pip install resolute --upgrade",
        "run pip install 'resolute[aws]'",
        "resolute[agent,docker]",
        "resolute>=0.1",
        'version("resolute")',
        "WHEEL=resolute-1.0-py3-none-any.whl",
    ):
        assert offences(line), line
    for line in (
        "pip install resolute-ml",
        "pip install 'resolute-ml[aws]'",
        "import resolute",
        "install /opt/resolute/x",
    ):
        assert not offences(line), line


def test_the_distribution_has_the_name_that_the_code_looks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (project["name"], project["dynamic"]) == (DISTRIBUTION, ["version"]), "harness/resolute states the version"
    assert metadata.version(DISTRIBUTION) == __version__, "the environment is older than the name: make it anew"
