"""CI runs again what failed in a whole run: a test that fails for a reason fails the run, whatever else passes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "unstable_tests.py"

TESTS = """
from pathlib import Path
def test_passes(): pass
def test_fails(): assert False
def test_fails_later():
    there = Path("was-here").exists()
    Path("was-here").touch()
    assert not there
"""


@pytest.mark.parametrize(
    ("failed", "code"),
    [
        (["passes"], 0),
        (["fails"], 1),
        (["passes", "fails"], 1),
        (["fails_later"], 1),
        (["passes"] * 4, 1),
        ([], 1),
        (None, 1),
    ],
)
def test_only_what_passes_each_time_is_unstable(tmp_path: Path, failed: list[str] | None, code: int) -> None:
    (tmp_path / "test_a.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    if failed is not None:
        cache = tmp_path / ".pytest_cache/v/cache"
        cache.mkdir(parents=True)
        names = {f"test_a.py::test_{name}" + " " * place: True for place, name in enumerate(failed)}
        (cache / "lastfailed").write_text(json.dumps(names))
    done = subprocess.run([sys.executable, str(SCRIPT)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert ("Unstable" in done.stdout) is (code == 0)
