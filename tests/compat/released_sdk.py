"""The released SDK, as a notebook uses it: `released_sdk.py <password> <directory with released_trial.py>`."""

import json
import pathlib
import sys
import tempfile
import time

from determined.experimental import client


def until(what, read):
    end = time.monotonic() + 120
    while time.monotonic() < end:
        found = read()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within two minutes")


def main() -> None:
    _, password, directory, config = sys.argv
    client.login(user="determined", password=password)
    assert client.whoami().username == "determined"
    assert {"admin", "determined"} <= {user.username for user in client.list_users()}
    assert client.get_user_by_id(client.get_user_by_name("admin").user_id).username == "admin"
    assert "Uncategorized" in {workspace.name for workspace in client.list_workspaces()}
    finished = followed(json.loads(config), directory)
    trial = results(finished)
    checkpoints(finished, trial)
    described(finished)
    controlled(json.loads(config), directory)
    places()
    client.logout()
    print("the SDK got all it asked for")


def places():
    workspace = client.create_workspace("Laboratory")
    project = workspace.create_project("first")
    project.set_name("second")
    project.set_description("by the SDK")
    project.set_key("sdk")
    project.add_note("a note", "its contents")
    project.add_note("another", "")
    project.remove_note("another")
    project.archive()
    project.reload()
    assert (project.name, project.description, project.key, project.archived) == ("second", "by the SDK", "SDK", True)
    assert project.notes == [{"name": "a note", "contents": "its contents"}]
    project.unarchive()
    workspace.delete_project("second")
    until("the project is gone", lambda: not workspace.list_projects())
    client.delete_workspace("Laboratory")
    until("the workspace is gone", lambda: "Laboratory" not in {each.name for each in client.list_workspaces()})


def followed(config, directory):
    experiment = client.create_experiment(config, directory)
    assert experiment.wait(interval=0.1) == client.ExperimentState.COMPLETED
    assert experiment.id in {e.id for e in client.list_experiments()}
    assert client.get_experiment(experiment.id).name == config["name"]
    return experiment


def results(experiment):
    trial = experiment.await_first_trial()
    assert [t.id for t in experiment.list_trials()] == [t.id for t in experiment.iter_trials()] == [trial.id]
    assert client.get_trial(trial.id).get_experiment().id == experiment.id
    steps = list(range(1, 6))
    assert [m.steps_completed for m in trial.iter_metrics("training")] == steps
    assert [m.metrics["loss"] for m in trial.iter_metrics("validation")] == [0.2]
    assert [m.steps_completed for m in trial.stream_training_metrics()] == steps
    assert [m.steps_completed for m in trial.stream_validation_metrics()] == [5]
    assert len(list(client.iter_trials_metrics([trial.id], "training"))) == 5
    assert any("finished at step 5" in line for line in trial.iter_logs())
    return trial


def checkpoints(experiment, trial):
    (saved,) = experiment.list_checkpoints()
    assert saved.uuid == trial.top_checkpoint().uuid == experiment.top_checkpoint().uuid
    assert [c.uuid for c in trial.list_checkpoints()] == [saved.uuid]
    again = client.get_checkpoint(saved.uuid)
    assert again.training.validation_metrics["avgMetrics"] == {"loss": 0.2}
    with tempfile.TemporaryDirectory() as below:
        path = again.download(f"{below}/saved", mode=client.DownloadMode.MASTER)
        assert json.loads((pathlib.Path(path) / "state.json").read_text()) == {"done": 5}
    again.add_metadata({"quality": "good"})
    assert client.get_checkpoint(saved.uuid).metadata["quality"] == "good"
    again.remove_metadata(["quality"])
    assert "quality" not in client.get_checkpoint(saved.uuid).metadata
    assert list(again.get_metrics("inference")) == []
    again.remove_files(["state.json"])
    left = until("the file is gone", lambda: "state.json" not in client.get_checkpoint(saved.uuid).resources)
    assert left and client.get_checkpoint(saved.uuid).state.name in ("PARTIALLY_DELETED", "DELETED")
    again.delete()
    until("the checkpoint is gone", lambda: client.get_checkpoint(saved.uuid).state.name == "DELETED")


def described(experiment):
    experiment.set_name("renamed")
    experiment.set_description("by the SDK")
    experiment.set_notes("notes")
    experiment.add_label("one")
    experiment.set_labels({"two", "three"})
    experiment.remove_label("three")
    experiment.reload()
    assert (experiment.name, experiment.description, experiment.notes) == ("renamed", "by the SDK", "notes")
    assert set(experiment.labels) == {"two"}
    experiment.move_to_project("Uncategorized", "Uncategorized")
    experiment.delete_tensorboard_files()
    with tempfile.TemporaryDirectory() as below:
        assert pathlib.Path(experiment.download_code(below)).stat().st_size > 0
    experiment.archive()
    experiment.unarchive()
    experiment.delete()


def controlled(config, directory):
    long = {**config, "hyperparameters": {"steps": 100000}}
    experiment = client.create_experiment(long, directory)
    trial = experiment.await_first_trial()
    experiment.pause()
    experiment.activate()
    experiment.cancel()
    assert experiment.wait(interval=0.1) == client.ExperimentState.CANCELED
    experiment = client.create_experiment(long, directory)
    trial = experiment.await_first_trial()
    trial.kill()
    experiment.kill()
    assert experiment.wait(interval=0.1) == client.ExperimentState.CANCELED


main()
