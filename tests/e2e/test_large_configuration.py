"""A configuration of almost the largest size that is taken: Linux executes no program with a variable of 128 KiB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from resolute.wire.states import ExperimentState
from support.live import LiveCluster

READ = (
    "from resolute.task_info import TaskInfo, environment; import subprocess; "
    "trial = TaskInfo.from_env(environment()).trial; "
    "subprocess.run(['true'], check=True); "
    "print('read', len(trial.config['data']['table']), len(trial.hparams['table']))"
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    running = LiveCluster(tmp_path / "cluster")
    try:
        running.start()
        yield running
    finally:
        running.stop()


@pytest.mark.parametrize(
    ("data", "hparam"), [(250_000, 10), (10, 135_000), pytest.param(62_000, 62_000, marks=pytest.mark.nightly)]
)
def test_a_large_configuration_starts_and_arrives(cluster: LiveCluster, data: int, hparam: int) -> None:
    experiment = cluster.submit({"table": "y" * hparam}, entrypoint=["python3", "-c", READ], data={"table": "x" * data})
    ended = experiment.wait(0.2)
    (trial,) = experiment.list_trials()
    log = "\n".join(trial.iter_logs())
    assert ended == ExperimentState.COMPLETED, log
    assert f"read {data} {hparam}" in log
