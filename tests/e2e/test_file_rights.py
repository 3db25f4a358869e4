"""Files of a whole cluster that was started with no umask at all: nothing of master, machines and agents is open to others."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.live import LiveCluster, until

CONTAINERS = "containers"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    before = os.umask(0)
    running = LiveCluster(tmp_path / "cluster", log={"format": "text"})
    (tmp_path / "cluster").chmod(0o755)
    try:
        running.start()
        yield running
    finally:
        running.stop()
        os.umask(before)


def open_to_others(directory: Path) -> list[str]:
    """What is in it, with the mode, but for what lies in the private directories of containers, which are their tasks'."""
    found = []
    for above, directories, files in os.walk(directory):
        if os.path.basename(above) == CONTAINERS:
            directories.clear()
        for name in (".", *files):
            status = os.lstat(os.path.join(above, name))
            if status.st_mode & 0o077 and not stat.S_ISLNK(status.st_mode):
                found.append(f"{os.path.join(above, name)} {stat.S_IMODE(status.st_mode):o}")
    return found


def test_nothing_is_open_to_others_whatever_the_umask_and_a_start_mends_what_was(cluster: LiveCluster) -> None:
    experiment = cluster.submit(
        {"script": ["report 3 every 0.1s", "checkpoint every 1"], "event_log": f"{cluster.event_log}/"}
    )
    experiment.wait(0.2)
    state = cluster.directory / "state"
    database = next(state.glob("*.db"))
    assert open_to_others(state) == []
    assert stat.S_IMODE(cluster.config_file.stat().st_mode) == 0o600, "the configuration as well"

    cluster.kill_master()
    (machine,) = [files.directory for files, _ in cluster.machines_on_file()][:1]
    widened = [state, database, Path(f"{database}-wal"), cluster.config_file]
    for path in widened:
        path.chmod(0o777 if path.is_dir() else 0o666)
    cluster.start()
    log = cluster.master_log()
    for path in widened:
        assert f"{path} was open to other users" in log
    assert open_to_others(state) == [], machine
    until("the store works", lambda: cluster.client.get_experiment(experiment.id))
