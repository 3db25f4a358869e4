"""A real master with machines of the local cloud, and the released client beside it.

All tests here share one cluster, which is on PostgreSQL, and one file in which the released client's own process notes what it
could read; the last test holds that against the page of the documentation. The test in a container has a cluster of its own, on
SQLite.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.api_released import RECORDER, ForkedDet, ReleasedDet
from support.live import PASSWORD, LiveCluster
from support.postgres import PostgresServer

LAST = "test_api_coverage.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Evidence is complete when the others of this directory have run."""
    here = [number for number, item in enumerate(items) if item.path.parent == Path(__file__).parent]
    ordered = sorted((items[number] for number in here), key=lambda item: item.path.name == LAST)
    for number, item in zip(here, ordered, strict=True):
        items[number] = item


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[LiveCluster]:
    provider = {"type": "local", "slots_per_instance": 1, "max_instances": 2, "max_idle_agent_period": "30s"}
    default = {"pool_name": "default", "agent_reconnect_wait": "60s", "provider": provider}
    made = LiveCluster(
        tmp_path_factory.mktemp("compat"),
        resource_pools=[default, {"pool_name": "pool-2"}],
        db=postgres.db_config(postgres.new_database()),
    )
    made.start()
    try:
        yield made
    finally:
        made.stop()
    assert made.left_over() == []


@pytest.fixture(scope="session")
def evidence(cluster: LiveCluster) -> Path:
    """Where tasks can write, too; the recorder lies beside it, for what is under /tmp is hidden from them."""
    shutil.copytree(RECORDER, cluster.storage / RECORDER.name, ignore=shutil.ignore_patterns("__pycache__"))
    written = cluster.storage / "accepted.jsonl"
    written.touch()
    written.chmod(0o666)  # the client writes to it as well as tasks, which may run as another user
    return written


@pytest.fixture(autouse=True)
def nothing_left_running(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test leaves behind would take the machines of the next."""
    yield
    if "det" not in request.fixturenames:
        return
    client = request.getfixturevalue("cluster").client
    for experiment in client.list_experiments():
        if experiment.state not in ("COMPLETED", "CANCELED", "ERROR") and not experiment.details.unmanaged:
            experiment.kill()


@pytest.fixture
def det(cluster: LiveCluster, evidence: Path, tmp_path: Path) -> Iterator[ReleasedDet]:
    with ForkedDet(tmp_path / "home", cluster.url, "determined", PASSWORD, evidence=evidence).ready() as ready:
        yield ready


@pytest.fixture
def admin(cluster: LiveCluster, evidence: Path, tmp_path: Path) -> Iterator[ReleasedDet]:
    with ForkedDet(tmp_path / "admin", cluster.url, "admin", PASSWORD, evidence=evidence).ready() as ready:
        yield ready
