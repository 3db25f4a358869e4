"""Commands against a small master over HTTP: what they ask, what they print, how they end."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from resolute.errors import NotFound, ResoluteError
from resolute.wire.rest.enums import JobState, LaunchWarning, ResourcePoolType, WireExperimentState
from resolute.wire.rest.experiments import JobSummary
from resolute.wire.rest.jobs import RBACJob
from resolute.wire.rest.metrics import Metrics
from resolute.wire.rest.trials import MetricsWorkload
from resolute.wire.rest.why import GetPoolStartsResponse, JobStart, PoolStart
from resolute_cli.invocation import Invocation
from resolute_cli.main import main
from resolute_cli.render import Renderer
from support import cli_master, cli_messages
from support.cli_master import FakeMaster, decoded_files
from support.cli_messages import (
    UUID,
    a_job,
    a_limited_job,
    a_pool,
    an_experiment,
)
from support.cli_shell import Shell

# -------------------------------------------------------------------------------------------------------------- columns

COLUMNS = {
    ("experiment", "list"): "ID, Owner, Name, Parent ID, State, Progress, Started, Ended, Resource Pool",
    ("experiment", "list", "--all"): (
        "ID, Owner, Name, Parent ID, State, Progress, Started, Ended, Resource Pool, Archived"
    ),
    ("experiment", "list", "--show_project"): (
        "Workspace, Project, ID, Owner, Name, Parent ID, State, Progress, Started, Ended, Resource Pool"
    ),
    ("experiment", "describe", "1"): (
        "Experiment ID, State, Progress, Started, Ended, Name, Description, Archived, Resource Pool, Labels"
    ),
    (
        "experiment",
        "list-trials",
        "1",
    ): "Trial ID, State, H-Params, Started, Ended, # of Batches, Search, Rung, Rank, Metric",
    ("experiment", "list-checkpoints", "1"): (
        "Trial ID, # of Batches, State, Validation Metric, UUID, Resources, Size"
    ),
    ("trial", "describe", "1"): "Experiment ID, State, H-Params, Started, Ended",
    ("trial", "describe", "1", "--metrics-summary"): (
        "Experiment ID, State, H-Params, Summary Metrics, Started, Ended"
    ),
    ("checkpoint", "describe", UUID): (
        "Experiment ID, Trial ID, Steps Completed, Report Time, Checkpoint UUID, Validation Metrics, Metadata"
    ),
    ("agent", "list"): (
        "Agent ID, Version, Registered Time, Slots, Containers, Resource Pool, Enabled, Draining, Addresses"
    ),
    ("slot", "list"): ("Agent ID, Resource Pool, Slot ID, Enabled, Draining, Allocation ID, Task Name, Type, Device"),
    ("task", "list"): (
        "Task ID, Allocation ID, Name, Slots Needed, Registered Time, Agent, Priority, Resource Pool, Ports"
    ),
    ("job", "list"): "#, ID, Type, Job Name, Priority, Submitted, Slots (acquired/needed), State, User",
    ("user", "list"): (
        "User Id, Username, Display Name, Admin, Active, Remote, Agent Uid, Agent Gid, Agent User, Agent Group"
    ),
}


@pytest.mark.parametrize("words", sorted(COLUMNS), ids=" ".join)
def test_tables_have_these_columns(det: Shell, words: tuple[str, ...]) -> None:
    assert det.header(*words) == COLUMNS[words].split(", ")


@pytest.mark.parametrize("words", sorted(COLUMNS), ids=" ".join)
def test_csv_has_the_same_columns(det: Shell, words: tuple[str, ...]) -> None:
    rows = list(csv.reader(io.StringIO(det.ok(*words, "--csv"))))
    assert rows[0] == COLUMNS[words].split(", ")
    assert len(rows) > 1


@pytest.mark.parametrize(
    "words",
    [
        *sorted(COLUMNS),
        ("resource-pool", "list"),
        ("instance",),
        ("ledger",),
        ("decisions",),
        ("job", "explain", "job-1"),
        ("master", "info"),
        ("master", "config"),
        ("experiment", "config", "1"),
        ("experiment", "pause", "1"),
        ("trial", "kill", "1"),
        ("user", "whoami"),
        ("version",),
        ("slot", "disable", "agent-1", "0"),
    ],
    ids=" ".join,
)
def test_json_is_json_and_nothing_else(det: Shell, words: tuple[str, ...]) -> None:
    text = det.ok(*words, "--json")
    assert json.dumps(json.loads(text), indent=2, sort_keys=True, ensure_ascii=False) + "\n" == text


def test_workloads_stand_together_by_step(det: Shell) -> None:
    out = det.ok("experiment", "describe", "1", "--metrics")
    line = next(line for line in out.splitlines() if "Training Metric: loss" in line)
    assert [title.strip() for title in line.split("|")] == [
        *("Trial ID", "# of Batches", "State", "Report Time", "Training Metric: loss"),
        *("Checkpoint State", "Checkpoint Report Time", "Validation State", "Validation Report Time"),
        "Validation Metric: accuracy",
    ]
    rows = [[cell.strip() for cell in line.split("|")] for line in out.splitlines() if line.startswith("        1 |")]
    assert rows[-1][:2] + rows[-1][4:6] + rows[-1][-1:] == ["1", "30", "0.3", "COMPLETED", "0.9"]


def test_descriptions_can_be_written_to_files(det: Shell, tmp_path: Path) -> None:
    det.ok("e", "describe", "1", "--metrics", "--outdir", str(tmp_path / "out"))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "experiments.csv",
        "trials.csv",
        "workloads.csv",
    ]
    with (tmp_path / "out/workloads.csv").open(newline="") as file:
        assert [row["# of Batches"] for row in csv.DictReader(file)] == ["10", "30"]


def test_the_list_is_of_ones_own_experiments_unless_all_are_asked_for(det: Shell) -> None:
    assert [one["id"] for one in json.loads(det.ok("e", "list", "--json"))] == [1]
    assert [one["id"] for one in json.loads(det.ok("e", "ls", "-a", "--json"))] == [1, 2, 3]


def test_pages_are_followed_to_the_end(det: Shell, master: FakeMaster) -> None:
    assert len(json.loads(det.ok("e", "list", "--all", "--limit", "1", "--json"))) == 3
    assert [dict(one.query)["offset"] for one in master.asked("GET", "/api/v1/experiments")[1:]] == ["1", "2"]
    assert len(json.loads(det.ok("e", "list", "--all", "--limit", "1", "--pages", "1", "--json"))) == 1


def test_jobs_that_may_not_be_seen_are_starred(det: Shell, master: FakeMaster) -> None:
    master.jobs = (RBACJob(full=a_job()), RBACJob(limited=a_limited_job()))
    rows = list(csv.reader(io.StringIO(det.ok("job", "list", "--csv"))))
    assert rows[2] == ["N/A", "job-2", "EXPERIMENT", "***", "50", "***", "0/1", "QUEUED", "***"]


def test_the_list_of_jobs_tells_people_when_those_that_wait_will_start(det: Shell, master: FakeMaster) -> None:
    master.jobs = (RBACJob(full=a_job()), RBACJob(limited=a_limited_job()))
    at = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
    start = JobStart(expected_at=at, earliest=at, latest=at.replace(hour=13), basis="19 simulations")
    first = GetPoolStartsResponse(starts=())
    told = GetPoolStartsResponse(
        starts=(PoolStart(job_id="job-2", allocation_id="2.1", start=start),), computed_at=at.replace(hour=11)
    )
    # A master that foresees nothing.
    assert "Expected Start" not in det.ok("job", "list")
    master.starts = first
    assert "are being estimated for the first time" in det.ok("job", "list")
    master.starts = told
    people = det.ok("job", "list")
    assert "2026-01-01 12:00:00+0000 to 2026-01-01 13:00:00+0000" in people
    assert "as estimated at 2026-01-01 11:00:00+0000" in people
    # Only those that wait are asked about.
    assert dict(master.asked("GET", "/api/v1/resource-pools/default/starts")[-1].query) == {"jobIds": "job-2"}
    for format_ in ("--csv", "--json"):
        assert "2026-01-01 12:00" not in det.ok("job", "list", format_)
    told_json = json.loads(det.ok("job", "list", "--starts", "--json"))
    assert told_json["starts"]["job-2"]["basis"] == "19 simulations" and len(told_json["jobs"]) == 2


def test_the_list_of_jobs_tells_people_why_those_that_wait_do(det: Shell, master: FakeMaster) -> None:
    reason = "It waits for 2 slot(s) of machines that are starting."
    waits = replace(a_job(2), reason=reason, summary=JobSummary(jobs_ahead=1, state=JobState.QUEUED))
    master.jobs = (RBACJob(full=a_job()), RBACJob(full=waits), RBACJob(limited=a_limited_job()))
    header, _, runs, *others = det.ok("job", "list").splitlines()
    assert header.endswith(" | Why It Waits") and others[0].endswith(f" | {reason}")
    assert runs.endswith("determined |") and others[1].rstrip(" |").endswith("***"), (
        "nothing is told of what runs, or may not be seen"
    )
    assert reason not in det.ok("job", "list", "--csv"), "programs get what they always got"
    told = json.loads(det.ok("job", "list", "--json"))
    assert [row["full"]["reason"] for row in told if row["full"]] == [None, reason]
    master.jobs = (RBACJob(full=a_job()),)
    assert "Why It Waits" not in det.ok("job", "list")


def test_jobs_of_several_pools_are_shown_with_their_pool(det: Shell, master: FakeMaster) -> None:
    elsewhere = replace(a_job(2), resource_pool="elsewhere")
    master.jobs = (RBACJob(full=a_job()), RBACJob(full=elsewhere))
    shown = det.ok("job", "list")
    assert "Resource Pool" in shown and "elsewhere" in shown
    assert "elsewhere" not in det.ok("job", "list", "--csv"), "programs get what they always got"
    master.jobs = (RBACJob(full=a_job()),)
    assert "Resource Pool" not in det.ok("job", "list")


def test_a_pool_that_grows_on_the_host_of_the_master_is_not_called_static(det: Shell, master: FakeMaster) -> None:
    own, grows = (
        a_pool(name, type=ResourcePoolType.STATIC, max_agents=most) for name, most in (("own", 0), ("grows", 3))
    )
    master.pools = (own, grows, a_pool("cloud", type=ResourcePoolType.AWS, max_agents=3))
    rows = list(csv.reader(io.StringIO(det.ok("resource-pool", "list", "--csv"))))
    assert {row[0]: row[1] for row in rows[1:]} == {"own": "STATIC", "grows": "LOCAL (elastic)", "cloud": "AWS"}


def test_the_list_of_jobs_is_shown_although_starts_are_not_known(det: Shell, master: FakeMaster) -> None:
    pools = ("broken", "gone", "known")
    master.jobs = tuple(RBACJob(limited=replace(a_limited_job(), job_id=f"in-{p}", resource_pool=p)) for p in pools)
    at = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
    start = JobStart(expected_at=at, earliest=at, latest=at, basis="19 simulations")
    master.starts = GetPoolStartsResponse(
        starts=(PoolStart(job_id="in-known", allocation_id="1.1", start=start),), computed_at=at
    )
    master.starts_errors = {"broken": ResoluteError("it failed"), "gone": NotFound("resource pool", "gone")}
    shown = det.ok("job", "list")
    assert all(f"in-{pool}" in shown for pool in pools) and "2026-01-01 12:00:00+0000" in shown
    assert "starts in pool broken are missing: it failed" in det.err and "gone" not in det.err
    # Whoever asks for starts is told that they are not to be had.
    assert det("job", "list", "--starts") == 1 and "it failed" in det.err
    master.starts_errors = dict.fromkeys(pools, ResoluteError("it failed"))
    shown = det.ok("job", "list")
    assert all(f"in-{pool}" in shown for pool in pools) and "Expected Start" not in shown
    assert all(f"starts in pool {pool} are missing" in det.err for pool in pools)


def test_slots_say_what_runs_in_them(det: Shell) -> None:
    rows = list(csv.reader(io.StringIO(det.ok("slot", "--csv"))))
    assert [row[5:8] for row in rows[1:]] == [["1.task.1", "trial 1", "cpu"], ["FREE", "FREE", "cpu"]]


def test_the_master_s_log_shows_what_a_line_is_about(
    det: Shell, master: FakeMaster, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = det.ok("master", "logs", "--tail", "5", "--since", "2026-01-01T00:00:00Z").splitlines()
    assert shown[0].endswith("[INFO]: api: it failed [request_id=r1 user=ada]") and shown[1] == "Traceback"
    assert dict(master.asked("GET", "/api/v1/master/logs")[0].query) == {
        "offset": "-5",
        "timestampAfter": "2026-01-01T00:00:00Z",
    }
    (line,) = det.ok("master", "logs", "--json", "--since", "1h30m").splitlines()
    assert json.loads(line)["fields"] == {"request_id": "r1", "user": "ada"}
    for no_time in ("yesterday", "99999999h"):
        assert det("master", "logs", "--since", no_time) == 2
        assert "or a duration: 30s, 10m, 1h30m" in capsys.readouterr().err


def test_the_ledger_shows_shares_and_interruptions(det: Shell) -> None:
    out = det.ok("ledger")
    assert "60.0%" in out
    assert "Steps Saved" in out


def test_a_price_that_nobody_knows_is_unknown(det: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = cli_messages.a_ledger()
    row = replace(ledger.totals, cost=None, cost_unknown_s=100.0)
    (machine,) = ledger.instances
    unknown = replace(ledger, instances=(replace(machine, price_per_hour=None, row=row),), totals=row)
    monkeypatch.setattr(cli_master, "a_ledger", lambda: unknown)
    monkeypatch.setattr(cli_master, "an_instance", lambda: replace(cli_messages.an_instance(), price_per_hour=None))
    listed, books = det.ok("instance", "list"), det.ok("ledger")
    assert "unknown" in listed and "0.0000" not in listed
    assert "unknown" in books and "0.000000" not in books and "The price is unknown for" in books
    assert [each["pricePerHour"] for each in json.loads(det.ok("instance", "list", "--json"))] == [None]


# ------------------------------------------------------------------------------------------------------------- creating


def test_an_experiment_is_created_with_its_files(det: Shell, master: FakeMaster, model: Path) -> None:
    out = det.ok("experiment", "create", str(model.parent / "const.yaml"), str(model))
    assert out.splitlines()[-1] == "Created experiment 4"
    (request,) = master.created
    assert request.activate
    assert request.config == "name: digits\nsearcher: {name: single}\n"
    assert decoded_files(request) == {"train.py": b"print('hello')\n"}


def test_flags_change_what_is_created(det: Shell, master: FakeMaster, model: Path) -> None:
    config = str(model.parent / "const.yaml")
    det.ok("e", "create", config, str(model), "--paused", "--config", "name=other", "--project_id", "7", "-i", config)
    (request,) = master.created
    assert (request.activate, request.project_id) == (False, 7)
    assert yaml.safe_load(request.config)["name"] == "other"
    assert sorted(decoded_files(request)) == ["const.yaml", "train.py"]


def test_following_shows_the_log_of_the_first_trial(det: Shell, master: FakeMaster, model: Path) -> None:
    out = det.ok("e", "create", str(model.parent / "const.yaml"), str(model), "-f")
    lines = out.splitlines()
    assert lines[1:4] == [
        "Created experiment 4",
        "Waiting for first trial to begin...",
        "Following first trial with ID 4",
    ]
    assert [line.rpartition(": ")[2] for line in lines[4:7]] == ["one", "two", "three"]
    assert lines[7] == "The log ends here for now. To see it again: det trial logs -f 4"
    assert dict(master.asked("GET", "/api/v1/trials/4/logs")[0].query) == {"follow": "true"}


def test_warnings_of_the_launch_are_shown_apart(det: Shell, master: FakeMaster, model: Path) -> None:
    master.warnings = (LaunchWarning.CURRENT_SLOTS_EXCEEDED,)
    det.ok("e", "create", str(model.parent / "const.yaml"), str(model))
    assert "more slots than the pool has" in det.err


def test_what_the_master_refuses_is_said_in_its_words(det: Shell, master: FakeMaster, model: Path) -> None:
    (model.parent / "bad.yaml").write_text("name: x\n")
    assert det("e", "create", str(model.parent / "bad.yaml"), str(model)) == 1
    assert det.err == "Failed to create an experiment: <config>.searcher: is a required property\n"
    assert 4 not in master.experiments


def test_too_large_a_context_is_refused_before_anything_is_sent(det: Shell, master: FakeMaster, model: Path) -> None:
    with (model / "huge.data").open("wb") as file:
        file.truncate(99_614_721)
    assert det("e", "create", str(model.parent / "const.yaml"), str(model)) == 1
    assert "99614720" in det.err and ".detignore" in det.err
    assert master.created == []


def test_an_unreadable_configuration_is_a_wrong_call(det: Shell, model: Path) -> None:
    (model.parent / "broken.yaml").write_text("a: [1\n")
    assert det("e", "create", str(model.parent / "broken.yaml"), str(model)) == 2
    assert "broken.yaml" in det.err
    assert det("e", "create", str(model.parent / "none.yaml"), str(model)) == 2


def test_a_test_run_shows_its_stages(det: Shell, master: FakeMaster, model: Path) -> None:
    def finish(fake: FakeMaster, number: int) -> None:
        done = MetricsWorkload(metrics=Metrics(), num_inputs=0, total_batches=1)
        fake.trials[number] = replace(
            fake.trials[number], total_batches_processed=1, latest_validation=done, checkpoint_count=1
        )
        fake.experiments[number] = replace(fake.experiments[number], state=WireExperimentState.COMPLETED)

    master.on_get_experiment = finish
    out = det.ok("e", "create", str(model.parent / "const.yaml"), str(model), "--test")
    assert [request.validate_only for request in master.created] == [True, False]
    config = yaml.safe_load(master.created[1].config)
    assert (config["searcher"]["max_length"], config["max_restarts"]) == ({"batches": 1}, 0)
    assert [line.strip() for line in out.splitlines()[-5:]] == [
        "Scheduling task: passed",
        "Testing training: passed",
        "Testing validation: passed",
        "Testing checkpointing: passed",
        "Model definition test succeeded!",
    ]


def test_a_failed_test_run_fails(det: Shell, master: FakeMaster, model: Path) -> None:
    def fail(fake: FakeMaster, number: int) -> None:
        fake.experiments[number] = replace(fake.experiments[number], state=WireExperimentState.ERROR)

    master.on_get_experiment = fail
    assert det("e", "create", str(model.parent / "const.yaml"), str(model), "-t") == 1
    assert "Testing validation: failed" in det.out
    assert "ended as ERROR" in det.err


# --------------------------------------------------------------------------------------------------- acting and waiting


@pytest.mark.parametrize(
    ("verb", "path", "said"),
    [
        ("activate", "activate", "Activated"),
        ("unpause", "activate", "Activated"),
        ("pause", "pause", "Paused"),
        ("cancel", "cancel", "Canceled"),
        ("kill", "kill", "Killed"),
        ("archive", "archive", "Archived"),
        ("unarchive", "unarchive", "Unarchived"),
    ],
)
def test_actions_are_one_request(det: Shell, master: FakeMaster, verb: str, path: str, said: str) -> None:
    assert det.ok("experiment", verb, "1") == f"{said} experiment 1\n"
    assert len(master.asked("POST", f"/api/v1/experiments/1/{path}")) == 1


@pytest.mark.parametrize(
    ("state", "code"),
    [(WireExperimentState.COMPLETED, 0), (WireExperimentState.CANCELED, 1), (WireExperimentState.ERROR, 1)],
)
def test_waiting_tells_the_end_by_its_code(
    det: Shell, master: FakeMaster, state: WireExperimentState, code: int
) -> None:
    master.experiments[1] = an_experiment(state=state)
    assert det("experiment", "wait", "1") == code
    assert det.out == f"Experiment 1 ended as {state.name}\n"


def test_deleting_asks_first(det: Shell, master: FakeMaster) -> None:
    assert det("e", "delete", "1", answers="n\n") == 0
    assert (det.out, 1 in master.experiments) == ("Nothing was deleted\n", True)
    assert det("e", "delete", "1", answers="y\n") == 0
    assert (det.out, 1 in master.experiments) == ("Deletion of experiment 1 is in progress\n", False)
    assert det.ok("e", "delete", "2", "--yes") == "Deletion of experiment 2 is in progress\n"


def test_changes_go_out_as_patches(det: Shell, master: FakeMaster) -> None:
    assert det.ok("e", "set", "priority", "1", "7") == "Set `priority` of experiment 1 to 7\n"
    assert det.ok("e", "set", "max-slots", "1", "none") == "Set `max-slots` of experiment 1 to None\n"
    det.ok("e", "set", "name", "1", "better")
    priority, slots, name = (request.body for request in master.asked("PATCH", "/api/v1/experiments/1"))
    assert (priority["resources"]["priority"], priority["name"]) == (7, None)
    assert slots["resources"] == {"maxSlots": None, "priority": None, "weight": None}
    assert (name["name"], name["resources"], name["labels"]) == ("better", None, None)


def test_jobs_are_updated_and_explained(det: Shell, master: FakeMaster) -> None:
    det.ok("job", "update", "job-1", "--priority", "3")
    (request,) = master.asked("POST", "/api/v1/job-queues")
    assert request.body["updates"][0] | {"jobId": "job-1", "priority": 3} == request.body["updates"][0]
    det.ok("job", "update", "job-1", "--behind-of", "job-2")
    assert det.ok("j", "update-batch", "job-1.priority=3", "job-4.ahead-of=job-1") == "Updated 2 job(s)\n"
    move, batch = (request.body["updates"] for request in master.asked("POST", "/api/v1/job-queues")[1:])
    assert (move[0]["behindOf"], batch[0]["priority"], batch[1]["aheadOf"]) == ("job-2", 3, "job-1")
    assert det.ok("job", "explain", "job-1") == "Job job-1 is QUEUED: a machine is starting\n  - local-2 joins in 3 s\n"


def test_a_snapshot_is_written_and_can_be_decided_on(det: Shell, tmp_path: Path) -> None:
    det.ok("job", "snapshot", "-p", "gpu", "-o", f"{tmp_path}/pool.json")
    assert det.ok("job", "schedule", "--snapshot", f"{tmp_path}/pool.json").startswith("Pool gpu at 2026")


def test_agents_are_drained_all_at_once(det: Shell, master: FakeMaster) -> None:
    out = det.ok("agent", "disable", "--all", "--drain")
    (request,) = master.asked("POST", "/api/v1/agents/agent-1/disable")
    assert request.body["drain"] is True
    assert "1.task.1" in out


def test_the_join_token_is_shown_and_rotated_and_a_name_freed(det: Shell, master: FakeMaster) -> None:
    assert det.ok("agent", "join-token") == "old\n"
    assert det.ok("agent", "join-token", "--rotate").startswith("new\nAgents that have joined keep their credentials")
    assert json.loads(det.ok("agent", "join-token", "--rotate", "--json")) == {"join_token": "new"}
    assert det.ok("agent", "forget", "agent-1") == "Freed the name agent-1: another machine may join under it\n"
    det.ok("agent", "forget", "agent-1", "--force")
    asked = master.asked("POST", "/api/v1/agents/agent-1/forget")
    assert [request.body["force"] for request in asked] == [False, True]


# --------------------------------------------------------------------------------------------------------------- errors


def test_an_absent_master_is_named_with_what_to_do(det: Shell) -> None:
    assert det("-m", "http://127.0.0.1:9", "e", "list") == 1
    assert det.err == (
        "Failed to list experiments: no master answers at http://127.0.0.1:9 (connection refused). Name the address of a "
        "running master with -m or DET_MASTER, or start a cluster on this machine with `det deploy local cluster-up`.\n"
    )


def test_the_version_needs_no_master(det: Shell) -> None:
    assert det("-m", "http://127.0.0.1:9", "version") == 0
    assert yaml.safe_load(det.out)["master"]["version"] == ""
    assert "no master answers" in det.err


def test_a_wrong_address_is_explained(det: Shell) -> None:
    assert det("-m", "ftp://host", "e", "list") == 1
    assert "scheme 'ftp'" in det.err


def test_what_is_not_there_is_named(det: Shell) -> None:
    assert det("experiment", "config", "77") == 1
    assert det.err == "Failed to show the configuration of an experiment: experiment '77' not found\n"


def test_a_busy_master_is_asked_again(det: Shell, master: FakeMaster) -> None:
    det.ok("user", "whoami")
    master.failures = [503]
    det.ok("user", "whoami")
    assert master.failures == []


def test_debugging_shows_the_way_of_an_error(det: Shell) -> None:
    det.environ["DET_DEBUG"] = "1"
    assert det("experiment", "config", "77") == 1
    assert "Traceback" in det.err


class InterruptedStream(io.StringIO):
    """A terminal at which someone presses Ctrl-C."""

    def write(self, text: str) -> int:
        raise KeyboardInterrupt


def test_an_interrupt_has_its_own_code(det: Shell) -> None:
    err = io.StringIO()
    invocation = Invocation(environ=det.environ, render=Renderer(InterruptedStream(), err), stdin=io.StringIO())
    assert main(["user", "whoami"], invocation) == 3
    assert err.getvalue() == "Interrupting...\n"
