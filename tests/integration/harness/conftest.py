"""Fixtures of the harness's integration tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.harness_master import FakeMaster
from support.harness_tasks import Tasks


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    master = FakeMaster().start()
    yield master
    master.stop()


@pytest.fixture
def tasks() -> Iterator[Tasks]:
    tasks = Tasks()
    yield tasks
    tasks.end_all()
