"""What is advised exists: every `det ...` in messages, help and documents is a command with these flags."""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from resolute_cli.main import build_parser
from resolute_cli.named_files import missing_files, named_files
from resolute_cli.not_yet import INSTEAD, NOT_YET

ROOT = Path(__file__).parents[3]
PACKAGES = ("cli", "harness", "agent_image", "master", "provisioner", "demo", "campaign", "scripts")
DOCUMENTS = ("README.md", "docs/*.md", "examples/**/*.md", "deploy/**/*")
DESCRIBES_THE_RELEASED = ("docs/api-coverage.md", "docs/differences.md", "docs/adr")
"""They speak of commands of the released client, which has others."""

ADVICE = re.compile(
    r"(?<![\w./'-])det((?: -[mu] \S+)*)((?: [a-z][a-z-]*)+)((?: +(?:<[^>]*>|\[[^]]*\]|[^\s`'\"|;,()]+))*)"
)
FLAG = re.compile(r"(?<!\S)(-[a-zA-Z]|--[a-z][a-z_-]*)(?=[\s=]|$)")

PROSE = ("is", "and", "owns", "has", "of", "does", "as", "the", "in", "command", "it", "says", "for", "with", "this")
"""After `det` as a noun of a sentence."""


def texts() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.name != "not_yet.py":
                for line, text in _strings(path):
                    yield f"{path.relative_to(ROOT)}:{line}", text
    for pattern in DOCUMENTS:
        for path in sorted(ROOT.glob(pattern)):
            name = str(path.relative_to(ROOT))
            if path.is_file() and "__pycache__" not in path.parts and not name.startswith(DESCRIBES_THE_RELEASED):
                for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                    yield f"{name}:{number}", line


def _strings(path: Path) -> Iterator[tuple[int, str]]:
    """Whole texts; what is put into them stands as X."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)} - {
        id(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield (
                node.lineno,
                "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.lineno, node.value


def children(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= action.choices
    return found


def problem(text: str, root: argparse.ArgumentParser) -> str | None:
    """What is wrong with a command that a text advises."""
    found = ADVICE.match(text)
    assert found is not None
    words, parser = found.group(2).split(), root
    for place, word in enumerate(words):
        below = children(parser)
        if not below:
            break
        if word not in below:
            said = place > 0 and word in PROSE
            return None if said else f"`det {' '.join(words[: place + 1])}` does not exist"
        parser = below[word]
    put_in = re.match(r" *(X|\{[^}]*\})(?= )", found.group(3))
    if put_in is not None and children(parser):
        # A noun is put in, such as a cloud: one of the words that may stand there must fit.
        rest = found.group(3)[put_in.end() :]
        tried = [problem(f"det {' '.join(words)} {each}{rest}", root) for each in children(parser)]
        return None if None in tried else tried[0]
    flags = {flag for action in parser._actions for flag in action.option_strings}
    used = FLAG.findall(found.group(3))
    unknown = [flag for flag in used if flag not in flags | {"-m", "-u"}]
    return f"`det {' '.join(words)}` has no {', '.join(unknown)}" if unknown else None


def test_every_command_that_a_text_advises_exists() -> None:
    root, wrong, seen = build_parser(), list[str](), 0
    for where, text in texts():
        for found in ADVICE.finditer(text):
            if found.group(2).split()[0] in PROSE:
                continue
            seen += 1
            said = problem(text[found.start() :], root)
            if said is not None:
                wrong.append(f"{where}: {said}: {found.group(0)[:100]}")
    assert not wrong, "\n".join(wrong)
    assert seen > 150, "the walk finds what there is"


@pytest.mark.parametrize("text", ["det experiment resume 3", "det trial logs --colour 3", "det shell start"])
def test_the_walk_finds_what_does_not_exist(text: str) -> None:
    assert problem(text, build_parser()) is not None


def test_words_that_are_not_there_yet_are_told_from_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    root = build_parser()
    for program, words in NOT_YET.items():
        parser: argparse.ArgumentParser = root
        for word in program.split()[1:]:
            parser = children(parser)[word]
        assert not set(words) & set(children(parser)), f"{program}: what is there leaves the table"
        for word in words:
            with pytest.raises(SystemExit) as stop:
                root.parse_args([*program.split()[1:], word])
            told = capsys.readouterr().err
            assert stop.value.code == 2 and f"`{program} {word}` is not there yet" in told and "invalid" not in told
    assert set(INSTEAD) <= {f"{program} {word}" for program, words in NOT_YET.items() for word in words}
    with pytest.raises(SystemExit):
        root.parse_args(["experiment", "creat"])
    assert "invalid choice" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("entrypoint", "files"),
    [
        ("python3 train.py --epochs 3", ("train.py",)),
        (["python3", "./src/train.py"], ("src/train.py",)),
        ("torchrun train.py && bash after.sh", ("train.py", "after.sh")),
        ("python3 /opt/train.py $HOME/x.py", ()),
        ("python3 -m package", ()),
        ("model_def:MyTrial", ()),
        ("echo 'open", ()),
        (None, ()),
    ],
)
def test_files_that_an_entrypoint_names(entrypoint: object, files: tuple[str, ...]) -> None:
    assert named_files(entrypoint) == files


def test_files_that_are_not_sent_are_warned_of() -> None:
    config = {"entrypoint": "python3 train.py"}
    assert missing_files(config, {"train.py", "data.csv"}) is None
    nothing = missing_files(config, ())
    assert (
        nothing is not None
        and "no file is submitted; name the directory" in nothing
        and "--include train.py" in nothing
    )
    other = missing_files(config, {"main.py"})
    assert other is not None and "'train.py', which is not among the submitted files" in other


LOGGED_IN = "Invocation.api = lambda self: None;"
"""What is packed is packed after the login."""


@pytest.mark.parametrize(
    ("package", "command", "extra"),
    [
        ("yaml", ["experiment", "create", "const.yaml"], "resolute-ml[cli]"),
        ("httpx", ["experiment", "list"], "resolute-ml[cli]"),
        ("pathspec", ["experiment", "create", "const.yaml", "."], "resolute-ml[cli]"),
    ],
)
def test_one_sentence_names_the_extra_that_a_command_needs(
    tmp_path: Path, package: str, command: list[str], extra: str
) -> None:
    (tmp_path / "const.yaml").write_text("entrypoint: ls\n")
    (tmp_path / ".detignore").write_text("*.log\n")  # what pathspec is for
    program = (
        f"import sys; sys.modules[{package!r}] = None;"
        "from resolute_cli import main; from resolute_cli.invocation import Invocation;"
        f"{LOGGED_IN if package == 'pathspec' else ''} sys.exit(main.main({command!r}))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"it needs the package '{package}', which is not installed; run pip install '{extra}'." in done.stderr
    assert "Traceback" not in done.stderr
