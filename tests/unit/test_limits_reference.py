"""docs/limits.md says what the constants say, and no limit of the API is without a test that names it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "limits_reference.py"
API = ROOT / "master" / "resolute_master" / "api" / "limits.py"

TIMES = {"BODY_FIRST_S", "BODY_BYTES_PER_S", "BODY_WAIT_S", "HEAD_S", "IDLE_S", "UNREAD_S", "SWEEP_S", "RETRY_AFTER_S"}
"""How long something may take is given to the parts as an argument, which tests make short."""


def constants() -> list[str]:
    body = ast.parse(API.read_text()).body
    return [n.targets[0].id for n in body if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)]


def test_the_page_is_current() -> None:
    run = [sys.executable, str(SCRIPT), "--check"]
    assert subprocess.run(run, check=False).returncode == 0, f"run: python {SCRIPT.relative_to(ROOT)}"


@pytest.mark.parametrize("name", constants())
def test_each_limit_of_the_api_is_in_the_page_and_is_tested(name: str) -> None:
    page = (ROOT / "docs" / "limits.md").read_text()
    assert f"| `{name}` |" in page or name == "SWEEP_S"
    if name not in TIMES:
        assert any(
            name in path.read_text() for path in (ROOT / "tests").rglob("*.py") if path.name != Path(__file__).name
        ), f"{name} is in no test"
