"""A small master over HTTP, and a command line that is logged in at it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from resolute.wire.rest.enums import LogLevel
from support.cli_master import FakeMaster, running
from support.cli_messages import (
    a_checkpoint,
    a_log_line,
    a_trial,
    an_experiment,
)
from support.cli_shell import Shell


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    made = FakeMaster(
        experiments={1: an_experiment(), 2: an_experiment(2, archived=True), 3: an_experiment(3, username="ada")},
        trials={1: a_trial()},
        checkpoints=(a_checkpoint(),),
        logs=(a_log_line(1, "one"), a_log_line(2, "two", LogLevel.ERROR), a_log_line(3, "three")),
    )
    with running(made):
        yield made


@pytest.fixture
def det(master: FakeMaster, tmp_path: Path) -> Shell:
    return Shell(master, tmp_path)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A configuration beside a directory of model code."""
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "train.py").write_text("print('hello')\n")
    (directory / "secret.bin").write_text("not this")
    (directory / ".detignore").write_text("*.bin\n")
    (tmp_path / "const.yaml").write_text("name: digits\nsearcher: {name: single}\n")
    return directory
