"""Commands and their rules."""

from __future__ import annotations

from resolute_master.domain.commands import COMMANDS
from resolute_master.lifecycle.apply import RULES


def test_every_command_has_a_rule() -> None:
    assert set(RULES) == set(COMMANDS.values())
