"""Who may do what, as a table; and that no route goes past it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from resolute_master.api.app import ROUTES
from resolute_master.api.auth import Caller
from resolute_master.api.authorise import ADMIN_ONLY, OWNER_OR_ADMIN, Action, AllocationRef, TaskRef, can
from resolute_master.domain.ids import AllocationId, TaskId, TrialId, UserId
from resolute_master.domain.user import User
from support.stores import a_checkpoint, a_trial, an_allocation, an_experiment

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def a_user(id_: int, *, admin: bool = False) -> User:
    return User(id=UserId(id_), username=f"user-{id_}", password_hash="", admin=admin, modified_at=NOW)


OWNER, OTHER, ADMIN = Caller(user=a_user(1)), Caller(user=a_user(2)), Caller(user=a_user(3, admin=True))
EXPERIMENT = an_experiment(1, owner=UserId(1))

ANYBODY_S = [a for a in Action if a not in ADMIN_ONLY | OWNER_OR_ADMIN | {Action.PUBLIC}]


@pytest.mark.parametrize("action", list(Action))
def test_without_a_token_only_public_calls_work(action: Action) -> None:
    assert can(None, action, EXPERIMENT) == (action is Action.PUBLIC)


@pytest.mark.parametrize("action", ANYBODY_S)
def test_everybody_sees_and_controls(action: Action) -> None:
    assert can(OTHER, action, EXPERIMENT) and can(OWNER, action, EXPERIMENT) and can(ADMIN, action, None)


@pytest.mark.parametrize("action", sorted(ADMIN_ONLY))
def test_some_things_are_for_administrators(action: Action) -> None:
    assert can(ADMIN, action, None)
    assert not can(OWNER, action, a_user(1))


@pytest.mark.parametrize("action", sorted(OWNER_OR_ADMIN))
def test_some_things_are_their_owner_s(action: Action) -> None:
    target: Any = a_user(1) if action is Action.EDIT_USER else EXPERIMENT
    assert can(OWNER, action, target) and can(ADMIN, action, target)
    assert not can(OTHER, action, target)
    assert not can(OWNER, action, None)


def test_a_task_reports_for_its_own_and_looks_at_everything() -> None:
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
        EXPERIMENT,
        None,
    ]
    assert all(can(task, Action.REPORT, target) for target in own)
    assert not any(can(task, Action.REPORT, target) for target in foreign)
    # Not even the token of an administrator's task does more than report.
    others = set(Action) - {Action.PUBLIC, Action.VIEW, Action.REPORT}
    assert not any(can(task, action, target) for action in others for target in own)
    assert can(task, Action.VIEW, EXPERIMENT)


CHANGES = {"POST", "PUT", "PATCH", "DELETE"}
HARMLESS = {"/api/v1/auth/logout", "/api/v1/preview-hp-search"}


@pytest.mark.parametrize("route", ROUTES, ids=lambda r: f"{r.method} {r.path}")
def test_no_route_that_changes_something_is_open_to_those_who_may_only_look(route: Any) -> None:
    if route.action is Action.PUBLIC:
        assert route.path in {"/info", "/health", "/ready", "/api/v1/master", "/api/v1/auth/login"}
    elif route.method in CHANGES:
        assert route.action is not Action.VIEW or route.path in HARMLESS
    else:
        # A rendezvous is a GET that says something.
        assert route.action in {Action.VIEW, Action.VIEW_MASTER_CONFIG} or route.path.endswith("/rendezvous")
