"""What an agent is told to run: rendered from the committed state, complete, and only while there is something to run."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from resolute.config.environment import DEFAULT_CPU_IMAGE
from resolute.wire.agent_link import ContainerSpec, Exit
from resolute.wire.states import ContainerState, ExperimentState
from resolute_master.agents.container_spec import SHARED_FS_IN_CONTAINER, SpecRenderer, user_variables
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import ContainerId, ExperimentId, JobId, TaskId, TrialId, UserId
from resolute_master.domain.trial import Trial
from resolute_master.domain.user import User
from resolute_master.lifecycle.cluster import ClusterState
from support.cluster import T0, a_container, a_running_allocation

RENDERER = SpecRenderer(task_token=lambda a, u: f"task:{a}:{u}", user_token=lambda a, u: f"user:{a}:{u}")


def a_state(config: dict[str, Any]) -> ClusterState:
    user = User(id=UserId(7), username="ada", password_hash="h", modified_at=T0)
    experiment = Experiment(
        id=ExperimentId(1),
        job_id=JobId("job-1"),
        owner=user.id,
        workspace_id=1,
        project_id=1,
        name="e",
        config=config,
        original_config="",
        context_hash="",
        state=ExperimentState.ACTIVE,
        started_at=T0,
        searcher={},
    )
    trial = Trial(
        id=TrialId(1),
        experiment_id=experiment.id,
        job_id=experiment.job_id,
        task_id=TaskId("1.aaaa"),
        request_id="aaaa",
        state=ExperimentState.ACTIVE,
        hparams={"lr": 0.1},
        seed=42,
        started_at=T0,
    )
    return ClusterState((user, experiment, trial))


def rendered(config: dict[str, Any] | None = None, allocation: Allocation | None = None) -> ContainerSpec:
    gang = allocation or a_running_allocation(members=2, ports={"C10D_PORT": 29401})
    spec = RENDERER.render(a_state(config or {}), gang, ContainerId("container-1"))
    assert spec is not None
    return spec


def test_a_member_is_told_who_it_is_and_where_to_go_on() -> None:
    resumed = a_running_allocation(members=2, resumed_checkpoint="c-9", resumed_steps=30, ports={"C10D_PORT": 29401})
    spec = rendered({"name": "e"}, resumed)
    environment = spec.environment
    assert (spec.container_id, spec.slots, spec.allocation_id) == ("container-1", (0,), "1.aaaa.1")
    assert environment["DET_SESSION_TOKEN"] == "task:1.aaaa.1:7"
    assert environment["DET_USER_TOKEN"] == "user:1.aaaa.1:7"
    assert (environment["DET_LATEST_CHECKPOINT"], environment["DET_STEPS_COMPLETED"]) == ("c-9", "30")
    assert (environment["DET_TRIAL_SEED"], environment["DET_TRIAL_RUN_ID"], environment["C10D_PORT"]) == (
        "42",
        "1",
        "29401",
    )
    assert json.loads(environment["DET_HPARAMS"]) == {"lr": 0.1}
    assert json.loads(environment["DET_EXPERIMENT_CONFIG"]) == {"name": "e"}


def test_a_first_run_has_no_checkpoint() -> None:
    assert "DET_LATEST_CHECKPOINT" not in rendered().environment


@pytest.mark.parametrize("missing", ["experiment", "trial"])
def test_nothing_is_started_for_what_is_over(missing: str) -> None:
    state = a_state({})
    state.forget(missing, 1)
    assert RENDERER.render(state, a_running_allocation(), ContainerId("container-0")) is None


def test_neither_an_ended_member_nor_a_stranger_is_started() -> None:
    ended = replace(a_container(0), state=ContainerState.TERMINATED, exit=Exit(code=0))
    allocation = a_running_allocation(containers=(ended,))
    for name in ("container-0", "container-9"):
        assert RENDERER.render(a_state({}), allocation, ContainerId(name)) is None


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (["A=1", "B", "C=x=y"], {"A": "1", "B": "", "C": "x=y"}),
        ({"cpu": ["A=cpu"], "cuda": ["A=gpu"]}, {"A": "cpu"}),
        (None, {}),
    ],
)
def test_the_users_own_variables_are_added(variables: Any, expected: dict[str, str]) -> None:
    config = {"environment": {"environment_variables": variables}}
    assert user_variables(config, "cpu") == expected
    assert expected.items() <= dict(rendered(config).environment).items()


@pytest.mark.parametrize(
    ("image", "asked_for"),
    [("mine:1", "mine:1"), ({"cpu": "mine:2", "cuda": "other"}, "mine:2"), (DEFAULT_CPU_IMAGE, ""), (None, "")],
)
def test_only_an_image_that_somebody_asked_for_is_named(image: Any, asked_for: str) -> None:
    assert rendered({"environment": {"image": image}}).image == asked_for


@pytest.mark.parametrize(
    ("storage", "shared"),
    [
        ({"type": "shared_fs", "host_path": "/data"}, (("/data", SHARED_FS_IN_CONTAINER),)),
        ({"type": "directory", "container_path": "/ckpt"}, (("/ckpt", "/ckpt"),)),
        ({"type": "s3"}, ()),
        (None, ()),
    ],
)
def test_directories_of_checkpoints_are_shared_with_the_task(storage: Any, shared: tuple[Any, ...]) -> None:
    assert rendered({"checkpoint_storage": storage}).shared_directories == shared
