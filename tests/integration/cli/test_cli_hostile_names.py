"""Names from people on a real pseudo-terminal: no command of `det` writes a character of them that a terminal obeys."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
import threading
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest

from resolute.errors import InvalidInput
from resolute_cli.command import Command, Group
from resolute_cli.invocation import Invocation
from resolute_cli.main import NOUNS, main
from resolute_cli.render import Renderer
from support.cli_messages import PASSWORD
from support.hostile_messages import HOSTILE, INJECTED, answer_with

SHOWING: dict[str, tuple[str, ...]] = {
    "agent list": (),
    "budget list": (),
    "checkpoint list": ("1",),
    "checkpoint describe": ("6e0f1f0e-7d61-4f3d-9a47-7f1a3f6a9f10",),
    "cost": (),
    "decisions": (),
    "experiment list": (),
    "experiment describe": ("1",),
    "experiment logs": ("1",),
    "experiment list-trials": ("1",),
    "experiment list-checkpoints": ("1",),
    "experiment config": ("1",),
    "experiment explain-search": ("1",),
    "instance list": (),
    "job list": (),
    "job explain": ("1",),
    "ledger": (),
    "master info": (),
    "master config show": (),
    "master logs": (),
    "pool advise": ("default",),
    "pool offers": ("default",),
    "project describe": ("1", HOSTILE),
    "project list": ("1",),
    "project list-experiments": ("1", HOSTILE),
    "resource-pool bindings list-workspaces": ("default",),
    "resource-pool list": (),
    "resource-pool offers": ("default",),
    "slot list": (),
    "task list": (),
    "task logs": ("1",),
    "template describe": ("t",),
    "template list": (),
    "trial describe": ("1",),
    "trial list": ("1",),
    "trial logs": ("1",),
    "trial list-checkpoints": ("1",),
    "user list": (),
    "workspace describe": ("1",),
    "workspace list": (),
    "workspace list-pools": ("1",),
    "workspace list-projects": ("1",),
}
"""Every command that shows what others have named, with its arguments."""

CHANGING = {
    *(f"agent {verb}" for verb in ("enable", "disable", "forget", "join-token")),
    *(f"checkpoint {verb}" for verb in ("download", "delete", "rm", "verify")),
    *(
        f"deploy {cloud} {verb}"
        for cloud in ("aws", "gcp")
        for verb in ("up", "down", "list", "status", "dump-master-config-template")
    ),
    *(f"deploy local {verb}" for verb in ("cluster-up", "cluster-down", "master-up", "master-down", "logs")),
    *(f"deploy local {verb}" for verb in ("agent-up", "agent-down")),
    *(f"experiment {verb}" for verb in ("create", "activate", "pause", "cancel", "kill", "archive", "unarchive")),
    *(f"experiment {verb}" for verb in ("wait", "delete", "download-model-def", "download")),
    *(f"experiment set {field}" for field in ("name", "description", "priority", "weight", "max-slots", "max-cost")),
    *(f"experiment label {verb}" for verb in ("add", "remove")),
    *(f"experiment {verb}" for verb in ("delete-tb-files", "move", "set gc-policy", "set log-retention")),
    *(f"template {verb}" for verb in ("create", "remove", "set", "set-value config")),
    *("master config set", "preview-search", "task cleanup-logs", "trial set log-retention"),
    *(f"job {verb}" for verb in ("update", "update-batch", "snapshot", "schedule")),
    *(f"resource-pool bindings {verb}" for verb in ("add", "remove", "replace")),
    *(f"user {verb}" for verb in ("login", "logout", "whoami", "change-password", "create", "activate", "deactivate")),
    *(
        "user link-with-agent-user",
        "user rename",
        "resource-pool set-budget",
        "pool validate",
        "project create",
        *(f"project {verb}" for verb in ("archive", "delete", "edit", "move", "unarchive")),
        *(f"workspace {verb}" for verb in ("archive", "delete", "unarchive")),
        "simulate",
        "version",
    ),
    *(f"slot {verb}" for verb in ("enable", "disable")),
    *("trial kill", "trial download", "workspace create", "workspace edit", "workspace set-budget"),
}
"""Those that say one sentence about what they were given, or read files: the same renderer writes it."""


def commands() -> dict[str, Command]:
    found: dict[str, Command] = {}

    def walk(word: Command | Group, path: str) -> None:
        if isinstance(word, Command):
            found[path] = word
            return
        for each in word.commands:
            walk(each, f"{path} {each.name}")

    for noun in NOUNS:
        walk(importlib.import_module(f"resolute_cli.nouns.{noun.module}").NOUN, noun.name)
    return found


@contextlib.contextmanager
def terminal() -> Iterator[tuple[io.TextIOWrapper, list[bytes]]]:
    """A pseudo-terminal that passes bytes on as they are, and what was written to it once it is closed."""
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    written: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # the end of the other side
            while data := os.read(ours, 65536):
                written.append(data)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with open(theirs, "w", encoding="utf-8", errors="surrogatepass", newline="") as stream:
            yield stream, written
    finally:
        reader.join(30)
        os.close(ours)


def shown(home: Path, *words: str) -> tuple[int, str]:
    with terminal() as (stream, written):
        environ = {"DET_MASTER": "http://127.0.0.1:1", "DET_USER": "determined", "DET_PASS": PASSWORD}
        environ |= {"HOME": str(home), "DET_DEBUG_CONFIG_PATH": str(home / "config")}
        code = main(words, Invocation(environ=environ, render=Renderer(stream, stream), stdin=io.StringIO()))
    return code, b"".join(written).decode("utf-8", errors="surrogatepass")


def raw_characters(text: str) -> list[str]:
    """What a terminal would obey or hide, beside line breaks and the colours of `det` itself."""
    own = re.sub(r"\x1b\[(?:0|1|2|3|31|32|33|1;3)?m", "", text)
    return [each for each in own if each != "\n" and not each.isprintable()]


def texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, each in value.items():
            yield name
            yield from texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts(each)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    answer_with(monkeypatch)
    monkeypatch.setenv("COLUMNS", "20000")  # rich cuts no cell
    monkeypatch.setattr("resolute_cli.invocation.Invocation.api", _api)
    return tmp_path


def _api(self: Invocation) -> object:
    from resolute.client.api import Api
    from resolute.client.session import Session

    return Api(Session("http://127.0.0.1:1"))


def test_every_command_shows_or_changes() -> None:
    assert set(commands()) == SHOWING.keys() | CHANGING


FORMS = [(name, form) for name, command in commands().items() if name in SHOWING for form in (None, *command.formats)]


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_no_hostile_name_reaches_a_terminal_raw(home: Path, name: str, form: str | None) -> None:
    code, text = shown(home, *name.split(), *SHOWING[name], *([f"--{form}"] if form else []))
    assert code == 0, text
    assert INJECTED in text
    if form == "csv":
        text = text.replace("\r\n", "\n")  # how a line of CSV ends
    if form is None and name.endswith("logs"):
        text = text.replace("\t", "")
    if form is None and name in ("trial logs", "experiment logs", "task logs"):
        text = text.replace("\x1b[35;7m", "")  # programs may colour their output
    assert not raw_characters(text), text
    assert "[bold]loud[/bold]" in text  # and it was not read as markup
    if form == "json":
        assert any(HOSTILE in each for each in texts(json.loads(text)))  # JSON means what it meant


def test_an_error_of_the_master_is_escaped(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise InvalidInput(f"name: {HOSTILE} is taken")

    monkeypatch.setattr("resolute.client.session.Session.get", refused)
    code, text = shown(home, "workspace", "list")
    first, *rest = text.splitlines()
    assert code == 1 and INJECTED in first and not raw_characters(text.replace("\t", ""))
    assert rest and all(line.startswith("  ") for line in rest)  # no line of its own


def test_words_that_det_does_not_know_are_escaped(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert shown(home, "trial", "describe", f"a{HOSTILE}"[:40])[0] == 2
    assert INJECTED in (said := capfd.readouterr().err) and not raw_characters(said)


def test_only_the_renderer_writes() -> None:
    package = Path(importlib.import_module("resolute_cli").__file__ or "").parent
    writes = re.compile(r"\bprint\(|\b(?:out|err|stdout|stderr)\.write\(")
    found = {path.name for path in package.rglob("*.py") if writes.search(path.read_text())}
    assert found == {"render.py", "main.py", "detach.py"}  # beside it: the version of `det`, a process id
