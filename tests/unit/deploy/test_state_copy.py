"""A state that was cut off while it was written is replaced by its last whole copy; nothing else is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from resolute_deploy import state_copy


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "terraform.tfstate"


def written(state: Path, serial: int) -> str:
    state.write_text(json.dumps({"version": 4, "serial": serial}))
    return state.read_text()


@pytest.mark.parametrize("cut", [0, 7])
def test_a_state_that_was_cut_off_is_its_last_whole_copy(state: Path, cut: int) -> None:
    written(state, 1)
    state_copy.keep(state)
    second = written(state, 2)
    state_copy.keep(state)
    state.write_text(written(state, 3)[:cut])
    state_copy.keep(state)
    assert state_copy.restore(state) and state.read_text() == second
    assert not state_copy.restore(state) and state.read_text() == second


def test_a_whole_state_stays_and_one_that_was_never_there_is_not_made(state: Path) -> None:
    state_copy.keep(state)
    assert not state_copy.restore(state) and not state.exists()
    written(state, 1)
    state_copy.keep(state)
    newer = written(state, 2)
    assert not state_copy.restore(state) and state.read_text() == newer
    state.unlink()  # taken away by a person
    assert not state_copy.restore(state) and not state.exists()


def test_only_its_owner_reads_the_copy(state: Path) -> None:
    written(state, 1)
    state_copy.keep(state)
    (copy,) = (file for file in state.parent.iterdir() if file != state)
    assert copy.stat().st_mode & 0o077 == 0
