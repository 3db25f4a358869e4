"""What an agent is told to run: rendered from the committed state, complete, and only while there is something to run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from resolute.config import parse_master_config
from resolute.wire.agent_link import BindMount, ContainerOptions, ContainerSpec, Device, Exit, HostDevice
from resolute.wire.states import ContainerState, ExperimentState, SlotKind
from resolute_master.agents.container_spec import (
    SHARED_FS_IN_CONTAINER,
    ContainerDefaults,
    SpecRenderer,
    container_defaults,
    user_variables,
)
from resolute_master.agents.task_users import TaskUsers, task_users
from resolute_master.domain.agent import Agent, Slot
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.experiment import Experiment, written
from resolute_master.domain.ids import ContainerId, ExperimentId, JobId, PoolName, TaskId, TrialId, UserId
from resolute_master.domain.trial import Trial
from resolute_master.domain.user import AgentUser, User
from resolute_master.lifecycle.cluster import ClusterState
from support.cluster import T0, a_container, a_running_allocation, an_agent

RENDERER = SpecRenderer(
    task_token=lambda a, u: f"task:{a}:{u}",
    user_token=lambda a, u: f"user:{a}:{u}",
    defaults={PoolName("default"): ContainerDefaults(network_mode="none", startup_hook="hunter2")},
    task_users=TaskUsers(default=AgentUser(uid=7, gid=8, user="seven", group="eight")),
)


def an_agent_of(kind: SlotKind) -> Agent:
    """The agent of the first member, with a slot of this kind."""
    slot = Slot(device=Device(index=0, kind=kind, brand="b", uuid="u"))
    return replace(an_agent("agent-1"), slots=(slot,))


def a_state(config: dict[str, Any], agent: Agent | None = None) -> ClusterState:
    user = User(id=UserId(7), username="ada", password_hash="h", modified_at=T0)
    experiment = Experiment(
        id=ExperimentId(1),
        job_id=JobId("job-1"),
        owner=user.id,
        workspace_id=1,
        project_id=1,
        name="e",
        configuration=written(config),
        original_config="",
        context_hash="",
        state=ExperimentState.ACTIVE,
        started_at=T0,
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
    return ClusterState((user, experiment, trial, *([agent] if agent is not None else [])))


def rendered(
    config: dict[str, Any] | None = None, allocation: Allocation | None = None, container: str = "container-1"
) -> ContainerSpec:
    gang = allocation or a_running_allocation(members=2, ports={"C10D_PORT": 29401})
    spec = RENDERER.render(a_state(config or {}), gang, ContainerId(container))
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


def test_code_that_is_at_hand_comes_with_the_order_and_a_single_member_meets_nobody() -> None:
    assert (rendered().code, rendered().alone) == (None, False)
    renderer = replace(RENDERER, code_of=lambda digest: f"code of '{digest}'")
    spec = renderer.render(a_state({}), a_running_allocation(), ContainerId("container-0"))
    assert spec is not None and (spec.code, spec.alone) == ("code of ''", True)


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
    ("image", "kind", "named"),
    [
        ("mine:1", SlotKind.CPU, "mine:1"),
        ({"cpu": "mine:2", "cuda": "gpu:2", "rocm": "amd:2"}, SlotKind.CPU, "mine:2"),
        ({"cpu": "mine:2", "cuda": "gpu:2", "rocm": "amd:2"}, SlotKind.CUDA, "gpu:2"),
        ({"cpu": "mine:2", "cuda": "gpu:2", "rocm": "amd:2"}, SlotKind.ROCM, "amd:2"),
        (None, SlotKind.CUDA, ""),
    ],
)
def test_the_image_is_the_one_for_the_kind_of_the_slots(image: Any, kind: SlotKind, named: str) -> None:
    config = {"environment": {"image": image, "environment_variables": {kind.value: [f"KIND={kind.value}"]}}}
    spec = RENDERER.render(
        a_state(config, agent=an_agent_of(kind)), a_running_allocation(members=1), ContainerId("container-0")
    )
    assert spec is not None
    assert (spec.image, spec.environment["KIND"]) == (named, kind.value)


def test_what_only_an_engine_honours_is_told() -> None:
    spec = rendered(
        {
            "bind_mounts": [{"host_path": "/data", "container_path": "/d", "read_only": True, "propagation": "rslave"}],
            "resources": {
                "shm_size": 1024,
                "devices": [{"host_path": "/dev/a", "container_path": "/dev/b", "mode": "r"}],
            },
            "environment": {
                "force_pull_image": True,
                "registry_auth": {"username": "u", "password": "p", "email": None},
                "add_capabilities": ["SYS_PTRACE"],
                "drop_capabilities": ["KILL"],
                "ports": {"web": 80},
            },
        },
        a_running_allocation(members=1, ports={"C10D_PORT": 29401}),
        "container-0",
    )
    assert json.loads(spec.environment["DET_EXPERIMENT_CONFIG"])["environment"]["registry_auth"] is None
    assert spec.shm_bytes == 1024
    assert spec.options == ContainerOptions(
        force_pull=True,
        registry_auth={"username": "u", "password": "p"},
        network_mode="none",
        mounts=(BindMount(host_path="/data", container_path="/d", read_only=True, propagation="rslave"),),
        devices=(HostDevice(host_path="/dev/a", container_path="/dev/b", mode="r"),),
        add_capabilities=("SYS_PTRACE",),
        drop_capabilities=("KILL",),
        ports=(29401, 80),
        user="7:8",
    )


def test_the_network_of_gangs_is_the_pools_unless_the_experiment_says_otherwise() -> None:
    block = {"dtrain_network_interface": "eth1", "nccl_port_range": "5000:5100", "gloo_port_range": "6000:6100"}
    own = {"task_container_defaults": {"dtrain_network_interface": "ib0"}}
    pools = [{"pool_name": "default"}, {"pool_name": "fast", **own}]
    defaults = container_defaults(parse_master_config({"task_container_defaults": block, "resource_pools": pools}))
    expected = {
        "DET_INTER_NODE_NETWORK_INTERFACE": "eth1",
        "NCCL_PORT_RANGE": "5000:5100",
        "GLOO_PORT_RANGE": "6000:6100",
    }
    assert defaults[PoolName("default")].network_variables == expected
    assert defaults[PoolName("fast")].network_variables == {**expected, "DET_INTER_NODE_NETWORK_INTERFACE": "ib0"}
    renderer = replace(RENDERER, defaults=defaults)
    chosen = {"environment": {"environment_variables": ["GLOO_PORT_RANGE=7000:7100"]}}
    spec = renderer.render(a_state(chosen), a_running_allocation(members=2), ContainerId("container-1"))
    assert spec is not None
    assert {**expected, "GLOO_PORT_RANGE": "7000:7100"}.items() <= spec.environment.items()


def test_the_hook_of_the_pool_goes_along_and_is_not_shown() -> None:
    spec = rendered()
    assert spec.startup_hook == "hunter2"
    assert "hunter2" not in repr(spec)


def test_the_chosen_python_is_a_variable_and_wins_over_the_clusters() -> None:
    variables = ["DET_PYTHON_EXECUTABLE=/opt/cluster/bin/python3"]
    assert rendered({"environment": {"environment_variables": variables}}).environment["DET_PYTHON_EXECUTABLE"] == (
        "/opt/cluster/bin/python3"
    )
    chosen = {"python": "/opt/mine", "environment_variables": variables}
    assert rendered({"environment": chosen}).environment["DET_PYTHON_EXECUTABLE"] == "/opt/mine"
    assert "DET_PYTHON_EXECUTABLE" not in rendered({"environment": {"python": None}}).environment


def test_a_gang_of_several_machines_meets_on_their_own_network() -> None:
    assert rendered({}).options.network_mode == "host"


def test_a_pools_defaults_are_those_of_its_block_over_the_clusters() -> None:
    master = parse_master_config(
        {
            "security": {"default_task": {"uid": 7, "gid": 8}},
            "task_container_defaults": {"network_mode": "cluster-net", "startup_hook": "hunter2"},
            "resource_pools": [
                {"pool_name": "default"},
                {"pool_name": "own hook", "task_container_defaults": {"startup_hook": "true"}},
                {"pool_name": "no hook", "task_container_defaults": {"startup_hook": ""}},
                {"pool_name": "big", "task_container_defaults": {"shm_size_bytes": 64, "network_mode": "own"}},
            ],
        }
    )
    defaults = container_defaults(master)
    assert defaults == {
        "default": ContainerDefaults(network_mode="cluster-net", shm_bytes=0, startup_hook="hunter2"),
        "own hook": ContainerDefaults(network_mode="cluster-net", startup_hook="true"),
        "no hook": ContainerDefaults(network_mode="cluster-net"),
        "big": ContainerDefaults(network_mode="own", shm_bytes=64, startup_hook="hunter2"),
    }
    assert "hunter2" not in repr(defaults)
    assert task_users(master).default == AgentUser(uid=7, gid=8, user="root", group="root")


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
