"""`docs/snapshots.md` tells the whole format, and its example does what it says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from resolute_cli.job_snapshot import plan_lines
from resolute_master.decision.offline import decide
from resolute_master.scheduler.snapshot_format import (
    AgentRow,
    JobRow,
    MachineRow,
    OfferRow,
    Policy,
    SnapshotRow,
    SupplyRow,
    TaskRow,
)

TEXT = (Path(__file__).parents[3] / "docs" / "snapshots.md").read_text()


@pytest.mark.parametrize("row", [SnapshotRow, Policy, AgentRow, JobRow, TaskRow, SupplyRow, OfferRow, MachineRow])
def test_every_key_is_told(row: type[BaseModel]) -> None:
    told = set(re.findall(r"`([a-z_]+)`", TEXT.partition("## The format")[2]))
    assert set(row.model_fields) - told == set()


def test_the_example_is_decided_as_it_is_printed() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    (printed,) = re.findall(r"```text\n\$ [^\n]*\n(.*?)```", TEXT, re.DOTALL)
    assert list(plan_lines(decide(json.loads(example)))) == printed.splitlines()
    changes = re.findall(r"^\| `([a-z0-9_.]+=[^`]*)` \|", TEXT, re.MULTILINE)
    assert len(changes) > 5
    for change in changes:
        decide(json.loads(example), [change])
