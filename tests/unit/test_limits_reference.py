"""docs/limits.md says what the constants say, and no row of it is without a test that is there and names its limit."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "limits_reference.py"
PAGE = ROOT / "docs" / "limits.md"
API = ROOT / "master" / "resolute_master" / "api" / "http" / "limits.py"

INSIDE = {"SWEEP_S", "TLS_SHUTDOWN_S"}
"""How often the master looks: nothing that a caller meets."""

GIVEN = {
    "ADVICE_S": "limit_s=0.05",
    "DECISIONS": "decisions=20",
    "LEAST_GROWTH": "least_growth=1000",
    "ASKED_AFTER": "asked_after=0",
    "RETRY_AFTER_S": "Retry-After",
    "UNAVAILABLE_RETRY_S": "Retry-After",
}
"""What their tests say instead of the name: half a gigabyte is not filled for a test, and a header has a name of its own."""


CASES_OF = {"unit/engine/test_garbage.py": "support/garbage_cases.py"}
"""Tests that run the cases of another file in separate processes."""


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("limits_reference", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HELD_BY: dict[str, dict[str, tuple[str, ...]]] = script().HELD_BY
ROWS = re.findall(r"^\| `(\w+)` \|.*\| `([\w/.]+)` \|$", PAGE.read_text(), re.MULTILINE)


def test_the_page_is_current() -> None:
    run = [sys.executable, str(SCRIPT), "--check"]
    assert subprocess.run(run, check=False).returncode == 0, f"run: python {SCRIPT.relative_to(ROOT)}"


def test_every_limit_of_the_api_has_a_row() -> None:
    body = ast.parse(API.read_text()).body
    constants = {n.targets[0].id for n in body if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)}
    assert constants - INSIDE <= {name for name, _ in ROWS}


def test_every_row_of_every_table_is_read() -> None:
    tables = re.findall(r"<!-- limits: \w+ -->\n(.*?)<!-- end -->", PAGE.read_text(), re.DOTALL)
    assert sum(len(table.splitlines()) - 2 for table in tables) == len(ROWS) > 60
    held = [limit for tests in HELD_BY.values() for limits in tests.values() for limit in limits]
    assert sorted(held) == sorted(name for name, _ in ROWS), "each limit has one test, and each test a limit"


@cache
def parts(file: str) -> tuple[dict[str, str], str]:
    """The tests of a file with their decorators, by name; and what else is in it that they use: tables and helpers."""
    tests: dict[str, str] = {}
    others: list[str] = []
    for node in ast.parse((ROOT / "tests" / file).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            tests[node.name] = ast.unparse(node)
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            others.append(ast.unparse(node))
    if file in CASES_OF:
        others.append((ROOT / "tests" / CASES_OF[file]).read_text())
    return tests, "\n".join(others)


@pytest.mark.parametrize(("name", "file"), ROWS)
def test_each_row_has_a_test_that_is_there_and_meets_its_limit(name: str, file: str) -> None:
    (held_by,) = [test for test, limits in HELD_BY[file].items() if name in limits]
    tests, others = parts(file)
    assert held_by in tests, f"{file} has no test {held_by}"
    said = re.compile(rf"\b{re.escape(GIVEN.get(name, name))}\b")
    assert said.search(tests[held_by]) or said.search(others), f"{file}: {held_by} does not meet {name}"
