"""A small part of `make hostile`, on each store: what it finds is a fault of the master, and its seed finds it again."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile.campaign import attack
from hostile.findings import Findings, summary

from support.postgres import PostgresServer

SEED = 20260101


def assert_harmless(findings: Findings, budget: int) -> None:
    assert not findings.faults, summary(findings)
    assert findings.total == budget
    assert len(findings.rows) == 11, "not everybody attacked"


@pytest.mark.nightly
def test_attackers_get_nothing_from_a_master_on_sqlite(tmp_path: Path) -> None:
    assert_harmless(attack(tmp_path / "cluster", seed=SEED, budget=1_000), 1_000)


@pytest.mark.needs("postgres")
def test_attackers_get_nothing_from_a_master_on_postgresql(tmp_path: Path, postgres: PostgresServer) -> None:
    assert_harmless(attack(tmp_path / "cluster", seed=SEED + 1, budget=500, server=postgres), 500)
