"""Who may do what, by the one function that decides; and that no route goes past it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from resolute_master.api.app import ROUTES
from resolute_master.api.auth.authenticate import Caller
from resolute_master.api.auth.authorise import (
    BASIC,
    OPEN_RULES,
    RULES,
    Action,
    AllocationRef,
    Policy,
    Role,
    Rule,
    Target,
    TaskRef,
    can,
    refusal,
)
from resolute_master.api.auth.ownership import of_task
from resolute_master.api.rights import page
from resolute_master.domain.ids import AllocationId, SessionId, TaskId, TrialId, UserId
from resolute_master.domain.user import User
from resolute_master.domain.workspace import Workspace
from support.stores import a_checkpoint, a_trial, an_allocation, an_experiment

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def a_user(id_: int, *, admin: bool = False) -> User:
    return User(id=UserId(id_), username=f"user-{id_}", password_hash="", admin=admin, modified_at=NOW)


def logged_in(user: User) -> Caller:
    return Caller(user=user, session=SessionId("s"))


OWNER, OTHER, HOST, ADMIN = (logged_in(a_user(n, admin=n == 4)) for n in (1, 2, 3, 4))
WORKSPACE = Workspace(id=7, name="vision", owner=UserId(3))
WORK = (Target(name="experiment 1", owner=OWNER.user, workspace=WORKSPACE, workspace_owner="user-3"),)
OF_OTHER = (Target(name="experiment 2", owner=OTHER.user),)
NOBODY_S = (Target(name="experiment 3"),)
OPEN, STRICT = Policy(open=True), Policy(strict_queue=True)


def actions(*rules: Rule) -> list[Action]:
    return [action for action in Action if RULES[action] in rules]


def test_the_page_says_what_the_routes_and_the_function_say() -> None:
    written = (Path(__file__).parents[3] / "docs" / "authorisation.md").read_text()
    assert written == page(), "run: python -m resolute_master.api.rights docs/authorisation.md"


def test_every_action_has_a_rule() -> None:
    assert set(RULES) == set(OPEN_RULES) == set(Action)


@pytest.mark.parametrize("action", list(Action))
def test_without_a_token_only_public_calls_work(action: Action) -> None:
    assert can(None, action, WORK) == (action is Action.PUBLIC)


@pytest.mark.parametrize("action", actions(Rule.READ, Rule.PERSON))
def test_everybody_reads_and_creates(action: Action) -> None:
    assert all(can(caller, action, targets) for caller in (OTHER, OWNER, ADMIN) for targets in (WORK, None))


@pytest.mark.parametrize("action", actions(Rule.WORK, Rule.REPORT))
def test_work_is_its_owner_s_its_workspace_owner_s_and_administrators(action: Action) -> None:
    assert all(can(caller, action, WORK) for caller in (OWNER, HOST, ADMIN))
    assert not can(OTHER, action, WORK)
    assert not can(OWNER, action, WORK + OF_OTHER), "each of several is asked for"
    assert can(ADMIN, action, WORK + OF_OTHER + NOBODY_S)
    assert not can(OWNER, action, NOBODY_S) and not can(OWNER, action, None)


@pytest.mark.parametrize("action", actions(Rule.WORK, Rule.REPORT))
def test_a_role_in_the_workspace_counts_as_owning_it(action: Action) -> None:
    assert can(OTHER, action, WORK, roles={7: frozenset({Role.OWNER})})
    assert not can(OTHER, action, WORK, roles={8: frozenset({Role.OWNER})})
    assert not can(OTHER, action, WORK, roles={7: frozenset()})


@pytest.mark.parametrize("action", actions(Rule.ADMINISTRATOR))
def test_some_things_are_for_administrators(action: Action) -> None:
    assert can(ADMIN, action, None)
    assert not can(OWNER, action, WORK) and not can(HOST, action, WORK)


@pytest.mark.parametrize("action", actions(Rule.CREATOR, Rule.SELF))
def test_some_things_are_their_owner_s_alone(action: Action) -> None:
    assert can(OWNER, action, WORK) and can(ADMIN, action, WORK)
    assert not can(HOST, action, WORK) and not can(OTHER, action, WORK) and not can(OTHER, action, NOBODY_S)


@pytest.mark.parametrize("action", list(Action))
def test_the_open_rules_let_every_user_control_and_no_more(action: Action) -> None:
    kept = {
        Action.DELETE_EXPERIMENT,
        Action.MOVE_EXPERIMENT,
        Action.EDIT_WORKSPACE,
        Action.DELETE_WORKSPACE,
        Action.EDIT_PROJECT,
        Action.DELETE_PROJECT,
        Action.MOVE_PROJECT,
        Action.EDIT_USER,
        Action.USE_SECRETS,
        *actions(Rule.ADMINISTRATOR),
    }
    assert can(OTHER, action, WORK, policy=OPEN) == (action not in kept)
    assert not can(None, action, WORK, policy=OPEN) or action is Action.PUBLIC


def test_a_strict_queue_is_for_administrators() -> None:
    assert can(ADMIN, Action.CONTROL_QUEUE, WORK, policy=STRICT)
    assert not can(OWNER, Action.CONTROL_QUEUE, WORK, policy=STRICT)
    assert not can(OWNER, Action.CONTROL_QUEUE, WORK, policy=Policy(open=True, strict_queue=True))


def test_a_task_reports_for_its_own_and_reads_everything() -> None:
    allocation = an_allocation("1.r.1", task_id=TaskId("1.r"), trial_id=TrialId(7))
    task = Caller(user=a_user(3, admin=True), allocation=allocation)
    own: list[Any] = [
        allocation,
        AllocationRef(allocation.id),
        TaskRef(TaskId("1.r")),
        a_trial(7),
        a_checkpoint(trial=7),
        (a_checkpoint(trial=7), a_trial(7)),
    ]
    foreign: list[Any] = [
        AllocationRef(AllocationId("1.r.2")),
        TaskRef(TaskId("1.s")),
        a_trial(8),
        a_checkpoint(trial=8),
        (a_checkpoint(trial=7), a_checkpoint(trial=8)),
        an_experiment(1, owner=UserId(3)),
        None,
    ]
    for policy in (BASIC, OPEN):
        assert all(can(task, Action.REPORT, of_task(target), policy=policy) for target in own)
        assert not any(can(task, Action.REPORT, of_task(target), policy=policy) for target in foreign)
        # Not even the token of an administrator's task does more than report.
        others = set(Action) - {Action.PUBLIC, Action.REPORT, *actions(Rule.READ)}
        assert not any(can(task, action, of_task(target), policy=policy) for action in others for target in own)
        assert can(task, Action.VIEW, of_task(an_experiment(1)), policy=policy)


@pytest.mark.parametrize("action", list(Action))
def test_a_person_s_commands_within_a_task_have_no_administrator_s_rights_and_change_no_user(action: Action) -> None:
    owner = Caller(user=OWNER.user, in_task=True)
    admin = Caller(user=ADMIN.user, in_task=True)
    of_admin = (Target(name="experiment 4", owner=ADMIN.user),)
    may = action is Action.PUBLIC or RULES[action] not in (Rule.ADMINISTRATOR, Rule.SELF)
    assert can(owner, action, WORK) == may
    assert can(admin, action, of_admin) == may
    assert can(admin, action, WORK) == (RULES[action] in (Rule.PUBLIC, Rule.READ, Rule.PERSON))


def test_a_refusal_names_what_whose_and_who_may() -> None:
    may = "its owner, the owner of workspace 'vision' or an administrator may"
    assert refusal(OTHER, Action.PAUSE, WORK) == f"user 'user-2' may not pause experiment 1 of 'user-1'; {may}"
    assert refusal(OWNER, Action.KILL, NOBODY_S) == "user 'user-1' may not kill experiment 3; an administrator may"
    assert refusal(OWNER, Action.KILL, WORK + OF_OTHER) == (
        "user 'user-1' may not kill experiment 2 of 'user-2'; its owner or an administrator may"
    )
    assert refusal(OWNER, Action.GRANT, None) == (
        "user 'user-1' may not rename users, activate them or make them administrators; an administrator may"
    )
    user = (Target(name="user 'user-1'", owner=OWNER.user),)
    assert refusal(OTHER, Action.EDIT_USER, user) == (
        "user 'user-2' may not change the name or password of user 'user-1'; that user or an administrator may"
    )
    within = refusal(Caller(user=ADMIN.user, in_task=True), Action.CREATE_USER, None)
    assert within == (
        "user 'user-4' from within a task may not create users; an administrator may; the token of a task has no "
        "administrator's rights: log in"
    )
    task = Caller(user=OWNER.user, allocation=an_allocation("1.r.1"))
    assert refusal(task, Action.CREATE_EXPERIMENT, None) == (
        "the task of allocation 1.r.1 may not create experiments; every user may"
    )


CHANGES = {"POST", "PUT", "PATCH", "DELETE"}
READS = {Action.VIEW, Action.PREVIEW, Action.LOG_OUT}
HARMLESS = {
    "/api/v1/auth/logout",
    "/api/v1/preview-hp-search",
    "/api/v1/experiments-search",
    "/api/v1/runs",
    "/api/v1/experiments/{experimentId}/file",
}
"""What is asked for in their bodies changes nothing."""


@pytest.mark.parametrize("route", ROUTES, ids=lambda r: f"{r.method} {r.path}")
def test_no_route_that_changes_something_is_open_to_those_who_may_only_read(route: Any) -> None:
    if route.action is Action.PUBLIC:
        assert route.path in {"/info", "/health", "/ready", "/api/v1/master", "/api/v1/auth/login"}
    elif route.method in CHANGES:
        assert route.action not in READS or route.path in HARMLESS
    else:
        # A rendezvous is a GET that says something.
        assert route.action in {Action.VIEW, Action.VIEW_MASTER_CONFIG, Action.ADMIT_AGENTS} or route.path.endswith(
            "/rendezvous"
        )
