"""Who may do what: one function, which every route goes through.

A person may see everything and control experiments; some things belong to their owner or to administrators. A task's own
token may look at everything, and report for its own allocation, trial and checkpoints only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from resolute_master.api.auth import Caller
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import AllocationId, TaskId
from resolute_master.domain.trial import Trial
from resolute_master.domain.user import User
from resolute_master.domain.workspace import Workspace


class Action(StrEnum):
    """What a route does; the value completes "may not ..."."""

    PUBLIC = "use this call"
    VIEW = "look at this"
    CREATE_EXPERIMENT = "create experiments"
    CONTROL_EXPERIMENT = "control experiments"
    DELETE_EXPERIMENT = "delete this experiment"
    MOVE_EXPERIMENT = "move this experiment"
    CONTROL_AGENTS = "enable and disable agents"
    CONTROL_QUEUE = "change the job queue"
    CONTROL_TEMPLATES = "change templates"
    CREATE_WORKSPACE = "create workspaces and projects"
    EDIT_WORKSPACE = "change this workspace"
    BIND_POOLS = "bind resource pools to workspaces"
    SET_BUDGETS = "set budgets"
    CLEAN_UP = "remove old logs"
    REPORT = "report for this task"
    VIEW_MASTER_CONFIG = "see the master's configuration"
    CHANGE_MASTER_CONFIG = "change the master's configuration"
    CREATE_USER = "create users"
    EDIT_USER = "change this user"
    GRANT = "rename users, activate them or make them administrators"


ADMIN_ONLY = frozenset(
    {
        Action.CONTROL_AGENTS,
        Action.BIND_POOLS,
        Action.SET_BUDGETS,
        Action.CLEAN_UP,
        Action.VIEW_MASTER_CONFIG,
        Action.CHANGE_MASTER_CONFIG,
        Action.CREATE_USER,
        Action.GRANT,
    }
)
OWNER_OR_ADMIN = frozenset({Action.DELETE_EXPERIMENT, Action.MOVE_EXPERIMENT, Action.EDIT_USER, Action.EDIT_WORKSPACE})


@dataclass(frozen=True, slots=True)
class AllocationRef:
    """An allocation that may have ended long ago, or never have been."""

    id: AllocationId


@dataclass(frozen=True, slots=True)
class TaskRef:
    """A task by its id."""

    id: TaskId


def can(caller: Caller | None, action: Action, target: Any = None, *, strict_queue: bool = False) -> bool:
    """Whether `caller` may do `action` to `target`: an entity, a tuple of them, a reference, or None for the cluster.

    `caller` None is somebody without a token. `strict_queue`: only administrators change the job queue.
    """
    if action is Action.PUBLIC:
        return True
    if caller is None:
        return False
    if caller.allocation is not None:
        return action is Action.VIEW or (action is Action.REPORT and _is_own(caller.allocation, target))
    if caller.user.admin:
        return True
    if action in ADMIN_ONLY or (strict_queue and action is Action.CONTROL_QUEUE):
        return False
    if action in OWNER_OR_ADMIN:
        return _is_owner(caller.user, target)
    return True


def _is_owner(user: User, target: Any) -> bool:
    match target:
        case Experiment() | Workspace():
            return target.owner == user.id
        case User():
            return target.id == user.id
        case _:
            return False


def _is_own(allocation: Allocation, target: Any) -> bool:
    match target:
        case Allocation() | AllocationRef():
            return target.id == allocation.id
        case TaskRef():
            return target.id == allocation.task_id
        case Trial():
            return target.id == allocation.trial_id
        case Checkpoint():
            return target.trial_id == allocation.trial_id
        case tuple():
            return all(_is_own(allocation, one) for one in target)
        case _:
            return False
