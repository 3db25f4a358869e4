"""The task environment, entrypoints, contexts and process layouts as pure functions."""

from __future__ import annotations

import base64
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from resolute.errors import InvalidInput
from resolute.launch.child import exit_code_of
from resolute.launch.context_dir import MAX_UNPACKED_BYTES, unpack
from resolute.launch.entrypoint import command_of, uses_released_harness
from resolute.launch.gang_variables import gang_variables
from resolute.launch.process_per_slot import layout_of, variables_of
from resolute.task_info import ProcessPlace, RendezvousInfo, TaskInfo

COMMAND = {
    "DET_MASTER": "http://master:8080/",
    "DET_ALLOCATION_ID": "t.1",
    "DET_TASK_ID": "t",
    "DET_SESSION_TOKEN": "secret-token",
    "DET_TASK_TYPE": "COMMAND",
    "DET_SLOT_IDS": "[0, 3]",
}
TRIAL = COMMAND | {
    "DET_TASK_TYPE": "TRIAL",
    "DET_TRIAL_ID": "5",
    "DET_EXPERIMENT_ID": "3",
    "DET_TRIAL_RUN_ID": "2",
    "DET_TRIAL_SEED": "17",
    "DET_HPARAMS": '{"lr": 0.1}',
    "DET_EXPERIMENT_CONFIG": '{"data": {"path": "x"}}',
}


def test_outside_of_tasks_there_is_no_info() -> None:
    assert TaskInfo.from_env({"HOME": "/"}) is None


def test_a_command_and_its_defaults() -> None:
    info = TaskInfo.from_env(COMMAND)
    assert info is not None and info.trial is None
    assert (info.master_url, info.slot_ids) == ("http://master:8080", (0, 3))
    assert (info.run_dir, info.workdir) == (Path("/run/determined"), Path("/run/determined/workdir"))
    assert info.private_root, "a container that says nothing has a root of its own"
    assert info.rendezvous() == RendezvousInfo(
        container_addrs=("127.0.0.1",), container_rank=0, container_slot_counts=(2,)
    )
    assert "secret-token" not in repr(info)


def test_a_trial() -> None:
    info = TaskInfo.from_env(
        TRIAL | {"DET_PRIVATE_ROOT": "0", "DET_LATEST_CHECKPOINT": "c1", "DET_STEPS_COMPLETED": "9"}
    )
    assert info is not None and info.trial is not None
    assert (info.trial.trial_run_id, info.trial.hparams, info.trial.steps_completed) == (2, {"lr": 0.1}, 9)
    assert (info.private_root, info.latest_checkpoint, info.user_data) == (False, "c1", {"path": "x"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DET_TASK_ID", ""),
        ("DET_TASK_TYPE", "DANCE"),
        ("DET_TRIAL_ID", "five"),
        ("DET_HPARAMS", "{"),
        ("DET_HPARAMS", "[]"),
        ("DET_SLOT_IDS", '{"a": 1}'),
    ],
)
def test_what_is_wrong_is_named(name: str, value: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        TaskInfo.from_env(TRIAL | {name: value})


def test_the_place_of_a_process() -> None:
    assert ProcessPlace.from_env({"RANK": "1"}) is None
    place = ProcessPlace.from_env({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"})
    assert place is not None and (place.rank, place.size, place.local_size, place.chief_address) == (
        3,
        4,
        2,
        "127.0.0.1",
    )


def test_layouts_of_uneven_gangs() -> None:
    gang = RendezvousInfo(container_addrs=("a", "b", "c"), container_rank=1, container_slot_counts=(2, 3, 0))
    layout = layout_of(gang, slots=3, nproc=None, gang_token="t")
    assert (layout.local_size, layout.world_size, layout.first_rank, layout.chief_address) == (3, 6, 2, "a")
    variables = variables_of(layout, 2)
    assert (variables["RANK"], variables["LOCAL_RANK"], variables["GROUP_RANK"]) == ("4", "2", "1")
    assert layout_of(gang, slots=3, nproc=2, gang_token="t").world_size == 6


@pytest.mark.parametrize(
    ("entrypoint", "processes", "expected"),
    [
        (["python3", "train.py"], 4, ["python3", "train.py"]),
        ("python3 train.py --x", 1, ["/bin/sh", "-c", "python3 train.py --x"]),
        ("echo a:b c", 1, ["/bin/sh", "-c", "echo a:b c"]),
    ],
)
def test_commands_of_entrypoints(entrypoint: Any, processes: int, expected: list[str]) -> None:
    assert command_of(entrypoint, processes=processes, python="/p/python3") == expected


def test_trial_classes_run_by_our_runner_one_process_a_slot() -> None:
    assert command_of("model_def:Trial", processes=1, python="/p/python3") == [
        *("/p/python3", "-m", "resolute.pytorch.run", "model_def:Trial")
    ]
    several = command_of("package.model_def:Outer.Trial", processes=2, python="/p/python3")
    assert several[1:4] == ["-m", "resolute.launch.process_per_slot", "--"]
    assert several[-1] == "package.model_def:Outer.Trial"


@pytest.mark.parametrize("entrypoint", [None, "", "  ", [], [1], {"a": 1}])
def test_entrypoints_that_are_none(entrypoint: Any) -> None:
    with pytest.raises(InvalidInput, match="entrypoint"):
        command_of(entrypoint, processes=1, python="/p/python3")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import determined", True),
        ("  import os, determined as det", True),
        ("from determined.core import init", True),
        ("import determined_things", False),
        ("# import determined later", False),
        ("from resolute import core as determined", False),
    ],
)
def test_who_uses_the_released_harness(tmp_path: Path, text: str, found: bool) -> None:
    (tmp_path / "train.py").write_text(text + "\n")
    assert (uses_released_harness(["python3", "train.py"], tmp_path) is not None) is found


@pytest.mark.parametrize("text", ["not base64!", base64.b64encode(b"not gzip").decode()])
def test_archives_that_are_none(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidInput, match="unpacked"):
        unpack(text, (tmp_path,))


def a_bomb(sizes: list[int]) -> str:
    """A small archive of files that are holes: nothing of them is in it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        for number, size in enumerate(sizes):
            hole = tarfile.TarInfo(f"hole-{number}")
            hole.pax_headers = {"GNU.sparse.size": str(size), "GNU.sparse.map": "0,0"}
            archive.addfile(hole)
    return base64.b64encode(packed.getvalue()).decode()


def test_a_context_is_no_larger_unpacked_than_model_code_is(tmp_path: Path) -> None:
    half = MAX_UNPACKED_BYTES // 2
    assert unpack(a_bomb([half, half]), ()) == 2
    with pytest.raises(InvalidInput, match=f"{MAX_UNPACKED_BYTES + 1} bytes unpacked, over the limit"):
        unpack(a_bomb([half, half + 1]), (tmp_path,))
    assert list(tmp_path.iterdir()) == []


def test_an_empty_context_is_fine(tmp_path: Path) -> None:
    assert unpack("", (tmp_path,)) == 0


def test_exit_codes_of_signals() -> None:
    assert (exit_code_of(0), exit_code_of(3), exit_code_of(-9)) == (0, 3, 137)


def test_a_program_alone_gets_no_rank_and_torchrun_a_process_for_each_slot() -> None:
    gang = RendezvousInfo(container_addrs=("10.0.0.5",), container_rank=0, container_slot_counts=(2,))
    found = gang_variables(gang, {"C10D_PORT": "29403"})
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("127.0.0.1", "29403")
    assert (found["PET_NNODES"], found["PET_NPROC_PER_NODE"]) == ("1", "2")
    assert not found.keys() & {"RANK", "WORLD_SIZE", "LOCAL_RANK"}


def test_a_program_of_a_gang_is_told_the_chief_and_its_own_choice_wins() -> None:
    gang = RendezvousInfo(container_addrs=("10.0.0.5", "10.0.0.6"), container_rank=1, container_slot_counts=(1, 1))
    found = gang_variables(gang, {"MASTER_PORT": "5000"})
    assert (found["MASTER_ADDR"], found["RANK"], found["WORLD_SIZE"]) == ("10.0.0.5", "1", "2")
    assert (found["PET_NNODES"], found["PET_NODE_RANK"]) == ("2", "1")
    assert "MASTER_PORT" not in found, "the experiment has set it"
    assert "NCCL_SOCKET_IFNAME" not in found
    named = gang_variables(gang, {"DET_INTER_NODE_NETWORK_INTERFACE": "ib0", "GLOO_SOCKET_IFNAME": "eth1"})
    assert named["NCCL_SOCKET_IFNAME"] == "ib0"
    assert "GLOO_SOCKET_IFNAME" not in named, "the experiment has set it"
