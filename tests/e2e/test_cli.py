"""The `det` command as a person uses it, from login to deletion, on a cluster of real processes."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.det import Det
from support.live import PASSWORD, LiveCluster, live_cluster, until
from support.new_db import NewDb

PERSON = {"DET_USER": "determined", "DET_PASS": PASSWORD}
ADMIN = {"DET_USER": "admin", "DET_PASS": PASSWORD}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, new_db: NewDb) -> Iterator[LiveCluster]:
    """One machine that stays."""
    provider = {"type": "local", "slots_per_instance": 1, "min_instances": 1, "max_instances": 1, "price_per_hour": 2}
    with live_cluster(tmp_path_factory.mktemp("cli"), pool={"provider": provider}, **new_db()) as running:
        yield running
    assert running.left_over() == []


@pytest.fixture
def det(cluster: LiveCluster, tmp_path: Path) -> Det:
    """A person with an empty home, logged in."""
    person = Det(tmp_path / "home", cluster.url)
    assert "Logged in as user 'determined'" in person("user", "login", variables=PERSON)
    return person


def write_experiment(det: Det, *script: str, **changes: Any) -> str:
    """The name of a configuration file in the person's directory."""
    config = {
        "name": "scripted",
        "entrypoint": "python3 -m resolute.testing.scripted_trial",
        "searcher": {"name": "single", "metric": "loss", "max_length": 1000},
        "hyperparameters": {"script": list(script)},
        "max_restarts": 0,
        **changes,
    }
    (det.home / "experiment.yaml").write_text(yaml.safe_dump(config))
    return "experiment.yaml"


def create(det: Det, *script: str, **changes: Any) -> int:
    answer = det.json("experiment", "create", str(det.home / write_experiment(det, *script, **changes)))
    number: int = answer["id"]
    return number


def state_of(det: Det, experiment: int) -> str:
    (described,) = det.json("experiment", "describe", str(experiment))
    text: str = described["experiment"]["state"]
    return text.removeprefix("STATE_")


def running(det: Det, experiment: int) -> bool:
    """It has a trial that has done steps."""
    trials = det.json("experiment", "list-trials", str(experiment))
    return any(trial["totalBatchesProcessed"] > 0 for trial in trials)


def ended(det: Det, experiment: int, *, well: bool = True) -> str:
    command = ("experiment", "wait", str(experiment), "--polling-interval", "1")
    return det(*command, code=0 if well else 1)


def agent_of(det: Det) -> Mapping[str, Any]:
    agents: list[Mapping[str, Any]] = until("the machine has joined", lambda: det.json("agent", "list") or None)
    assert len(agents) == 1
    return agents[0]


# ---------------------------------------------------------------------------------------------------------- who one is


def test_a_wrong_password_is_refused_and_nothing_is_kept(cluster: LiveCluster, tmp_path: Path) -> None:
    stranger = Det(tmp_path / "home", cluster.url)
    said = stranger.refused("user", "login", "determined", variables={**PERSON, "DET_PASS": "wrong"})
    assert "password" in said and "determined" in said
    assert "Log in with" in stranger.refused("experiment", "list")


def test_a_login_lasts_until_the_logout(det: Det) -> None:
    assert "determined" in det("user", "whoami")
    assert det.json("user", "whoami")["username"] == "determined"
    det("user", "logout")
    assert "Log in with" in det.refused("user", "whoami")


def test_a_master_that_is_not_there_is_named_with_what_to_do(tmp_path: Path) -> None:
    lost = Det(tmp_path / "home", "http://127.0.0.1:9")
    said = lost.refused("experiment", "list")
    assert "127.0.0.1:9" in said and "det deploy local cluster-up" in said


# --------------------------------------------------------------------------------------------------------- experiments


def test_an_experiment_from_its_creation_to_its_checkpoint(det: Det) -> None:
    model = det.home / "model"
    (model / "data").mkdir(parents=True)
    (model / "net.py").write_text("width = 7\n")
    (model / "data" / "big.bin").write_text("not for the cluster")
    (model / ".detignore").write_text("data/\n")
    config = write_experiment(det, "log 20 lines", "report 10 every 0.02s", "checkpoint every 5")
    said = det("experiment", "create", config, "model", "-f")
    number = int(said.split("Created experiment ")[1].split()[0])
    lines = [line.rsplit("line ", 1)[1] for line in said.splitlines() if "|| INFO: line " in line]
    assert lines == [str(each) for each in range(20)], "every line of the task, once and in order"
    assert "Experiment" in ended(det, number) and state_of(det, number) == "COMPLETED"

    listed = {each["id"]: each for each in det.json("experiment", "list")}
    assert (listed[number]["name"], listed[number]["progress"]) == ("scripted", 1.0)
    (trial,) = det.json("experiment", "list-trials", str(number))
    assert (trial["state"], trial["totalBatchesProcessed"]) == ("STATE_COMPLETED", 10)
    described = det.json("trial", "describe", str(trial["id"]))
    assert described["trial"]["latestValidation"]["metrics"]["avgMetrics"]["loss"] == pytest.approx(1 / 11)
    logs = det("trial", "logs", str(trial["id"]))
    assert det("experiment", "logs", str(number)) == logs
    assert all(f"line {each}\n" in logs for each in range(20))

    best = max(det.json("checkpoint", "list", str(number)), key=lambda each: each["metadata"]["steps_completed"])
    assert det.json("checkpoint", "describe", best["uuid"])["uuid"] == best["uuid"]
    for mode in ("direct", "master"):
        det("checkpoint", "download", best["uuid"], "-o", mode, "--mode", mode)
        assert json.loads((det.home / mode / "state.json").read_text())["step"] == 10
        assert (det.home / mode / "code" / "net.py").read_text() == "width = 7\n"
        assert not (det.home / mode / "code" / "data").exists()

    det("experiment", "download-model-def", str(number))
    with tarfile.open(det.home / f"experiment_{number}_model_def.tgz") as archive:
        assert {member.name.removeprefix("./") for member in archive if member.isfile()} >= {"net.py"}


def test_a_paused_trial_is_saved_and_goes_on_where_it_was(det: Det) -> None:
    number = create(det, "report 300 every 0.02s")
    until("it does steps", lambda: running(det, number))
    det("experiment", "pause", str(number))
    until("its slot is free", lambda: [s["Allocation ID"] for s in det.json("slot", "list")] == ["FREE"])
    assert state_of(det, number) == "PAUSED"
    det("experiment", "activate", str(number))
    ended(det, number)
    (trial,) = det.json("experiment", "list-trials", str(number))
    first, second = attempts_of(det, number)
    assert first["preempted"] is True and first["exitCode"] == 0
    assert second["stepsAtStart"] == first["stepsAtEnd"] == first["stepsKept"] > 0
    assert trial["restarts"] == 0


def test_cancelling_saves_and_killing_does_not(det: Det) -> None:
    for verb, saved in (("cancel", 1), ("kill", 0)):
        number = create(det, "report 5000 every 0.02s")
        until("it does steps", partial(running, det, number))
        det("experiment", verb, str(number))
        assert "CANCELED" in ended(det, number, well=False)
        assert len(det.json("checkpoint", "list", str(number))) == saved, verb


def test_a_trial_that_fails_says_why(det: Det) -> None:
    number = create(det, "report 3 every 0.01s", "exit 9")
    assert "ERROR" in ended(det, number, well=False)
    (trial,) = det.json("experiment", "list-trials", str(number))
    assert trial["state"] == "STATE_ERROR"
    (allocation,) = attempts_of(det, number)
    assert allocation["exitCode"] == 9 and "9" in allocation["exitReason"]


def test_an_archived_experiment_is_hidden_and_a_deleted_one_is_gone(det: Det, cluster: LiveCluster) -> None:
    number = create(det, "report 4 every 0.01s", "checkpoint every 2")
    ended(det, number)
    uuids = [each["uuid"] for each in det.json("checkpoint", "list", str(number))]
    assert uuids and all((cluster.storage / uuid / "state.json").exists() for uuid in uuids)
    det("experiment", "archive", str(number))
    assert number not in [each["id"] for each in det.json("experiment", "list")]
    assert number in [each["id"] for each in det.json("experiment", "list", "--all")]
    det("experiment", "unarchive", str(number))
    assert number in [each["id"] for each in det.json("experiment", "list")]
    det("experiment", "delete", str(number), "--yes")
    until("its files are gone", lambda: not any((cluster.storage / uuid).exists() for uuid in uuids))
    until("it is gone", lambda: number not in [each["id"] for each in det.json("experiment", "list", "--all")])
    assert str(number) in det.refused("experiment", "describe", str(number))


# ----------------------------------------------------------------------------------------------------------- the queue


def test_the_queue_says_who_is_next_and_why_one_waits(det: Det) -> None:
    numbers = [create(det, "report 5000 every 0.02s") for _ in range(3)]
    until("the first does steps", lambda: running(det, numbers[0]))
    queue = [each["full"] for each in det.json("job", "list")]
    assert [int(each["entityId"]) for each in queue] == numbers
    last = queue[2]["jobId"]
    explained = det.json("job", "explain", last)
    assert explained["jobId"] == last and explained["reason"]
    assert explained["reason"] in det("job", "explain", last)
    det("job", "update", last, "--priority", "3")
    assert int(det.json("job", "list")[0]["full"]["entityId"]) in (numbers[0], numbers[2])
    det("experiment", "kill", str(numbers[0]))
    until("the one of the better priority runs", lambda: running(det, numbers[2]))
    assert not running(det, numbers[1])
    for number in numbers[1:]:
        det("experiment", "kill", str(number))


def attempts_of(det: Det, experiment: int) -> list[Mapping[str, Any]]:
    (trial,) = det.json("experiment", "list-trials", str(experiment))
    found: list[Mapping[str, Any]] = det.json("trial", "describe", str(trial["id"]))["allocations"]
    return found


def test_a_drained_agent_finishes_its_own_work_and_takes_no_other(det: Det) -> None:
    agent = agent_of(det)["id"]
    first = create(det, "report 100 every 0.02s")
    until("it does steps", lambda: running(det, first))
    det("agent", "disable", agent, "--drain", variables=ADMIN)
    assert agent_of(det)["draining"] is True
    second = create(det, "report 2 every 0.01s")
    ended(det, first)
    assert [each["agentIds"] for each in attempts_of(det, first)] == [[agent]], "it was not interrupted"
    ended(det, second)
    assert [agent] not in [each["agentIds"] for each in attempts_of(det, second)], "the pool replaced the machine"


def test_agents_and_slots_are_closed_and_opened(det: Det) -> None:
    agent = agent_of(det)["id"]
    det("agent", "disable", agent, variables=ADMIN)
    assert agent_of(det)["enabled"] is False
    det("agent", "enable", agent, variables=ADMIN)
    assert agent_of(det)["enabled"] is True
    det("slot", "disable", agent, "0", variables=ADMIN)
    assert [slot["Enabled"] for slot in det.json("slot", "list")] == [False]
    det("slot", "enable", agent, "0", variables=ADMIN)
    assert [slot["Enabled"] for slot in det.json("slot", "list")] == [True]


# ----------------------------------------------------------------------------------------------------- the whole of it


def test_the_cluster_accounts_for_itself(det: Det) -> None:
    number = create(det, "report 20 every 0.02s", "checkpoint every 10")
    ended(det, number)
    (instance,) = [each for each in det.json("instance", "list") if each["state"] != "gone"]
    ledger = det.json("ledger")
    (book,) = [each for each in ledger["instances"] if each["instanceId"] == instance["id"]]
    row = book["row"]
    parts = [row[name] for name in ("usefulS", "startingS", "checkpointingS", "lostS", "idleS")]
    assert sum(parts) == pytest.approx(row["paidS"], abs=1e-3) and row["usefulS"] > 0
    assert row["cost"] == pytest.approx(row["paidS"] * 2 / 3600, rel=1e-3)
    assert {"launch", "join", "place"} <= {each["kind"] for each in det.json("decisions", "--limit", "1000")}


READING = [
    "user whoami",
    "user list",
    "master info",
    "agent list",
    "slot list",
    "resource-pool list",
    "job list",
    "task list",
    "experiment list --all",
    "experiment describe {experiment}",
    "experiment list-trials {experiment}",
    "experiment list-checkpoints {experiment}",
    "experiment config {experiment}",
    "trial describe {trial}",
    "trial list-checkpoints {trial}",
    "checkpoint list",
    "instance list",
    "ledger",
    "decisions",
    "version",
]


def test_every_reading_command_speaks_to_people_and_to_programs(det: Det) -> None:
    number = create(det, "report 4 every 0.01s", "checkpoint every 2")
    ended(det, number)
    (trial,) = det.json("experiment", "list-trials", str(number))
    for command in READING:
        words = command.format(experiment=number, trial=trial["id"]).split()
        assert det.text(*words).strip(), command
        det.json(*words)
    for line in det.text("trial", "logs", str(trial["id"]), "--json").splitlines():
        assert json.loads(line)["log"]
    shown = json.loads(det("master", "config", "--json", variables=ADMIN))
    assert PASSWORD not in json.dumps(shown), "secrets are not shown"
    assert "may not see" in det.refused("master", "config")


def test_a_follower_sees_lines_as_they_come(det: Det) -> None:
    number = create(det, "log 1 lines", "sleep 600s")
    trial = until("it has a trial", lambda: det.json("experiment", "list-trials", str(number)) or None)[0]
    with det.in_background("trial", "logs", str(trial["id"]), "-f") as follower:
        assert follower.stdout is not None
        seen = next(line for line in follower.stdout if "|| INFO: line 0" in line)
        assert seen and follower.poll() is None, "the task still runs, and so does the command"
        det("experiment", "kill", str(number))
        assert follower.wait(60) == 0, "it ends with the trial"
