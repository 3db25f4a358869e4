"""The tree of commands: names, aliases and flags as they are documented, and what it costs to ask for help."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from resolute_cli.command import UsageError
from resolute_cli.configuration_files import configuration_text, parse_override
from resolute_cli.main import NOUNS, build_parser, main
from resolute_cli.nouns.user import password_weakness

TREE: Mapping[str, tuple[str, ...]] = {
    "agent": ("disable", "enable", "forget", "join-token", "list", "ls"),
    "checkpoint": ("delete", "describe", "download", "list", "ls", "rm", "verify"),
    "experiment": (
        "activate",
        "archive",
        "cancel",
        "config",
        "create",
        "delete",
        "delete-tb-files",
        "describe",
        "download",
        "download-model-def",
        "explain-search",
        "kill",
        "label",
        "lc",
        "list",
        "list-checkpoints",
        "list-trials",
        "logs",
        "ls",
        "lt",
        "move",
        "pause",
        "set",
        "unarchive",
        "unpause",
        "wait",
    ),
    "instance": ("list", "ls"),
    "job": ("explain", "list", "ls", "schedule", "snapshot", "u", "update", "update-batch"),
    "master": ("config", "info", "logs"),
    "project": (
        "archive",
        "create",
        "delete",
        "describe",
        "edit",
        "list",
        "list-experiments",
        "ls",
        "move",
        "unarchive",
    ),
    "pool": ("advise", "offers", "validate"),
    "resource-pool": ("bindings", "list", "ls", "offers", "set-budget"),
    "slot": ("disable", "enable", "list", "ls"),
    "task": ("cleanup-logs", "list", "logs", "ls"),
    "template": ("create", "describe", "list", "ls", "remove", "rm", "set", "set-value"),
    "trial": ("describe", "download", "kill", "lc", "list", "list-checkpoints", "logs", "ls", "set"),
    "user": (
        "activate",
        "change-password",
        "create",
        "deactivate",
        "link-with-agent-user",
        "list",
        "login",
        "logout",
        "ls",
        "rename",
        "whoami",
    ),
    "workspace": (
        "archive",
        "create",
        "delete",
        "describe",
        "edit",
        "list",
        "list-pools",
        "list-projects",
        "ls",
        "set-budget",
        "unarchive",
    ),
    "budget": ("list", "ls"),
    "deploy": ("aws", "gcp", "local"),
}

SHORT = {
    "a": "agent",
    "c": "checkpoint",
    "e": "experiment",
    "j": "job",
    "p": "project",
    "rp": "resource-pool",
    "s": "slot",
    "t": "trial",
    "tpl": "template",
}

FLAGS: Mapping[tuple[str, ...], frozenset[str]] = {
    ("experiment", "create"): frozenset(
        {
            "-i",
            "--include",
            "--template",
            "--project_id",
            "--config",
            "-f",
            "--follow-first-trial",
            "--paused",
            "--preview",
            "-t",
        }
        | {"--test-mode", "--json"}
        | {"--seconds-per-unit"}  # ours: what the preview counts with
    ),
    ("experiment", "list"): frozenset(
        {"-a", "--all", "--show_project", "--limit", "--offset", "--pages", "--csv", "--json"}
    ),
    ("experiment", "wait"): frozenset({"--polling-interval", "--json"}),
    ("experiment", "describe"): frozenset({"--metrics", "--outdir", "--csv", "--json"}),
    ("trial", "logs"): frozenset(
        {"-f", "--follow", "--head", "--tail", "--agent-id", "--container-id", "--rank-id", "--source", "--stdtype"}
        | {"--level", "--timestamp-before", "--timestamp-after", "--json"}
    ),
    ("checkpoint", "download"): frozenset({"-o", "--output-dir", "-q", "--quiet", "--mode", "--json"}),
    ("checkpoint", "rm"): frozenset({"--glob", "--yes", "--json"}),
    ("template", "create"): frozenset({"-w", "--workspace", "--workspace-name", "--json"}),
    ("template", "list"): frozenset({"-d", "--details", "--csv", "--json"}),
    ("agent", "disable"): frozenset({"--all", "--drain", "--csv", "--json"}),
    ("job", "update"): frozenset(
        {"-p", "--priority", "-w", "--weight", "--resource-pool", "--ahead-of", "--behind-of", "--json"}
    ),
    ("job", "update-batch"): frozenset({"--json"}),
}


def verbs_of(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return {name: child for name, child in action.choices.items() if name != "help"}
    return {}


def parser_of(*words: str) -> argparse.ArgumentParser:
    parser = build_parser()
    for word in words:
        parser = verbs_of(parser)[word]
    return parser


def leaves(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    children = verbs_of(parser)
    return [leaf for child in children.values() for leaf in leaves(child)] if children else [parser]


@pytest.mark.parametrize("noun", sorted(TREE))
def test_a_noun_has_these_verbs(noun: str) -> None:
    assert tuple(sorted(verbs_of(parser_of(noun)))) == TREE[noun]


@pytest.mark.parametrize(("short", "noun"), sorted(SHORT.items()))
def test_nouns_have_short_names(short: str, noun: str) -> None:
    assert sorted(verbs_of(parser_of(short))) == sorted(TREE[noun])


@pytest.mark.parametrize("words", sorted(FLAGS), ids=" ".join)
def test_a_verb_has_these_flags(words: tuple[str, ...]) -> None:
    found = {flag for action in parser_of(*words)._actions for flag in action.option_strings}
    assert found - {"-h", "--help"} == FLAGS[words]


@pytest.mark.parametrize("noun", [noun.name for noun in NOUNS])
def test_every_command_has_json_and_something_to_run(noun: str) -> None:
    for leaf in leaves(parser_of(noun)):
        flags = {flag for action in leaf._actions for flag in action.option_strings}
        assert "--json" in flags, leaf.prog
        assert callable(leaf.get_default("run")), leaf.prog
        assert leaf.get_default("task"), leaf.prog
        assert leaf.prog in leaf.format_help()


def test_help_imports_neither_clients_nor_drawing() -> None:
    """What makes the answer slow is not loaded for it."""
    program = (
        "import sys; from resolute_cli.main import main; code = main(['help']);"
        "heavy = {'httpx', 'rich', 'pydantic', 'yaml', 'msgspec'} & set(sys.modules);"
        "sys.exit(f'{code} {heavy}' if code or heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "experiment" in done.stdout


def test_a_call_imports_neither_the_drawing_nor_the_messages_of_other_calls() -> None:
    """What `det experiment list` imports until it has an answer to show."""
    program = (
        "import sys; from resolute_cli.main import main; main(['-m', 'localhost:1', 'experiment', 'list']);"
        "from resolute.client import experiments, users;"
        "heavy = {'rich', 'click', 'pydantic', 'yaml', 'msgspec', 'resolute_cli.nouns.job', 'resolute.client.sdk'};"
        "heavy |= {f'resolute.wire.rest.{name}' for name in ('experiment_changes', 'users', 'master', 'trials')};"
        "needed = {'httpx', 'resolute.wire.rest.experiments'};"
        "sys.exit(f'{heavy & set(sys.modules)}' if heavy & set(sys.modules) or needed - set(sys.modules) else 0)"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DET_")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 0, done.stderr
    assert "localhost:1" in done.stderr


def test_to_submit_an_experiment_no_models_of_configurations_are_made(tmp_path: Path) -> None:
    """The file is read as YAML here; what it means is the master's business."""
    (tmp_path / "const.yaml").write_text("name: x\nentrypoint: python3 train.py\n")
    program = (
        "import sys; from resolute_cli.main import main; main(['-m', 'localhost:1', 'e', 'create', sys.argv[1], '.']);"
        "from resolute.client import context;"
        "heavy = {'rich', 'click', 'pydantic', 'msgspec', 'resolute.config.master', 'resolute.config.agent'};"
        "needed = {'yaml', 'resolute.config.yaml_text'};"
        "sys.exit(f'{heavy & set(sys.modules)}' if heavy & set(sys.modules) or needed - set(sys.modules) else 0)"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DET_")}
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "const.yaml"), "--config", "a=1"],
        capture_output=True,
        text=True,
        check=False,
        env=environ,
    )
    assert done.returncode == 0, done.stderr
    assert "localhost:1" in done.stderr


def test_only_the_parsers_of_the_words_that_are_given_are_made() -> None:
    parser = build_parser()
    parser.parse_args(["trial", "kill", "1"])
    made = [word for word, child in verbs_of(parser).items() if "_actions" in vars(child)]
    assert sorted(made) == ["t", "trial"]
    trial = verbs_of(parser)["trial"]
    assert [word for word, child in verbs_of(trial).items() if "_actions" in vars(child)] == ["kill"]


@pytest.mark.parametrize("words", [[], ["help"], ["trial"], ["experiment", "set"], ["deploy", "local", "help"]])
def test_groups_without_a_default_print_their_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert "usage: det" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["experiment", "nonsense"],
        ["experiment", "describe"],
        ["experiment", "pause", "one"],
        ["experiment", "create", "a.yaml", "-f", "--paused"],
        ["trial", "logs", "1", "--head", "1", "--tail", "1"],
        ["trial", "logs", "1", "--head", "0"],
        ["trial", "logs", "1", "--timestamp-after", "yesterday"],
        ["trial", "download", "1"],
        ["job", "update", "j"],
        ["job", "update", "j", "--ahead-of", "k", "--behind-of", "k"],
        ["job", "update-batch"],
        ["job", "update-batch", "j"],
        ["job", "update-batch", "j.priority"],
        ["job", "update-batch", "j.priority=high"],
        ["job", "update-batch", "j.colour=red"],
        ["agent", "list", "--json", "--csv"],
        ["agent", "disable"],
        ["agent", "forget"],
    ],
)
def test_wrong_calls_end_with_code_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["e", "set", "max-cost", "7", "much"], "must be a number greater than 0, and is 'much'"),
        (["e", "set", "max-cost", "7", "0"], "must be a number greater than 0, and is '0'"),
        (["rp", "set-budget", "default", "--per-day", "0"], "must be a number greater than 0, and is '0'"),
        (["workspace", "set-budget", "Vision", "--per-month=-1"], "must be a number greater than 0, and is '-1'"),
        (["simulate", "--boot", "soon"], "argument --boot: must be a number that is at least 0, and is 'soon'"),
        (["simulate", "--notice", "nan"], "argument --notice: must be a number that is at least 0, and is 'nan'"),
        (["trial", "logs", "1", "--tail", "x"], "--tail: must be a whole number that is at least 1, and is 'x'"),
    ],
)
def test_a_value_that_is_none_is_said_with_what_it_must_be(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert complaint in capsys.readouterr().err


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("det ")


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("name=x", {"name": "x"}),
        ("a.b.c=1", {"a": {"b": {"c": 1}}}),
        ("lr=1e-3", {"lr": 0.001}),
        ("flag=true", {"flag": True}),
        ("nothing=null", {"nothing": None}),
        ("labels=a,b", {"labels": ["a", "b"]}),
        ("numbers=1,2.5", {"numbers": [1, 2.5]}),
        ("list=[1, 2]", {"list": [1, 2]}),
        ("map={a: 1, b: 2}", {"map": {"a": 1, "b": 2}}),
        ("entrypoint=python train.py --x=1", {"entrypoint": "python train.py --x=1"}),
        ("bind_mounts={host_path: /a}", {"bind_mounts": [{"host_path": "/a"}]}),
    ],
)
def test_overrides_are_read(text: str, parsed: dict[str, Any]) -> None:
    assert parse_override(text) == parsed


@pytest.mark.parametrize("text", ["name", "=1", "a..b=1", "a={", ".=1"])
def test_wrong_overrides_are_named(text: str) -> None:
    with pytest.raises(UsageError, match="--config"):
        parse_override(text)


def test_a_configuration_without_overrides_is_sent_as_written(tmp_path: Path) -> None:
    text = "# my comment\nname:   digits\n"
    (tmp_path / "c.yaml").write_text(text)
    assert configuration_text(str(tmp_path / "c.yaml"), []) == text


def test_overrides_change_their_key_only(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("name: digits\nsearcher: {name: single, metric: loss}\nresources: null\n")
    merged = configuration_text(
        str(tmp_path / "c.yaml"), ["searcher.metric=accuracy", "resources.slots_per_trial=2", "name=null"]
    )
    assert merged == "name: null\nsearcher:\n  name: single\n  metric: accuracy\nresources:\n  slots_per_trial: 2\n"


@pytest.mark.parametrize("text", ["", "a: [1", "- a list", "a: 1\na: 2\n", "just words"])
def test_unreadable_configurations_are_wrong_calls(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(UsageError, match=r"c\.yaml"):
        configuration_text(str(tmp_path / "c.yaml"), [])


def test_a_missing_configuration_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read the configuration '.*none\.yaml': No such file"):
        configuration_text(str(tmp_path / "none.yaml"), [])


@pytest.mark.parametrize(
    ("password", "weakness"),
    [
        ("Abcdefg1", None),
        ("Abcde1", "8 characters"),
        ("abcdefg1", "upper-case"),
        ("ABCDEFG1", "lower-case"),
        ("Abcdefgh", "digit"),
    ],
)
def test_weak_passwords_are_explained(password: str, weakness: str | None) -> None:
    found = password_weakness(password)
    assert found is None if weakness is None else found is not None and weakness in found
