"""The released `det` drives this master unchanged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.api_released import ReleasedDet, created
from support.live import PASSWORD, LiveCluster, until

pytestmark = [pytest.mark.needs("determined"), pytest.mark.needs("namespaces"), pytest.mark.needs("postgres")]

TIMEOUT_S = 180.0
"""Machines start, tasks start; on a busy computer that takes a while."""


@pytest.fixture
def context(tmp_path: Path) -> Path:
    """A directory with a configuration, code, and something that must stay at home."""
    directory = tmp_path / "model"
    (directory / "pkg").mkdir(parents=True)
    (directory / "pkg" / "say.py").write_text('print("hello from the code")\n')
    (directory / "data.bin").write_bytes(b"x" * 1000)
    (directory / ".detignore").write_text("*.bin\n")
    (directory / "const.yaml").write_text(
        "name: released\n"
        'entrypoint: "python3 pkg/say.py && ls && sleep 0.5 && echo the end"\n'
        "searcher: {name: single, metric: loss, max_length: {batches: 1}}\n"
        "max_restarts: 0\n"
    )
    return directory


def test_login_and_who_it_is(det: ReleasedDet, cluster: LiveCluster, tmp_path: Path) -> None:
    assert "determined" in det("user", "whoami")
    assert "admin" in det("user", "list")
    wrong = ReleasedDet(tmp_path / "other", cluster.url, "determined", "wrong")
    refused = wrong.run("user", "whoami")
    assert refused.returncode != 0
    assert PASSWORD not in refused.stdout
    assert "cluster_id" in det("version")


def test_an_experiment_is_created_and_followed_to_its_end(
    det: ReleasedDet, cluster: LiveCluster, context: Path
) -> None:
    printed = det("experiment", "create", str(context / "const.yaml"), str(context), "-f")
    assert "hello from the code" in printed
    assert "data.bin" not in printed
    assert "the end" in printed
    assert "Trial log stream ended" in printed
    id_ = created(printed)
    assert "COMPLETED" in det("experiment", "describe", id_)
    assert id_ in det("experiment", "list")
    det("experiment", "wait", id_)
    logs = det("experiment", "logs", id_)
    assert "hello from the code" in logs and "|| INFO: the end" in logs
    trial = det("experiment", "list-trials", id_, "--csv").splitlines()[-1].split(",")[0]
    tail = det("trial", "logs", trial, "--tail", "1").splitlines()
    assert sum("|| " in line for line in tail) == 1 and any(line.endswith("ended: finished") for line in tail)
    assert "COMPLETED" in det("trial", "describe", trial)
    target = context.parent / "code"
    target.mkdir()
    det("experiment", "download-model-def", id_, "--output-dir", str(target))
    det("experiment", "archive", id_)
    assert "released" not in det("experiment", "list")
    det("experiment", "unarchive", id_)
    det("experiment", "delete", "--yes", id_)
    until("the experiment is gone", lambda: id_ not in [str(e.id) for e in cluster.client.list_experiments()])
    assert "released" not in det("experiment", "list", "--all")


def test_bad_input_is_told_in_our_words(det: ReleasedDet, context: Path) -> None:
    (context / "const.yaml").write_text("nmae: x\nentrypoint: run\nsearcher: {name: single, metric: loss}\n")
    refused = det("experiment", "create", str(context / "const.yaml"), str(context), code=1)
    assert "nmae" in refused and "name" in refused and "Traceback" not in refused
    assert "experiment '999' not found" in det("experiment", "describe", "999", code=1)


def test_the_lists_of_every_day(det: ReleasedDet, cluster: LiveCluster, context: Path) -> None:
    config = (context / "const.yaml").read_text().replace("sleep 0.5", "sleep 600")
    (context / "const.yaml").write_text(config)
    printed = det("experiment", "create", "--paused", str(context / "const.yaml"), str(context))
    id_ = created(printed)
    assert "PAUSED" in det("experiment", "describe", id_)
    det("experiment", "activate", id_)
    reaches(cluster, id_, "RUNNING")
    assert "default-" in det("agent", "list")
    for command in (("slot", "list"), ("job", "list"), ("task", "list"), ("workspace", "list"), ("master", "info")):
        assert det(*command)
    det("experiment", "set", "name", id_, "renamed")
    det("experiment", "label", "add", id_, "mine")
    shown = det("experiment", "describe", id_)
    assert "renamed" in shown and "mine" in shown
    assert "name: " in det("experiment", "config", id_)
    det("experiment", "kill", id_)
    reaches(cluster, id_, "CANCELED")
    assert "1" in det("preview-search", str(context / "const.yaml"))
    searched = context / "adaptive.yaml"
    searched.write_text(
        "name: searched\nentrypoint: run\nhyperparameters: {x: {type: double, minval: 0, maxval: 1}}\n"
        "searcher: {name: adaptive_asha, metric: loss, max_trials: 10, max_time: 100, time_metric: batches}\n"
    )
    previewed = det("preview-search", str(searched)).splitlines()
    assert [[cell.strip() for cell in line.split("|")] for line in previewed[-2:]] == [
        ["6", "train for 25 batches"],
        ["4", "train for 100 batches"],
    ]


def sleeping(det: ReleasedDet, context: Path, *more: str) -> str:
    """An experiment that does nothing for long."""
    file = context / "const.yaml"
    file.write_text(file.read_text().replace("sleep 0.5", "sleep 600"))
    return created(det("experiment", "create", str(file), str(context), *more))


def reaches(cluster: LiveCluster, id_: str, state: str) -> None:
    """Asked by our own client, which starts no process for it."""
    client = cluster.client
    until(f"experiment {id_} is {state}", lambda: client.get_experiment(int(id_)).state == state, within_s=TIMEOUT_S)


def test_workspaces_and_the_pools_that_are_for_them(det: ReleasedDet, admin: ReleasedDet, context: Path) -> None:
    assert "Vision" in det("workspace", "create", "Vision", "--default-compute-pool", "default")
    assert "Sight" in det("workspace", "edit", "Vision", "--name", "Sight", "--default-aux-pool", "pool-2")
    assert "Digits" in det("project", "create", "Sight", "Digits", "--description", "ten of them")
    assert "ten of them" in det("project", "describe", "Sight", "Digits")
    bindings = ("resource-pool", "bindings")
    assert "may not bind" in det(*bindings, "add", "pool-2", "Sight", code=1)
    admin(*bindings, "add", "pool-2", "Sight")
    assert "Sight" in admin(*bindings, "list-workspaces", "pool-2")
    assert "pool-2" in det("workspace", "list-pools", "Sight")
    assert "pool-2" not in det("workspace", "list-pools", "Uncategorized")
    where = ("--config", "resources.resource_pool=pool-2", "--config", "resources.slots_per_trial=0")
    file = str(context / "const.yaml")
    refused = det("experiment", "create", "--paused", file, str(context), *where, code=1)
    assert "pool 'pool-2' is bound to other workspaces than 'Uncategorized', which may use 'default'" in refused
    place = ("--config", "workspace=Sight", "--config", "project=Digits")
    id_ = created(det("experiment", "create", "--paused", file, str(context), *where, *place))
    assert id_ in det("project", "list-experiments", "Sight", "Digits")
    admin(*bindings, "replace", "pool-2", "Sight", "Uncategorized")
    det("experiment", "move", id_, "Uncategorized", "Uncategorized")
    admin(*bindings, "remove", "pool-2", "Sight", "Uncategorized")
    det("experiment", "kill", id_)


def test_places_are_edited_archived_and_deleted(det: ReleasedDet, admin: ReleasedDet, context: Path) -> None:
    det("workspace", "create", "Attic")
    det("project", "create", "Attic", "Old")
    shown = det(
        "project", "edit", "Attic", "Old", "--new_name", "Older", "--description", "of last year", "--key", "old"
    )
    assert "Older" in shown and "of last year" in shown and "OLD" in shown
    file, place = str(context / "const.yaml"), ("--config", "workspace=Attic", "--config", "project=Older")
    id_ = created(det("experiment", "create", "--paused", file, str(context), *place))
    refused = det("project", "delete", "Attic", "Older", "--yes", code=1)
    assert f"holds 1 experiment that has not ended; end them first (det experiment kill {id_})" in refused
    det("experiment", "kill", id_)
    assert "archived project" in det("project", "archive", "Attic", "Older")
    refused = det("experiment", "create", "--paused", file, str(context), *place, code=1)
    assert "archived; unarchive it first (det project unarchive Attic Older)" in refused
    assert "archived project" in det("project", "unarchive", "Attic", "Older")
    assert "archived workspace Attic" in det("workspace", "archive", "Attic")
    assert "archived; unarchive it first" in det("project", "unarchive", "Attic", "Older", code=1)
    assert "archived workspace Attic" in det("workspace", "unarchive", "Attic")
    assert "Project deleted successfully" in det("project", "delete", "Attic", "Older", "--yes")
    assert "not found" in det("experiment", "describe", id_, code=1)
    assert "Successfully deleted workspace Attic" in det("workspace", "delete", "Attic", "--yes")
    det("workspace", "create", "Attic")
    det("project", "create", "Attic", "New")
    assert "Workspace deleted successfully" in det("workspace", "delete", "Attic", "--yes")
    assert "always exists: it cannot be deleted" in admin("workspace", "delete", "Uncategorized", "--yes", code=1)


def test_people_are_managed(det: ReleasedDet, admin: ReleasedDet, cluster: LiveCluster, tmp_path: Path) -> None:
    admin("user", "create", "user1", "--password", "Secret-Word-1")
    assert "exists already" in admin("user", "create", "user1", "--password", "Secret-Word-1", code=1)
    assert "may not create users" in det("user", "create", "user2", "--password", "Secret-Word-1", code=1)
    admin("user", "rename", "user1", "user2")
    admin("user", "edit", "user2", "--display-name", "The Second")
    assert "The Second" in admin("user", "list")
    admin("user", "change-password", "user2", typed="Secret-Word-2\nSecret-Word-2\n")
    second = ReleasedDet(tmp_path / "second", cluster.url, "user2", "Secret-Word-2")
    assert "user2" in second("user", "whoami")
    admin("user", "deactivate", "user2")
    assert second.run("user", "whoami").returncode != 0
    admin("user", "activate", "user2")
    assert "token" not in second("user", "login", "user2", typed="Secret-Word-2\n")
    assert "user2" in second("user", "whoami")
    det("user", "whoami")
    det("user", "logout")


def test_an_experiment_is_changed_while_it_lives(
    det: ReleasedDet, admin: ReleasedDet, cluster: LiveCluster, context: Path
) -> None:
    id_ = sleeping(det, context)
    for what, value in (
        ("name", "renamed"), ("description", "for the night"), ("max-slots", "1"), ("weight", "2.5"), ("priority", "7"),
    ):  # fmt: skip
        det("experiment", "set", what, id_, value)
    det("experiment", "label", "add", id_, "first")
    det("experiment", "label", "remove", id_, "first")
    config = det("experiment", "config", id_)
    assert "priority: 7" in config and "weight: 2.5" in config and "max_slots: 1" in config
    job = next(line.split("|")[1].strip() for line in det("job", "list").splitlines() if "renamed" in line)
    det("job", "update", job, "--priority", "9")
    assert "priority: 9" in det("experiment", "config", id_)
    det("job", "update-batch", f"{job}.priority=11", f"{job}.weight=3")
    assert "priority: 11" in det("experiment", "config", id_)
    assert "priority: 100" in det("job", "update", job, "--priority", "100", code=1)
    det("experiment", "pause", id_)
    reaches(cluster, id_, "PAUSED")
    det("experiment", "activate", id_)
    det("experiment", "move", id_, "Uncategorized", "Uncategorized")
    trial = det("experiment", "list-trials", id_, "--csv").splitlines()[-1].split(",")[0]
    det("trial", "kill", trial)
    reaches(cluster, id_, "CANCELED")
    det("trial", "set", "log-retention", trial, "--forever")
    assert "Deleted 0 rows" in admin("task", "cleanup-logs")
    det("experiment", "set", "log-retention", id_, "--days", "0")
    assert "-1 and 32767" in det("experiment", "set", "log-retention", id_, "--days", "40000", code=1)
    assert "may not remove old logs" in det("task", "cleanup-logs", code=1)
    assert "Deleted 0 rows" not in admin("task", "cleanup-logs")
    assert "waits for 1 slot" not in det("trial", "logs", trial)
    other = sleeping(det, context, "--paused")
    det("experiment", "cancel", other)
    reaches(cluster, other, "CANCELED")


def test_machines_are_taken_out_of_service(
    det: ReleasedDet, admin: ReleasedDet, cluster: LiveCluster, context: Path
) -> None:
    id_ = sleeping(det, context)
    reaches(cluster, id_, "RUNNING")
    agent = next(word for word in det("slot", "list").split() if word.startswith("default-"))
    task = next(iter(json.loads(det("task", "list", "--json")).values()))["taskId"]
    assert "placed on" in det("task", "logs", task)
    assert "may not enable and disable agents" in det("agent", "disable", agent, "--drain", code=1)
    admin("agent", "disable", agent, "--drain")
    assert "true" in next(line for line in det("agent", "list").splitlines() if agent in line).lower()
    admin("agent", "enable", agent)
    admin("slot", "disable", agent, "0")
    admin("slot", "enable", agent, "0")
    assert "not found" in admin("agent", "disable", "agent-9", code=1)
    det("experiment", "kill", id_)
    reaches(cluster, id_, "CANCELED")


def test_templates_fill_what_a_configuration_leaves_out(det: ReleasedDet, context: Path, tmp_path: Path) -> None:
    file = tmp_path / "template.yaml"
    file.write_text("description: from a template\nmax_restarts: 4\n")
    det("template", "set", "base1", str(file))
    file.write_text("description: from the changed template\n")
    det("template", "set", "base1", str(file))
    det("template", "create", "base2", str(file))
    assert "base1" in det("template", "list") and "changed" in det("template", "describe", "base1")
    printed = det("experiment", "create", str(context / "const.yaml"), str(context), "--template", "base1", "--paused")
    assert "from the changed template" in det("experiment", "config", created(printed))
    det("experiment", "kill", created(printed))
    det("template", "remove", "base2")
    file.write_text("max_restart: 4\n")
    det("template", "set", "base1", str(file))  # some kind of task may have it: what is made with it tells
    made = ("experiment", "create", str(context / "const.yaml"), str(context), "--template", "base1", "--paused")
    refused = det(*made, code=1)
    assert "base1" in refused and "max_restart" in refused and "max_restarts" in refused


def test_the_master_tells_about_itself(det: ReleasedDet, admin: ReleasedDet) -> None:
    assert "cluster_name" in admin("master", "config", "show")
    assert "may not see the master's configuration" in det("master", "config", "show", code=1)
    admin("master", "config", "set", "--log.level", "DEBUG")
    admin("master", "config", "set", "--log.level", "INFO")
    assert det("master", "logs", "--tail", "3").strip()
    assert "Uncategorized" in det("workspace", "describe", "Uncategorized")
    assert "Uncategorized" in det("project", "list", "Uncategorized")
    version = det("version")
    assert "0.38.1" in version and "Consider upgrading" not in det("user", "whoami")
    assert "resolute_version" in version


def test_bad_input_is_told_by_every_command(det: ReleasedDet, context: Path) -> None:
    uuid = "00000000-0000-4000-8000-000000000009"
    for command, said in (
        (("experiment", "pause", "999"), "experiment '999' not found"),
        (("trial", "logs", "999"), "trial '999' not found"),
        (("checkpoint", "describe", uuid), f"checkpoint '{uuid}' not found"),
        (("template", "describe", "base9"), "template 'base9' not found"),
        (("user", "rename", "user9", "user8"), "user9"),
        (("task", "logs", f"9.{uuid}"), "not found"),
    ):
        refused = det(*command, code=1)
        assert said in refused, (command, refused)
    (context / "const.yaml").write_text("nmae: x\nentrypoint: run\nsearcher: {name: single, metric: loss}\n")
    assert "nmae" in det("preview-search", str(context / "const.yaml"), code=1)
