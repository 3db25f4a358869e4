"""The account of a task on the machines: decided by the master, so that it is the same on each machine at any time.

The account of the workspace precedes that of the owner, and both precede `security.default_task`. Without any of them a
container runs as the user of its image's engine (root by default), and a plain process as a number derived from the owner's id.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from resolute.config import MasterConfig
from resolute.config.master_parts import TaskUsers as Range
from resolute.wire.agent_link import TaskUser
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.user import AgentUser, User
from resolute_master.domain.workspace import Workspace
from resolute_master.lifecycle.cluster import ClusterState

ROOT = AgentUser(uid=0, gid=0, user="root", group="root")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskUsers:
    """`default` is for tasks that no account was named for; one of root leaves plain processes to the derived numbers."""

    default: AgentUser = ROOT
    derived: Range = field(default_factory=Range)

    def of_container(self, state: ClusterState, experiment: Experiment, owner: User) -> str:
        """`uid:gid`."""
        account = linked(state, experiment, owner) or self.default
        return f"{account.uid}:{account.gid}"

    def of_process(self, state: ClusterState, experiment: Experiment, owner: User) -> TaskUser | None:
        """None where the range has no number for the owner."""
        account = linked(state, experiment, owner) or (self.default if self.default.uid else None)
        if account is not None:
            return TaskUser(uid=account.uid, gid=account.gid, user=account.user, group=account.group)
        if owner.id >= self.derived.count:
            return None
        number = self.derived.first_uid + owner.id
        return TaskUser(uid=number, gid=number, user=owner.username, group=owner.username, derived=True)


def linked(state: ClusterState, experiment: Experiment, owner: User) -> AgentUser | None:
    """What an administrator has named for the workspace, or for the owner."""
    workspace = state.get(Workspace, experiment.workspace_id)
    return (workspace.agent_user if workspace is not None else None) or owner.agent_user


def task_users(config: MasterConfig) -> TaskUsers:
    user = config.security.default_task
    default = AgentUser(uid=user.uid, gid=user.gid, user=user.user, group=user.group)
    return TaskUsers(default=default, derived=config.security.task_users)
