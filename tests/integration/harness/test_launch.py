"""The launcher as the command of a container: context, info files, hook, rendezvous, refusals, exit codes."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from support.harness_master import FakeMaster, packed, task_variables
from support.harness_tasks import Tasks

SHOW = """
import json, os, sys
import helper
print(json.dumps({"cwd": os.getcwd(), "files": sorted(os.listdir()), "hook": os.environ.get("FROM_HOOK"),
                  "helper": helper.VALUE}))
"""


def test_the_task_finds_its_code_its_files_and_what_its_hook_exported(
    master: FakeMaster, tasks: Tasks, tmp_path: Path
) -> None:
    master.contexts["3.task"] = packed(
        {"show.py": SHOW, "helper.py": "VALUE = 7\n", "startup-hook.sh": "export FROM_HOOK=yes\n"}
    )
    variables = task_variables(master, tmp_path, entrypoint=f"cd / && {sys.executable} $DET_RUN_DIR/workdir/show.py")
    ended = tasks.run(variables)
    assert ended.code == 0, ended.err
    shown = json.loads(ended.out)
    assert (shown["hook"], shown["helper"], shown["cwd"]) == ("yes", 7, "/")
    run_dir = Path(variables["DET_RUN_DIR"])
    assert (run_dir / "train" / "model" / "helper.py").read_text() == "VALUE = 7\n"
    info = {name: json.loads((run_dir / "info" / f"{name}.json").read_text()) for name in ("cluster", "trial")}
    assert info["cluster"]["allocation_id"] == "3.task.1" and info["trial"]["trial_run_id"] == 1
    assert set(info["trial"]) == {
        "trial_id", "experiment_id", "trial_seed", "hparams", "config", "steps_completed", "trial_run_id", "debug",
        "inter_node_network_interface",
    }  # fmt: skip
    gang = json.loads((run_dir / "info" / "rendezvous.json").read_text())
    assert gang == {"container_addrs": ["127.0.0.1"], "container_rank": 0, "container_slot_counts": [1]}
    assert json.loads((run_dir / "info" / "resources.json").read_text()) == {"gpu_uuids": []}
    assert not master.stored.accelerators, "there are none to tell of"
    assert (run_dir / "info" / "cluster.json").stat().st_mode & 0o077 == 0, "it holds the task's token"


def test_what_came_with_the_order_is_not_asked_for(master: FakeMaster, tasks: Tasks, tmp_path: Path) -> None:
    entrypoint = f"{sys.executable} show.py"
    variables = task_variables(master, tmp_path, slots=2, entrypoint=entrypoint)
    variables["DET_MASTER"] = "http://127.0.0.1:1"  # where nobody answers
    code = packed({"show.py": SHOW, "helper.py": "VALUE = 7\n", "startup-hook.sh": "export FROM_HOOK=yes\n"})
    handed = {"code": code, "container_addrs": ["10.0.0.5"], "container_slot_counts": [2]}
    run_dir = Path(variables["DET_RUN_DIR"])
    (run_dir / "handed.json").write_text(json.dumps(handed))
    ended = tasks.run(variables)
    assert ended.code == 0, ended.err
    shown = json.loads(ended.out)
    assert (shown["hook"], shown["helper"]) == ("yes", 7)
    gang = json.loads((run_dir / "info" / "rendezvous.json").read_text())
    assert gang == {"container_addrs": ["10.0.0.5"], "container_rank": 0, "container_slot_counts": [2]}


def test_what_did_not_come_with_the_order_is_asked_for(master: FakeMaster, tasks: Tasks, tmp_path: Path) -> None:
    master.contexts["3.task"] = packed({"helper.py": ""})
    variables = task_variables(master, tmp_path, entrypoint=["ls"])
    run_dir = Path(variables["DET_RUN_DIR"])
    (run_dir / "handed.json").write_text('{"code": null, "container_addrs": [], "container_slot_counts": []}')
    assert tasks.run(variables).out == "helper.py\n"
    gang = json.loads((run_dir / "info" / "rendezvous.json").read_text())
    assert gang["container_addrs"] == ["127.0.0.1"]


def test_the_master_is_told_of_gpus(master: FakeMaster, tasks: Tasks, tmp_path: Path) -> None:
    variables = task_variables(master, tmp_path, entrypoint=["true"]) | {"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2"}
    assert tasks.run(variables).code == 0
    (told,) = master.stored.accelerators
    assert (told["acceleratorType"], told["acceleratorUuids"]) == ("cuda", ["GPU-1", "GPU-2"])


def test_the_users_modules_do_not_shadow_the_launchers(master: FakeMaster, tasks: Tasks, tmp_path: Path) -> None:
    master.contexts["3.task"] = packed({"logging.py": "raise SystemExit(9)\n", "startup-hook.sh": "true\n"})
    assert tasks.run(task_variables(master, tmp_path, entrypoint=["sh", "-c", "exit 5"])).code == 5


def test_a_failing_hook_ends_the_task(master: FakeMaster, tasks: Tasks, tmp_path: Path) -> None:
    master.contexts["3.task"] = packed({"startup-hook.sh": "false\n"})
    assert tasks.run(task_variables(master, tmp_path, entrypoint=["true"])).code == 1


@pytest.mark.parametrize(
    ("entrypoint", "code"),
    [
        (["sh", "-c", "exit 7"], 7),
        ("kill -9 $$", 137),  # the launcher has become the program: whoever started it sees how that ended
        (["no-such-program-anywhere"], 127),
        (["/"], 126),
        ([], 1),
    ],
)
def test_exit_codes(master: FakeMaster, tasks: Tasks, tmp_path: Path, entrypoint: object, code: int) -> None:
    assert tasks.run(task_variables(master, tmp_path, entrypoint=entrypoint)).code == code


def test_commands_run_what_they_are_given_and_meet_nobody(master: FakeMaster, tasks: Tasks, tmp_path: Path) -> None:
    variables = task_variables(master, tmp_path) | {"DET_TASK_TYPE": "COMMAND"}
    ended = tasks.run(variables, "sh", "-c", "echo hello; exit 3")
    assert (ended.code, ended.out) == (3, "hello\n")
    assert master.stored.accelerators == []


def test_signals_reach_the_program(master: FakeMaster, tasks: Tasks, tmp_path: Path) -> None:
    program = "trap 'echo got it; exit 4' USR2; echo ready; while true; do sleep 0.05; done"
    task = tasks.start(task_variables(master, tmp_path, entrypoint=program))
    assert task.stdout is not None and task.stdout.readline() == "ready\n"
    os.kill(task.pid, signal.SIGUSR2)
    ended = tasks.finish(task)
    assert (ended.code, ended.out) == (4, "got it\n")


def test_a_killed_launcher_takes_its_program_along(master: FakeMaster, tasks: Tasks, tmp_path: Path) -> None:
    task = tasks.start(task_variables(master, tmp_path, entrypoint=["sh", "-c", "echo $$; exec sleep 1000"]))
    assert task.stdout is not None
    program = int(task.stdout.readline())
    os.kill(task.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while _alive(program):
        assert time.monotonic() < deadline, "the program outlives its launcher"
        time.sleep(0.02)


def as_first_process(command: list[str]) -> list[str]:
    """What the launcher does as the first process of a container, where it stays beside its program."""
    code = "import os, sys; from resolute.launch import child; sys.exit(child.run(sys.argv[1:], os.environ))"
    return [sys.executable, "-c", code, *command]


@pytest.mark.parametrize(
    ("command", "code"),
    [(["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -9 $$"], 137), (["no-such-program-anywhere"], 127), (["/"], 126)],
)
def test_the_first_process_of_a_container_tells_its_programs_exit_code(
    tasks: Tasks, command: list[str], code: int
) -> None:
    assert tasks.finish(tasks.start_command({"PATH": os.environ["PATH"]}, as_first_process(command))).code == code


def test_the_first_process_of_a_container_passes_signals_on_and_takes_its_program_along(tasks: Tasks) -> None:
    program = "trap 'echo got it' USR2; echo $$; while true; do sleep 0.05; done"
    task = tasks.start_command({"PATH": os.environ["PATH"]}, as_first_process(["sh", "-c", program]))
    assert task.stdout is not None
    pid = int(task.stdout.readline())
    os.kill(task.pid, signal.SIGUSR2)
    assert task.stdout.readline() == "got it\n"
    os.kill(task.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while _alive(pid):
        assert time.monotonic() < deadline, "the program outlives the first process"
        time.sleep(0.02)


def test_unwritable_checkpoint_storage_is_named(master: FakeMaster, tasks: Tasks, tmp_path: Path) -> None:
    (tmp_path / "shared").write_text("a file, not a directory")
    ended = tasks.run(task_variables(master, tmp_path, entrypoint=["true"]))
    assert ended.code == 1
    assert str(tmp_path / "shared") in ended.err and "checkpoint_storage" in ended.err


@pytest.mark.parametrize(
    ("files", "entrypoint"),
    [
        ({"deep/train.py": "x = 1\nimport determined as det\n"}, ["true"]),
        ({"train.py": "from determined import core\n"}, ["true"]),
        ({}, "python3 -m determined.launch.torch_distributed train.py"),
    ],
)
def test_the_released_harness_needs_a_private_root(
    master: FakeMaster, tasks: Tasks, tmp_path: Path, files: dict[str, str], entrypoint: object
) -> None:
    master.contexts["3.task"] = packed(files)
    ended = tasks.run(task_variables(master, tmp_path, entrypoint=entrypoint))
    assert ended.code == 78 and "determined" in ended.err and "namespaces" in ended.err


def test_code_that_only_talks_about_it_is_not_refused(master: FakeMaster, tasks: Tasks, tmp_path: Path) -> None:
    master.contexts["3.task"] = packed({"train.py": "import resolute as determined\n# determined\n"})
    assert tasks.run(task_variables(master, tmp_path, entrypoint=["true"])).code == 0


def test_a_context_that_leads_out_of_its_directory_is_refused(master: FakeMaster, tasks: Tasks, tmp_path: Path) -> None:
    master.contexts["3.task"] = packed({"../escaped.txt": "x"})
    ended = tasks.run(task_variables(master, tmp_path, entrypoint=["true"]))
    assert ended.code == 1 and "escaped.txt" in ended.err
    assert not list(tmp_path.rglob("escaped.txt"))


def test_process_per_slot_gives_each_process_its_place(master: FakeMaster, tasks: Tasks, tmp_path: Path) -> None:
    command = (
        'printf "%s of %s, here %s of %s, node %s\\rbar\\n" $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK'
    )
    gang = {"r0": ("127.0.0.1", 2), "r1": ("127.0.0.1", 2)}
    master.gangs["3.task.1"] = gang
    entrypoint = [sys.executable, "-m", "resolute.launch.process_per_slot", "--", "sh", "-c", command]
    both = [
        tasks.start(task_variables(master, tmp_path, entrypoint=entrypoint, resources_id=name, slots=2))
        for name in gang
    ]
    ended = [tasks.finish(task) for task in both]
    assert [one.code for one in ended] == [0, 0]
    lines = sorted(line for one in ended for line in one.out.splitlines())
    assert lines == sorted(
        line
        for rank in range(4)
        for line in (
            f"[rank={rank}] {rank} of 4, here {rank % 2} of 2, node {rank // 2}",
            f"[rank={rank}] bar",
        )
    )


def test_one_failing_process_ends_the_others(tasks: Tasks, tmp_path: Path) -> None:
    command = "if [ $RANK = 1 ]; then sleep 0.3; exit 6; fi; trap '' TERM; sleep 1000"
    variables = {"DET_RUN_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
    arguments = [sys.executable, "-m", "resolute.launch.process_per_slot", "--nproc", "3", "--", "sh", "-c", command]
    ended = tasks.finish(tasks.start_command(variables, arguments), timeout_s=30.0)
    assert ended.code == 6


def test_a_trial_class_is_trained_by_our_runner(master: FakeMaster, tasks: Tasks, tmp_path: Path) -> None:
    ended = tasks.run(task_variables(master, tmp_path, entrypoint="no_such_module:Trial"))
    assert ended.code == 1 and "no_such_module" in ended.err


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie that nobody has reaped yet has ended all the same.
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
