"""A real master with machines of the local cloud, and the released client beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.api_released import ReleasedDet
from support.live import PASSWORD, LiveCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    made = LiveCluster(tmp_path_factory.mktemp("compat"), pool={"provider": {
        "type": "local", "slots_per_instance": 1, "max_instances": 2, "max_idle_agent_period": "30s",
    }})  # fmt: skip
    made.start()
    try:
        yield made
    finally:
        made.stop()
    assert made.left_over() == []


@pytest.fixture
def det(cluster: LiveCluster, tmp_path: Path) -> ReleasedDet:
    return ReleasedDet(tmp_path / "home", cluster.url, "determined", PASSWORD)
