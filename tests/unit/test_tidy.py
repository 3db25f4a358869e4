"""The repository keeps its own rules: sizes, types, words, and what may stand in it."""

from __future__ import annotations

import ast
import gc
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PACKAGES = (
    "master/resolute_master",
    "master/resolute_sim",
    "master/resolute_web",
    "provisioner/resolute_provisioner",
    "agent_image/resolute_agent",
    "harness/resolute",
    "cli/resolute_cli",
    "deploy/resolute_deploy",
)
CODE = (*PACKAGES, "examples", "demo", "tests", "benchmarks", "campaign", "hostile", "showcase")

LONGEST_FUNCTION = 60
LONGEST_FILE = 600

TABLES = ("master/resolute_master/store/sql/migrations/versions/",)
"""A migration is one list of tables, never edited after its release: its length is no complexity."""

TEXT_SUFFIXES = {".py", ".md", ".toml", ".yaml", ".yml", ".sh", ".cfg", ".txt", ".ini", ""}


@cache
def listed() -> tuple[Path, ...]:
    """Every file that is, or would be, under version control."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return tuple(path for name in sorted(found) if (path := ROOT / name).is_file())


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def tree_of(text: str) -> ast.Module:
    return ast.parse(text)


@pytest.fixture(scope="module", autouse=True)
def kept_trees() -> Iterator[None]:
    """Trees stay until the last rule has read them. Collections of garbage would visit them again and again, and take six times as
    long as the parser."""
    gc.disable()
    yield
    tree_of.cache_clear()
    gc.enable()


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def python_files(*below: str) -> Iterator[tuple[str, str]]:
    """(name, text) of the Python files below some directories."""
    for path in listed():
        name = name_of(path)
        if path.suffix == ".py" and name.startswith(tuple(f"{directory}/" for directory in below)):
            yield name, text_of(path)


def text_files() -> Iterator[tuple[str, str]]:
    for path in listed():
        if path.suffix in TEXT_SUFFIXES and path != Path(__file__).resolve():
            yield name_of(path), text_of(path)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_the_rules_look_at_something() -> None:
    """A rule that sees no file forbids nothing."""
    assert all(any(True for _ in python_files(package)) for package in PACKAGES)
    assert len(list(python_files(*CODE))) > 300 and len(list(text_files())) > 300


# ---------------------------------------------------------------------------------------------------------------- size


def test_functions_are_short() -> None:
    long = [
        f"{name}:{function.lineno} {function.name}: {length} lines"
        for name, text in python_files(*CODE)
        if not name.startswith(TABLES)
        for function in functions(tree_of(text))
        if (length := (function.end_lineno or 0) - function.lineno + 1) > LONGEST_FUNCTION
    ]
    assert long == []


def test_files_are_short() -> None:
    long = [
        f"{name}: {length} lines"
        for name, text in python_files(*CODE)
        if (length := len(text.splitlines())) > LONGEST_FILE
    ]
    assert long == []


# -------------------------------------------------------------------------------------------------------------- copies


def test_the_master_and_its_simulator_copy_entities_in_one_way() -> None:
    """`dataclasses.replace` fails on an entity, which is a struct, and no type checker knows that."""
    other = [
        name
        for name, text in python_files("master")
        if not name.endswith("domain/copies.py")
        for node in ast.walk(tree_of(text))
        if isinstance(node, ast.ImportFrom) and node.module == "dataclasses"
        if any(alias.name == "replace" for alias in node.names)
    ]
    assert other == []


# ------------------------------------------------------------------------------------------------------------ packages


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_say_that_they_are_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def test_packages_say_what_they_know() -> None:
    silent = [
        name
        for name, text in python_files(*PACKAGES)
        if name.endswith("/__init__.py") and not (ast.get_docstring(tree_of(text)) or "").strip()
    ]
    assert silent == []


def test_modules_say_what_they_are() -> None:
    silent = [name for name, text in python_files(*CODE) if text.strip() and ast.get_docstring(tree_of(text)) is None]
    assert silent == []


def test_directories_of_code_are_packages() -> None:
    """Without `__init__.py` a directory would be left out of checks that walk packages."""
    directories = {Path(name).parent for name, _ in python_files(*PACKAGES)}
    assert [str(each) for each in sorted(directories) if not (ROOT / each / "__init__.py").is_file()] == []


def test_tests_are_no_packages() -> None:
    assert [name for name, _ in python_files("tests") if name.endswith("/__init__.py")] == []


# --------------------------------------------------------------------------------------------------------------- words

UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
NOT_RUN = re.compile(r"pytest\.(skip|xfail|importorskip)\b|mark\.(skip|skipif|xfail)\b")
MACHINE_PATHS = re.compile(r"(?<![\w.])/(root|home/[a-z]+)/")


def test_nothing_is_left_for_later() -> None:
    left = [
        f"{name}:{number}: {line.strip()}"
        for name, text in text_files()
        for number, line in enumerate(text.splitlines(), 1)
        if UNFINISHED.search(line)
    ]
    assert left == []


def test_no_test_is_left_out_but_by_the_marker_that_tells() -> None:
    """`needs` lists what did not run and fails where all must; conftest.py owns it."""
    left_out = [
        f"{name}: {match[0]}"
        for name, text in python_files("tests")
        if name not in ("tests/conftest.py", "tests/unit/test_tidy.py")
        for match in NOT_RUN.finditer(text)
    ]
    assert left_out == []


def test_nothing_names_a_place_of_one_machine() -> None:
    named = [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in text_files()
        for number, line in enumerate(text.splitlines(), 1)
        if MACHINE_PATHS.search(line)
    ]
    assert named == []


def test_nobody_patches_time_or_chance() -> None:
    """What a test wants to patch is a parameter that is missing."""
    patching = re.compile(r"unittest\.mock|freezegun|monkeypatch\.setattr\(\s*[\"']?(time|datetime|random|uuid|os)\b")
    found = [f"{name}: {match[0]}" for name, text in python_files("tests") for match in patching.finditer(text)]
    assert [each for each in found if not each.startswith("tests/unit/test_tidy.py")] == []


# ----------------------------------------------------------------------------------------------------------- documents


def test_documents_have_one_title_and_it_comes_first() -> None:
    wrong = []
    for path in listed():
        if path.suffix == ".md":
            text = re.sub(r"(?ms)^(```|~~~).*?^\1", "", text_of(path))
            titles = [line for line in text.splitlines() if line.startswith("# ")]
            first = next((line for line in text.splitlines() if line.strip()), "")
            if len(titles) != 1 or first != titles[0]:
                wrong.append(f"{name_of(path)}: {titles}")
    assert wrong == []


def test_links_between_documents_lead_somewhere() -> None:
    link = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
    broken = [
        f"{name_of(path)}: {target}"
        for path in listed()
        if path.suffix == ".md"
        for target in link.findall(text_of(path))
        if not (path.parent / target).exists()
    ]
    assert broken == []
