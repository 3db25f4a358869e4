"""The released client of the contract and ours, side by side: the same upload, the same flags, one file of logins."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from resolute.client.context import pack
from resolute.client.token_cache import TokenCache
from resolute.wire.codec import to_wire

pytestmark = pytest.mark.needs("determined")

PYTHON = Path(__file__).resolve().parents[3] / ".venv-compat" / "bin" / "python"


def in_released_client(program: str, *arguments: str, environ: dict[str, str] | None = None) -> Any:
    """What a program in the released client's environment wrote as JSON to its last line."""
    done = subprocess.run(
        [str(PYTHON), "-c", program, *arguments], capture_output=True, text=True, check=True, env=environ
    )
    return json.loads(done.stdout.splitlines()[-1])


PACK = """
import json, pathlib, sys
from determined.common import context
files = context.read_v1_context(pathlib.Path(sys.argv[1]), [pathlib.Path(path) for path in sys.argv[2:]])
print(); print(json.dumps([file.to_json(True) for file in files]))
"""


def make_tree(root: Path) -> None:
    names = (
        "train.py",
        "sub/b.py",
        "sub/deep/c.txt",
        ".git/config",
        "__pycache__/x",
        "shared_fs/x",
        "drop.bin",
        "keep.bin",
    )
    for name in (
        *names,
        "ignored/x",
        "sub/ignored/x",
        "sub/.detignore",
        "terraform",
        "a.pyc",
        "name with ünïcode",
        "-dash",
    ):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}")
    (root / "empty").mkdir()
    (root / "train.py").chmod(0o755)
    (root / "sub/link.py").symlink_to("../train.py")
    (root / "linked").symlink_to("sub")


@pytest.mark.parametrize(
    "rules",
    [
        "",
        "ignored/\n*.bin\n!keep.bin\n/sub/deep\n",
        "ignored\n",
        "/ignored\n",
        "sub/**\n",
        "*.py\n!sub/b.py\n",
        "sub/*\n",
    ],
)
def test_both_pack_the_same(tmp_path: Path, rules: str) -> None:
    root, extra = tmp_path / "model", tmp_path / "extra"
    make_tree(root)
    make_tree(extra)
    (root / ".detignore").write_text(rules)
    theirs = in_released_client(PACK, str(root), str(extra))
    ours = [to_wire(file) for file in pack(root, [extra]).files]
    assert sorted(ours, key=lambda file: file["path"]) == sorted(theirs, key=lambda file: file["path"])


STORE = """
import json, sys
from determined.common.api import authentication
store = authentication.TokenStore(sys.argv[1])
found = [store.get_active_user(), store.get_token("ada")]
store.set_token("bob", "their token")
store.set_active("bob")
print(json.dumps(found))
"""


def test_both_use_one_file_of_logins(tmp_path: Path) -> None:
    master = "http://localhost:8080"
    ours = TokenCache(tmp_path)
    ours.store(master, "ada", "our token")
    environ = {"DET_DEBUG_CONFIG_PATH": str(tmp_path), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    assert in_released_client(STORE, master, environ=environ) == ["ada", "our token"]
    assert (ours.active_user(master), ours.token(master, "bob"), ours.token(master, "ada")) == (
        "bob",
        "their token",
        "our token",
    )
    ours.forget(master, "bob")
    assert in_released_client(STORE, master, environ=environ) == [None, "our token"]


HASH = """
import json, sys
from determined.common import api
print(json.dumps(api.salt_and_hash(sys.argv[1])))
"""


@pytest.mark.parametrize("password", ["", "password", "pässwörd ✓"])
def test_both_transform_passwords_the_same_way(password: str) -> None:
    from resolute.wire.rest.passwords import hash_password

    assert in_released_client(HASH, password) == hash_password(password)


TREE = """
import argparse, json
from determined import cli
from determined.cli import cli as root
def walk(parser, path, found):
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, child in action.choices.items():
                walk(child, [*path, name], found)
    found[" ".join(path)] = sorted(flag for action in parser._actions for flag in action.option_strings)
parser, found = root.make_parser(), {}
cli.add_args(parser, root.all_args_description)
walk(parser, [], found)
print(json.dumps(found))
"""

_STORAGE = ("--checkpoint-storage-config", "--checkpoint-storage-config-file")
_KUBERNETES = ("--cluster-name", "--namespace", "-n", "--auto-create-namespace", "--auto-create-namespace-all-clusters")

LATER = {
    *(("workspace create", flag) for flag in (*_STORAGE, *_KUBERNETES, "--resource-quota")),
    *(("workspace edit", flag) for flag in _STORAGE),
    ("task logs", "--allocation-id"),
    ("experiment create", "--local"),
    ("experiment create", "-p"),
    ("experiment create", "--publish"),
    ("user create", "--remote"),
}
"""Flags of features that this cluster does not have yet."""


def test_every_command_that_is_here_has_the_flags_it_has_there() -> None:
    from resolute_cli.main import NOUNS, build_parser

    theirs = in_released_client(TREE)
    nouns = {noun.name for noun in NOUNS}
    missing = []
    for path, flags in flags_below(build_parser(), []).items():
        if path.split(" ")[0] in nouns and path in theirs:
            missing += [(path, flag) for flag in theirs[path] if flag not in flags]
    assert set(missing) == LATER


def flags_below(parser: Any, path: list[str]) -> dict[str, set[str]]:
    """Flags of every command, by its words."""
    found = {" ".join(path): {flag for action in parser._actions for flag in action.option_strings}}
    for action in parser._actions:
        if action.choices and action.nargs == "A...":
            for name, child in action.choices.items():
                found.update(flags_below(child, [*path, name]))
    return found
