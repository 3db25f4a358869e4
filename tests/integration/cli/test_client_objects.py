"""The objects for scripts, over HTTP against a small master."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from resolute.client import Resolute
from resolute.errors import FailedPrecondition, InvalidInput, NotFound, Unauthenticated, Unavailable
from resolute.wire.rest.enums import WireExperimentState
from support.cli_master import FakeMaster, decoded_files, running
from support.cli_messages import PASSWORD, START, UUID, a_checkpoint, a_log_line, a_trial, an_experiment


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMaster]:
    monkeypatch.setenv("DET_DEBUG_CONFIG_PATH", str(tmp_path / "config"))
    made = FakeMaster(
        experiments={1: an_experiment()},
        trials={1: a_trial()},
        checkpoints=(a_checkpoint(),),
        logs=(a_log_line(1, "one"), a_log_line(2, "two")),
    )
    with running(made):
        yield made


@pytest.fixture
def resolute(master: FakeMaster) -> Iterator[Resolute]:
    with Resolute(master.url, user="determined", password=PASSWORD) as made:
        yield made


def play(master: FakeMaster, *states: WireExperimentState) -> None:
    """The experiment goes through these states, one each time it is asked for, and stays in the last."""
    left = list(states)

    def advance(fake: FakeMaster, number: int) -> None:
        state = left.pop(0) if len(left) > 1 else left[0]
        fake.experiments[number] = replace(fake.experiments[number], state=state)

    master.on_get_experiment = advance


def test_a_wrong_password_is_refused(master: FakeMaster) -> None:
    with pytest.raises(Unauthenticated):
        Resolute(master.url, user="determined", password="wrong")
    with pytest.raises(Unauthenticated, match="no password for user 'ada'"):
        Resolute(master.url, user="ada")


def test_an_experiment_is_submitted_from_values_and_files(
    resolute: Resolute, master: FakeMaster, tmp_path: Path
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model/train.py").write_text("pass")
    config = {"name": "from python", "searcher": {"name": "single"}}
    experiment = resolute.create_experiment(config, tmp_path / "model")
    assert (experiment.id, experiment.config) == (2, config)
    assert decoded_files(master.created[0]) == {"train.py": b"pass"}
    (tmp_path / "c.yaml").write_text("name: from file\nsearcher: {name: single}\n")
    assert resolute.create_experiment(tmp_path / "c.yaml").config["name"] == "from file"
    with pytest.raises(InvalidInput, match="cannot read the configuration"):
        resolute.create_experiment("no such file.yaml")


def test_waiting_ends_with_the_last_state(resolute: Resolute, master: FakeMaster) -> None:
    experiment = resolute.get_experiment(1)
    play(master, WireExperimentState.QUEUED, WireExperimentState.RUNNING, WireExperimentState.COMPLETED)
    pauses: list[float] = []
    assert experiment.wait(interval_s=2.0, pause=pauses.append) == "COMPLETED"
    assert pauses == [2.0, 2.0]


def test_waiting_does_not_wait_for_what_is_paused_unless_told_to(resolute: Resolute, master: FakeMaster) -> None:
    experiment = resolute.get_experiment(1)
    play(master, WireExperimentState.RUNNING, WireExperimentState.PAUSED)
    with pytest.raises(FailedPrecondition, match="experiment 1 is paused"):
        experiment.wait(pause=lambda _: None)
    play(master, WireExperimentState.PAUSED, WireExperimentState.CANCELED)
    assert experiment.wait(through_pauses=True, pause=lambda _: None) == "CANCELED"


def test_waiting_has_an_end_of_its_own(resolute: Resolute) -> None:
    with pytest.raises(Unavailable, match="still RUNNING after 10 s"):
        resolute.get_experiment(1).wait(interval_s=5.0, timeout_s=10.0, pause=lambda _: None)


def test_the_first_trial_is_awaited(resolute: Resolute, master: FakeMaster) -> None:
    experiment = resolute.get_experiment(1)
    master.trials.clear()

    def appear(seconds: float) -> None:
        master.trials[5] = a_trial(5)

    assert experiment.await_first_trial(pause=appear).id == 5


def test_a_trial_that_never_comes_is_not_awaited(resolute: Resolute, master: FakeMaster) -> None:
    experiment = resolute.get_experiment(1)
    master.trials.clear()
    play(master, WireExperimentState.RUNNING, WireExperimentState.ERROR)
    with pytest.raises(FailedPrecondition, match="ended as ERROR before it had a trial"):
        experiment.await_first_trial(pause=lambda _: None)


def test_changes_come_back(resolute: Resolute, master: FakeMaster) -> None:
    experiment = resolute.get_experiment(1)
    experiment.set_name("better")
    assert experiment.details.name == "better"
    experiment.add_label("a/b c")
    assert master.experiments[1].labels == ("a/b c",)
    for verb in ("activate", "pause", "cancel", "kill", "archive", "unarchive"):
        getattr(experiment, verb)()
        assert len(master.asked("POST", f"/api/v1/experiments/1/{verb}")) == 1
    experiment.delete()
    with pytest.raises(NotFound) as caught:
        experiment.reload()
    assert (caught.value.kind, caught.value.key) == ("experiment", "1")


def test_trials_give_logs_and_attempts(resolute: Resolute) -> None:
    trial = resolute.get_experiment(1).list_trials()[0]
    assert [line.rpartition(": ")[2] for line in trial.iter_logs()] == ["one\n", "two\n"]
    (attempt,) = trial.list_allocations()
    assert (attempt.allocation_id, attempt.start_time) == ("1.task.1", START)
    assert trial.get_experiment().id == 1


def test_the_best_checkpoint_is_downloaded(resolute: Resolute, master: FakeMaster, tmp_path: Path) -> None:
    best = resolute.get_trial(1).list_checkpoints(max_results=1)[0]
    assert best.uuid == UUID
    heard: list[tuple[int, int]] = []
    path = best.download(tmp_path / "best", progress=lambda done, total: heard.append((done, total)))
    assert (path / "state/weights.bin").read_bytes() == b"12345"
    assert heard[-1] == (len(master.checkpoint_archive), len(master.checkpoint_archive))


def test_the_cluster_answers_in_values(resolute: Resolute) -> None:
    assert [agent.id for agent in resolute.agents.list()] == ["agent-1"]
    assert [pool.name for pool in resolute.queue.pools()] == ["default"]
    totals = resolute.cluster.ledger().totals
    parts = (totals.useful_s, totals.starting_s, totals.checkpointing_s, totals.lost_s, totals.idle_s)
    assert sum(parts) == totals.paid_s
    assert resolute.cluster.instances()[0].notice is not None
    assert resolute.cluster.decisions(10)[0].kind == "launch"
    assert resolute.users.me().username == "determined"
