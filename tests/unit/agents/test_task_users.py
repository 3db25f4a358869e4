"""Whom tasks run as: which of several accounts counts, and which number is derived."""

from __future__ import annotations

import pytest

from resolute.config import parse_master_config
from resolute.config.errors import InvalidConfig
from resolute.wire.agent_link import TaskUser
from resolute.wire.states import ExperimentState
from resolute_master.agents.task_users import TaskUsers, task_users
from resolute_master.domain.copies import replace
from resolute_master.domain.experiment import Experiment, written
from resolute_master.domain.ids import ExperimentId, JobId, UserId
from resolute_master.domain.user import AgentUser, User
from resolute_master.domain.workspace import Workspace
from resolute_master.lifecycle.cluster import ClusterState
from support.cluster import T0

OWNER = User(id=UserId(7), username="ada", password_hash="h", modified_at=T0)
PLACE = Workspace(id=3, name="vision", owner=UserId(7))
WORK = Experiment(
    id=ExperimentId(1),
    job_id=JobId("job-1"),
    owner=OWNER.id,
    workspace_id=PLACE.id,
    project_id=3,
    name="e",
    configuration=written({}),
    original_config="",
    context_hash="",
    state=ExperimentState.ACTIVE,
    started_at=T0,
)
OF_USER = AgentUser(uid=1001, gid=1002, user="ada", group="research")
OF_PLACE = AgentUser(uid=1003, gid=1004, user="vision", group="vision")
OF_CLUSTER = AgentUser(uid=1005, gid=1006, user="tasks", group="tasks")


def asked(users: TaskUsers, owner: User = OWNER, place: Workspace = PLACE) -> tuple[str, TaskUser | None]:
    state = ClusterState((owner, place, WORK))
    return users.of_container(state, WORK, owner), users.of_process(state, WORK, owner)


def test_without_any_account_a_process_has_a_number_of_its_owner_and_a_container_the_default() -> None:
    derived = TaskUser(uid=2_100_000_007, gid=2_100_000_007, user="ada", group="ada", derived=True)
    assert asked(task_users(parse_master_config({}))) == ("0:0", derived)


def test_the_workspace_counts_before_the_owner_and_both_before_the_cluster() -> None:
    users, owner, place = (
        TaskUsers(default=OF_CLUSTER),
        replace(OWNER, agent_user=OF_USER),
        replace(PLACE, agent_user=OF_PLACE),
    )
    for expected, given in ((OF_CLUSTER, (OWNER, PLACE)), (OF_USER, (owner, PLACE)), (OF_PLACE, (owner, place))):
        as_process = TaskUser(uid=expected.uid, gid=expected.gid, user=expected.user, group=expected.group)
        assert asked(users, *given) == (f"{expected.uid}:{expected.gid}", as_process)


def test_the_range_is_the_operators_and_has_an_end() -> None:
    users = task_users(parse_master_config({"security": {"task_users": {"first_uid": 50_000, "count": 8}}}))
    assert asked(users)[1] == TaskUser(uid=50_007, gid=50_007, user="ada", group="ada", derived=True)
    assert asked(users, replace(OWNER, id=UserId(8)))[1] is None


@pytest.mark.parametrize("value", [{"first_uid": 999}, {"first_uid": 4_200_000_001}, {"count": 0}])
def test_a_range_with_accounts_of_the_system_is_refused(value: dict[str, int]) -> None:
    with pytest.raises(InvalidConfig, match=rf"security.task_users.{next(iter(value))}"):
        parse_master_config({"security": {"task_users": value}})
