"""Machines that share no disk keep their checkpoints in a bucket: saved at a notice on one, restored on one that never saw it.

Each task has a mount namespace and a `/tmp` of its own, and no directory of the storage is mounted: what a run restores can only
have come over the network.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from resolute.storage import CheckpointStorage, Manifest, storage_from_config
from resolute.testing.event_log import read_event_log
from resolute.wire.rest.checkpoints import Checkpoint, GetCheckpointsQuery
from resolute.wire.rest.experiment_changes import PatchCheckpointStorage, PatchExperiment
from support.event_log_checker import TrialRecord, check
from support.live import LiveCluster, live_cluster, record_of, until
from support.new_db import NewDb
from support.object_stores import moto_store

pytestmark = pytest.mark.needs("namespaces")

STEPS = 120
CHECKPOINT_EVERY = 15
KILL_AT = 60

INTERRUPTIONS = [
    {"instance": 1, "after_steps": 20, "notice": "20s"},
    {"instance": 2, "after_steps": KILL_AT},
]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A trial that lost two machines, and the bucket that outlived them."""

    cluster: LiveCluster
    event_log: list[dict[str, Any]]
    record: TrialRecord
    storage: CheckpointStorage
    trial_id: int

    def of_run(self, run: int, event: str) -> list[Mapping[str, Any]]:
        return [each for each in self.event_log if (each["trial_run_id"], each["event"]) == (run, event)]

    def known(self) -> tuple[Checkpoint, ...]:
        """To the master."""
        return self.cluster.client.trials.checkpoints(self.trial_id, GetCheckpointsQuery())

    def killed_before_the_report(self) -> frozenset[str]:
        """Checkpoints that a lost machine's run committed and could not report. The run after it removes those that it finds; one
        whose last request was still on its way is marked for the sweep of a later trial."""
        marked = frozenset(self.storage.unreported()) - {each.uuid for each in self.known()}
        manifests = [Manifest.from_bytes(uuid, self.storage.manifest(uuid)) for uuid in marked & {*self.storage.list()}]
        assert {each.trial_run_id for each in manifests} <= self.record.cut
        return marked


@contextmanager
def an_event_log() -> Iterator[Path]:
    """Outside of `/tmp`, of which each task has its own, and open to the account that tasks run as."""
    with tempfile.TemporaryDirectory(prefix="resolute-events-", dir="/var/tmp") as directory:
        os.chmod(directory, 0o1777)
        yield Path(directory)


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory, new_db: NewDb) -> Iterator[Scenario]:
    provider = {
        "type": "local",
        "slots_per_instance": 1,
        "max_instances": 2,
        "max_idle_agent_period": "1s",
        "interruptions": INTERRUPTIONS,
    }
    pool = {"provider": provider, "agent_reconnect_wait": "2s"}
    directory = tmp_path_factory.mktemp("bucket")
    with moto_store() as store, pytest.MonkeyPatch.context() as patch, an_event_log() as event_log:
        for name, value in store.environ.items():
            patch.setenv(name, value)
        settings: dict[str, Any] = {"checkpoint_storage": dict(store.config), **new_db()}
        with live_cluster(directory, pool=pool, **settings) as cluster:
            script = [f"report {STEPS} every 0.05s", f"checkpoint every {CHECKPOINT_EVERY}"]
            variables = [f"{name}={value}" for name, value in store.environ.items()]
            experiment = cluster.submit(
                {"script": script, "event_log": f"{event_log}/"},
                environment={"environment_variables": variables},
                checkpoint_storage={"save_trial_latest": 1000},
            )
            state = experiment.wait(interval_s=0.2, timeout_s=180)
            (trial,) = experiment.list_trials()
            assert state == "COMPLETED", "".join(trial.iter_logs())
            yield Scenario(
                cluster=cluster,
                event_log=read_event_log(event_log),
                record=record_of(experiment, steps=STEPS, lost=cluster.lost_machines()),
                storage=storage_from_config(store.config, shared_fs_mount=None),
                trial_id=trial.id,
            )
    assert cluster.left_over() == []


def test_nothing_was_lost_and_nothing_ran_twice(scenario: Scenario) -> None:
    assert check(scenario.event_log, [scenario.record]) == []


def test_the_notice_was_enough_for_a_save_in_the_bucket_and_not_a_step_was_repeated(scenario: Scenario) -> None:
    saved = scenario.of_run(1, "save")[-1]
    (start,) = scenario.of_run(2, "start")
    assert (start["resumed_from"], start["step"]) == (saved["uuid"], saved["step"])
    assert saved["step"] == scenario.of_run(1, "step")[-1]["step"]


def test_a_sudden_loss_goes_back_to_the_last_committed_checkpoint(scenario: Scenario) -> None:
    """The one that the master knows: the kill may fall between its report and the line of the event log, at no cost."""
    (start,) = scenario.of_run(3, "start")
    before = [each for each in scenario.known() if run_of(each) < 3]
    last = max(before, key=lambda each: int(each.metadata["steps_completed"]))
    assert (start["resumed_from"], start["step"]) == (last.uuid, last.metadata["steps_completed"])
    assert start["step"] >= scenario.of_run(2, "save")[-1]["step"] >= KILL_AT - CHECKPOINT_EVERY


def test_what_is_in_the_bucket_can_be_fetched_from_it_and_through_the_master(
    scenario: Scenario, tmp_path: Path
) -> None:
    client = scenario.cluster.client
    known = sorted(each.uuid for each in scenario.known())
    assert [uuid for uuid in scenario.storage.list() if uuid not in scenario.killed_before_the_report()] == known
    client.checkpoints.download(known[0], tmp_path / "by-master", mode="master")
    client.checkpoints.download(known[0], tmp_path / "direct", mode="direct")
    assert found_in(tmp_path / "direct") == found_in(tmp_path / "by-master")
    assert client.checkpoints.verify(known[0]).hashes


def test_other_counts_empty_the_bucket_through_the_master(scenario: Scenario) -> None:
    """The last of these tests: it leaves one checkpoint."""
    client = scenario.cluster.client
    counts = PatchCheckpointStorage(save_experiment_best=0, save_trial_best=0, save_trial_latest=1)
    experiment = client.trials.get(scenario.trial_id).experiment_id
    known = {each.uuid for each in scenario.known()}
    client.experiments.patch(PatchExperiment(id=experiment, checkpoint_storage=counts))
    until("the others are removed", lambda: len(known.intersection(scenario.storage.list())) == 1)


def run_of(checkpoint: Checkpoint) -> int:
    return int((checkpoint.allocation_id or "").rpartition(".")[2])


def found_in(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }
