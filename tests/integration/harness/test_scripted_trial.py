"""The scripted trial under the launcher, against a master over HTTP."""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from resolute.storage import DirectoryStorage, Manifest
from resolute.testing.event_log import read_event_log
from support.harness_master import FakeMaster, packed, task_variables
from support.harness_tasks import Tasks

SCRIPTED = [sys.executable, "-m", "resolute.testing.scripted_trial"]


def test_reports_saves_and_completes(master: FakeMaster, tasks: Tasks, tmp_path: Path) -> None:
    master.contexts["3.task"] = packed({"notes/readme.txt": "model code"})
    hparams = {"script": ["report 10", "checkpoint every 4", "log 3 lines"], "event_log": f"{tmp_path}/event_log/"}
    ended = tasks.run(task_variables(master, tmp_path, hparams=hparams, entrypoint=SCRIPTED))
    assert ended.code == 0, ended.err
    assert ended.out.splitlines() == ["line 0", "line 1", "line 2"]
    assert {step: value["loss"] for step, value in master.metrics(5, "training").items()} == {
        step: 1 / step for step in range(1, 11)
    }
    saved = {body["metadata"]["steps_completed"]: body for body in master.stored.checkpoints.values()}
    assert sorted(saved) == [4, 8, 10]
    assert saved[4]["resources"]["code/"] == "0" and "code/notes/readme.txt" in saved[4]["resources"]
    assert "trial_config.json" in saved[4]["resources"]
    storage = DirectoryStorage(tmp_path / "shared")
    last = Manifest.from_bytes(saved[10]["uuid"], storage.manifest(saved[10]["uuid"]))
    assert (last.parent, last.trial_run_id, last.steps_completed) == (saved[8]["uuid"], 1, 10)
    assert master.stored.progress[-1] == 1.0
    assert master.stored.acknowledged == []
    events = [entry["event"] for entry in read_event_log(tmp_path / "event_log")]
    assert events.count("step") == 10 and events.count("save") == 3 and events[0] == "start" and events[-1] == "end"
    marks = master.stored.marks
    assert marks[0]["steps"] == 0 and marks[-1]["steps"] == 10 and marks[-1]["checkpointingS"] > 0
    assert [mark["steps"] for mark in marks] == sorted(mark["steps"] for mark in marks)


def test_preempted_saves_acknowledges_and_resumes_at_the_exact_step(
    master: FakeMaster, tasks: Tasks, tmp_path: Path
) -> None:
    hparams = {"script": "report 1000000 every 5ms", "event_log": str(tmp_path / "event_log.jsonl")}
    task = tasks.start(task_variables(master, tmp_path, hparams=hparams, entrypoint=SCRIPTED))
    master.wait_until(lambda: len(master.metrics(5, "training")) >= 5)
    master.preempt("3.task.1", reason="a more important job needs the slot")
    ended = tasks.finish(task)
    assert ended.code == 0, ended.err
    assert master.stored.acknowledged == ["3.task.1"]
    assert master.stored.order[-2:] == ["checkpoint", "ack"]
    (checkpoint,) = master.stored.checkpoints.values()
    step = checkpoint["metadata"]["steps_completed"]
    assert max(master.metrics(5, "training")) == step

    hparams["script"] = f"report {step + 3}"
    again = task_variables(
        master,
        tmp_path,
        run=2,
        hparams=hparams,
        entrypoint=SCRIPTED,
        latest_checkpoint=checkpoint["uuid"],
        steps_completed=step,
    )
    assert tasks.run(again).code == 0
    assert sorted(master.metrics(5, "training")) == list(range(1, step + 4))
    steps = [entry["step"] for entry in read_event_log(tmp_path / "event_log.jsonl") if entry["event"] == "step"]
    assert steps == list(range(1, step + 4))


def test_notice_file_preempts_without_the_master(master: FakeMaster, tasks: Tasks, tmp_path: Path) -> None:
    variables = task_variables(master, tmp_path, hparams={"script": "report 1000000 every 5ms"}, entrypoint=SCRIPTED)
    task = tasks.start(variables)
    master.wait_until(lambda: len(master.metrics(5, "training")) >= 3)
    notice = Path(variables["DET_RUN_DIR"]) / "notice.json"
    deadline = (datetime.now(UTC) + timedelta(seconds=30)).isoformat()
    body = {"kind": "interruption", "deadline": deadline, "reason": "spot", "extra": {}}
    notice.with_suffix(".new").write_text(json.dumps(body))
    os.replace(notice.with_suffix(".new"), notice)
    assert tasks.finish(task).code == 0
    assert master.stored.acknowledged == ["3.task.1"] and len(master.stored.checkpoints) == 1


def test_rebalance_notice_saves_and_goes_on(master: FakeMaster, tasks: Tasks, tmp_path: Path) -> None:
    variables = task_variables(master, tmp_path, hparams={"script": "report 1000000 every 5ms"}, entrypoint=SCRIPTED)
    task = tasks.start(variables)
    master.wait_until(lambda: len(master.metrics(5, "training")) >= 3)
    master.notice("3.task.1", {"kind": "rebalance", "deadline": None, "reason": "elevated risk"})
    master.wait_until(lambda: len(master.stored.checkpoints) == 1)
    reached = max(master.metrics(5, "training"))
    master.wait_until(lambda: max(master.metrics(5, "training")) > reached + 5)
    assert len(master.stored.checkpoints) == 1 and task.poll() is None
    master.preempt("3.task.1")
    assert tasks.finish(task).code == 0


def test_scripted_exit_codes_and_resume_after_a_crash(master: FakeMaster, tasks: Tasks, tmp_path: Path) -> None:
    hparams = {"script": ["report 10", "checkpoint every 5", "exit 3 at step 7 on run 1", "die at step 8 on run 2"]}
    assert tasks.run(task_variables(master, tmp_path, hparams=hparams, entrypoint=SCRIPTED)).code == 3
    (checkpoint,) = master.stored.checkpoints
    for run, code in ((2, 128 + signal.SIGKILL), (3, 0)):
        variables = task_variables(
            master, tmp_path, run=run, hparams=hparams, entrypoint=SCRIPTED, latest_checkpoint=checkpoint
        )
        assert tasks.run(variables).code == code
    assert sorted(master.metrics(5, "training")) == list(range(1, 11))
    assert (5, 3, "training", 6) in master.stored.metrics, "the third run redid what the first had not saved"
    assert (5, 3, "training", 5) not in master.stored.metrics


def test_exit_on_preemption_acknowledges_first(master: FakeMaster, tasks: Tasks, tmp_path: Path) -> None:
    hparams = {"script": ["exit 5 on preemption on run 1", "wait for preemption"]}
    task = tasks.start(task_variables(master, tmp_path, hparams=hparams, entrypoint=SCRIPTED))
    master.wait_until(lambda: master.stored.runs_started == [5])
    master.preempt("3.task.1")
    assert tasks.finish(task).code == 5
    assert master.stored.acknowledged == ["3.task.1"] and not master.stored.checkpoints


def test_survives_a_master_that_is_away_for_a_while(master: FakeMaster, tasks: Tasks, tmp_path: Path) -> None:
    hparams = {"script": "report 200 every 10ms; checkpoint every 50"}
    task = tasks.start(task_variables(master, tmp_path, hparams=hparams, entrypoint=SCRIPTED))
    master.wait_until(lambda: len(master.metrics(5, "training")) >= 20)
    master.stop()
    assert task.poll() is None
    master.start()
    master.fail_next(503, 502)
    ended = tasks.finish(task)
    assert ended.code == 0, ended.err
    assert sorted(master.metrics(5, "training")) == list(range(1, 201))


def test_gang_of_two_containers_meets_at_each_step_and_resumes(
    master: FakeMaster, tasks: Tasks, tmp_path: Path
) -> None:
    hparams = {"script": "report 30 every 5ms; checkpoint every 10; exit 4 at step 25 on run 1 on rank 1"}
    latest: str | None = None
    for run, codes in ((1, {1, 4}), (2, {0})):
        master.gangs[f"3.task.{run}"] = {"r0": ("127.0.0.1", 1), "r1": ("127.0.0.1", 1)}
        both = [
            tasks.start(
                task_variables(
                    master,
                    tmp_path,
                    run=run,
                    hparams=hparams,
                    entrypoint=SCRIPTED,
                    resources_id=resources_id,
                    latest_checkpoint=latest,
                )
            )
            for resources_id in ("r0", "r1")
        ]
        ended = [tasks.finish(task) for task in both]
        assert {one.code for one in ended} == codes, [one.err for one in ended]
        by_step = {body["metadata"]["steps_completed"]: body for body in master.stored.checkpoints.values()}
        latest = by_step[max(by_step)]["uuid"]
    assert sorted(by_step) == [10, 20, 30]
    assert "rank-1.json" in by_step[20]["resources"] and "state.json" in by_step[20]["resources"]
    assert (5, 2, "training", 21) in master.stored.metrics and (5, 2, "training", 20) not in master.stored.metrics


def test_a_killed_rank_ends_its_peer_within_five_seconds(master: FakeMaster, tasks: Tasks, tmp_path: Path) -> None:
    master.gangs["3.task.1"] = {"r0": ("127.0.0.1", 1), "r1": ("127.0.0.1", 1)}
    hparams = {"script": "report 1000000 every 20ms"}
    both = [
        tasks.start(task_variables(master, tmp_path, hparams=hparams, entrypoint=SCRIPTED, resources_id=resources_id))
        for resources_id in ("r0", "r1")
    ]
    master.wait_until(lambda: len(master.metrics(5, "training")) >= 5)
    os.killpg(both[0].pid, signal.SIGKILL)
    ended = tasks.finish(both[1], timeout_s=20.0)
    assert ended.code == 1 and "rank 0" in ended.err


def test_a_bad_script_is_refused_with_the_sentence(master: FakeMaster, tasks: Tasks, tmp_path: Path) -> None:
    ended = tasks.run(task_variables(master, tmp_path, hparams={"script": ["report ten"]}, entrypoint=SCRIPTED))
    assert ended.code == 1 and "'report ten'" in ended.err
