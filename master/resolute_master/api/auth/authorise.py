"""Authorisation: one function for every route.

Every active user may read everything and create. Work (an experiment, its trials, checkpoints, tasks and job) is changed by its
owner, by the owner of its workspace, and by administrators. The token of a task reads everything, and reports for its own
allocation, trial and checkpoints. `docs/authorisation.md` is the table of every route, made from this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from types import MappingProxyType

from resolute_master.api.auth.authenticate import Caller
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AllocationId, TaskId, TrialId, UserId
from resolute_master.domain.user import User
from resolute_master.domain.workspace import Workspace


@unique
class Action(StrEnum):
    """What a route does. The value completes "may not ...", followed by the name of the target if there is one."""

    PUBLIC = "use this call"
    VIEW = "read"
    PREVIEW = "preview a search"
    CREATE_EXPERIMENT = "create experiments in"
    CONTROL_EXPERIMENT = "change"
    ACTIVATE = "activate"
    PAUSE = "pause"
    CANCEL = "cancel"
    KILL = "kill"
    ARCHIVE = "archive or unarchive"
    DELETE_EXPERIMENT = "delete"
    MOVE_EXPERIMENT = "move"
    BULK = "send actions on several experiments or runs"
    USE_SECRETS = "use the stored secrets of"
    REPORT = "report for"
    USE_QUEUE = "send changes of the job queue"
    CONTROL_QUEUE = "change the priority, weight, pool or place in the queue of"
    OVERTAKE = "put work ahead of"
    CONTROL_AGENTS = "enable and disable agents"
    ADMIT_AGENTS = "decide which agents may join"
    CREATE_TEMPLATE = "create templates"
    CONTROL_TEMPLATES = "replace, rename or delete"
    CREATE_WORKSPACE = "create workspaces"
    CREATE_PROJECT = "create projects in"
    EDIT_WORKSPACE = "change the settings of"
    DELETE_WORKSPACE = "delete all of"
    PIN_WORKSPACE = "pin workspaces"
    EDIT_PROJECT = "edit"
    WRITE_NOTES = "write notes of"
    DELETE_PROJECT = "delete the whole of"
    MOVE_PROJECT = "move the whole of"
    BIND_POOLS = "bind resource pools to workspaces"
    SET_BUDGETS = "set budgets"
    CLEAN_UP = "remove old logs"
    VIEW_MASTER_CONFIG = "see the master's configuration"
    CHANGE_MASTER_CONFIG = "change the master's configuration"
    KEEP_SETTINGS = "keep settings of a web interface"
    CREATE_USER = "create users"
    EDIT_USER = "change the name or password of"
    GRANT = "rename users, activate them or make them administrators"
    LINK_AGENT_USER = "choose the account of the machines that tasks run as"
    LOG_OUT = "end a session"


class Rule(StrEnum):
    """The callers that may take an action. An administrator may take each; the value is the text of a refusal."""

    PUBLIC = "anyone may, without a token"
    READ = "every user and every task may"
    PERSON = "every user may"
    WORK = "its owner, the owner of its workspace or an administrator may"
    REPORT = "its own task, its owner, the owner of its workspace or an administrator may"
    CREATOR = "its creator or an administrator may"
    SELF = "that user or an administrator may"
    ADMINISTRATOR = "an administrator may"


_A, _R = Action, Rule

RULES: Mapping[Action, Rule] = MappingProxyType(
    {
        _A.PUBLIC: _R.PUBLIC,
        _A.VIEW: _R.READ,
        _A.PREVIEW: _R.READ,
        _A.LOG_OUT: _R.READ,
        _A.CREATE_EXPERIMENT: _R.PERSON,
        _A.CREATE_TEMPLATE: _R.PERSON,
        _A.CREATE_WORKSPACE: _R.PERSON,
        _A.CREATE_PROJECT: _R.PERSON,
        _A.USE_QUEUE: _R.PERSON,
        _A.BULK: _R.PERSON,
        _A.KEEP_SETTINGS: _R.PERSON,
        _A.PIN_WORKSPACE: _R.PERSON,
        _A.CONTROL_EXPERIMENT: _R.WORK,
        _A.ACTIVATE: _R.WORK,
        _A.PAUSE: _R.WORK,
        _A.CANCEL: _R.WORK,
        _A.KILL: _R.WORK,
        _A.ARCHIVE: _R.WORK,
        _A.DELETE_EXPERIMENT: _R.WORK,
        _A.MOVE_EXPERIMENT: _R.WORK,
        _A.USE_SECRETS: _R.WORK,
        _A.CONTROL_QUEUE: _R.WORK,
        _A.OVERTAKE: _R.WORK,
        _A.EDIT_WORKSPACE: _R.WORK,
        _A.DELETE_WORKSPACE: _R.WORK,
        _A.EDIT_PROJECT: _R.WORK,
        _A.WRITE_NOTES: _R.WORK,
        _A.DELETE_PROJECT: _R.WORK,
        _A.MOVE_PROJECT: _R.WORK,
        _A.REPORT: _R.REPORT,
        _A.CONTROL_TEMPLATES: _R.CREATOR,
        _A.EDIT_USER: _R.SELF,
        _A.CONTROL_AGENTS: _R.ADMINISTRATOR,
        _A.ADMIT_AGENTS: _R.ADMINISTRATOR,
        _A.BIND_POOLS: _R.ADMINISTRATOR,
        _A.SET_BUDGETS: _R.ADMINISTRATOR,
        _A.CLEAN_UP: _R.ADMINISTRATOR,
        _A.VIEW_MASTER_CONFIG: _R.ADMINISTRATOR,
        _A.CHANGE_MASTER_CONFIG: _R.ADMINISTRATOR,
        _A.CREATE_USER: _R.ADMINISTRATOR,
        _A.GRANT: _R.ADMINISTRATOR,
        _A.LINK_AGENT_USER: _R.ADMINISTRATOR,
    }
)

OPEN_RULES: Mapping[Action, Rule] = MappingProxyType(
    {
        **RULES,
        **dict.fromkeys(
            (
                _A.CONTROL_EXPERIMENT,
                _A.ACTIVATE,
                _A.PAUSE,
                _A.CANCEL,
                _A.KILL,
                _A.ARCHIVE,
                _A.CONTROL_QUEUE,
                _A.OVERTAKE,
                _A.CONTROL_TEMPLATES,
                _A.WRITE_NOTES,
            ),
            _R.PERSON,
        ),
    }
)
"""With `security.authz.type: open`, as the original has it: every user controls, and (in `can`) reports for, every experiment, and
writes notes of every project."""


class Role(StrEnum):
    """Role of a user in a workspace that the user does not own."""

    OWNER = "owner"
    """Has the rights of the workspace's owner."""


Roles = Mapping[int, frozenset[Role]]
"""The caller's roles, by the id of the workspace."""

NO_ROLES: Roles = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class AllocationRef:
    """A reference to an allocation, which may have ended long ago or not exist."""

    id: AllocationId


@dataclass(frozen=True, slots=True)
class TaskRef:
    """A task by its id."""

    id: TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The properties of an entity on which a decision depends: its owner and its task."""

    name: str
    """Its name in the text of a refusal: "experiment 7"."""
    owner: User | None = None
    """None without an owner: only the owner of its workspace and administrators may change it."""
    workspace: Workspace | None = None
    workspace_owner: str = ""
    """The name of the workspace's owner, empty where it has none."""
    allocation: AllocationId | None = None
    task: TaskId | None = None
    trial: TrialId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The rules that `security.authz` of the configuration sets."""

    open: bool = False
    strict_queue: bool = False
    """Only administrators change the job queue."""

    def rule(self, action: Action) -> Rule:
        if self.strict_queue and action is Action.CONTROL_QUEUE:
            return Rule.ADMINISTRATOR
        return (OPEN_RULES if self.open else RULES)[action]


BASIC = Policy()


def can(
    caller: Caller | None,
    action: Action,
    targets: Sequence[Target] | None = None,
    *,
    policy: Policy = BASIC,
    roles: Roles = NO_ROLES,
) -> bool:
    """Whether `caller` may do `action` to all of `targets`; None is the cluster as a whole. `caller` None has no valid token."""
    rule = policy.rule(action)
    if rule is Rule.PUBLIC:
        return True
    if caller is None:
        return False
    if caller.allocation is not None:
        if rule is Rule.REPORT:
            return targets is not None and all(_is_own(caller.allocation, target) for target in targets)
        return rule is Rule.READ
    if is_administrator(caller) or rule in (Rule.READ, Rule.PERSON):
        return True
    if targets is None:
        return False
    match rule:
        case Rule.WORK | Rule.REPORT:
            open_report = policy.open and rule is Rule.REPORT
            return open_report or all(_answers_for(caller.user, target, roles) for target in targets)
        case Rule.CREATOR:
            return all(_owns(caller.user.id, target) for target in targets)
        case Rule.SELF:
            return not caller.in_task and all(_owns(caller.user.id, target) for target in targets)
        case _:
            return False


def is_administrator(caller: Caller) -> bool:
    """The token that a task holds for its owner's commands never has an administrator's rights: a task's environment leaks."""
    return caller.user.admin and caller.allocation is None and not caller.in_task


def depends_on_owner(caller: Caller | None, action: Action, policy: Policy) -> bool:
    """Whether the decision depends on the owners of the targets, which may have to be read from the database."""
    if caller is None or caller.allocation is not None or is_administrator(caller):
        return False
    rule = policy.rule(action)
    return rule in (Rule.WORK, Rule.CREATOR, Rule.SELF) or (rule is Rule.REPORT and not policy.open)


def _answers_for(user: User, target: Target, roles: Roles) -> bool:
    workspace = target.workspace
    if workspace is not None and (workspace.owner == user.id or Role.OWNER in roles.get(workspace.id, ())):
        return True
    return _owns(user.id, target)


def _owns(user: UserId, target: Target) -> bool:
    return target.owner is not None and target.owner.id == user


def _is_own(allocation: Allocation, target: Target) -> bool:
    """Whether the target belongs to the allocation. Each target names a task, an allocation or a trial."""
    if target.allocation is not None:
        return target.allocation == allocation.id
    if target.task is not None:
        return target.task == allocation.task_id
    return target.trial is not None and target.trial == allocation.trial_id


# ------------------------------------------------------------------------------------------------------------ refusals


def refusal(
    caller: Caller, action: Action, targets: Sequence[Target] | None, *, policy: Policy = BASIC, roles: Roles = NO_ROLES
) -> str:
    """The text of a refusal: the action, the owner, and the callers that may."""
    if policy.strict_queue and action is Action.CONTROL_QUEUE and caller.allocation is None:
        why = "security.authz.strict_job_queue_control reserves it for administrators: ask one"
        return f"{_who(caller)} may not change the job queue; {why}"
    rule = policy.rule(action)
    refused = [t for t in targets or () if not can(caller, action, (t,), policy=policy, roles=roles)]
    target = refused[0] if refused and rule is not Rule.ADMINISTRATOR else None
    what = str(action).removesuffix(" in") if target is None else f"{action} {_named(target, rule)}"
    text = f"{_who(caller)} may not {what}; {_may(rule, target)}"
    if caller.in_task and caller.user.admin:
        text += "; the token of a task has no administrator's rights: log in"
    return text


def _who(caller: Caller) -> str:
    if caller.allocation is not None:
        return f"the task of allocation {caller.allocation.id}"
    return f"user '{caller.user.username}'" + (" from within a task" if caller.in_task else "")


def _named(target: Target, rule: Rule) -> str:
    whose = "" if target.owner is None or rule is Rule.SELF else f" of '{target.owner.username}'"
    return f"{target.name}{whose}"


def _may(rule: Rule, target: Target | None) -> str:
    """Names the workspace, and its owner if it has one."""
    if target is None or rule not in (Rule.WORK, Rule.REPORT):
        return rule.value
    owners = ["its own task"] if rule is Rule.REPORT else []
    owners += ["its owner"] if target.owner is not None else []
    if target.workspace is not None and target.workspace_owner:
        owners.append(f"the owner of workspace '{target.workspace.name}'")
    return f"{', '.join(owners)} or an administrator may" if owners else Rule.ADMINISTRATOR.value
