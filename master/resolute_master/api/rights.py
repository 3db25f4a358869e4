"""The table of callers and the calls that they may make, generated from the routes and the function that authorises.

python -m resolute_master.api.rights docs/authorisation.md      # writes the page
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from resolute.wire.states import TaskType
from resolute_master.api.app import ROUTES
from resolute_master.api.auth.authenticate import Caller
from resolute_master.api.auth.authorise import BASIC, Action, Policy, Target, can
from resolute_master.api.http.call import Route, nothing
from resolute_master.api.resources import not_yet
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AllocationId, JobId, PoolName, SessionId, TaskId, TrialId, UserId
from resolute_master.domain.user import User
from resolute_master.domain.workspace import Workspace


class Role(StrEnum):
    """The callers of the table; the value heads their column."""

    UNAUTHENTICATED = "no token"
    AGENT = "agent"
    ENDED_TASK = "ended task"
    OTHER_TASK = "other task"
    OWN_TASK = "own task"
    OTHER = "other user"
    OWNER = "owner"
    WORKSPACE_OWNER = "workspace owner"
    ADMINISTRATOR = "administrator"
    ADMINISTRATOR_IN_TASK = "administrator, from a task"


MEANING: Mapping[Role, str] = MappingProxyType(
    {
        Role.UNAUTHENTICATED: "without a token, or with one that is not valid; also a user who is not active",
        Role.AGENT: "the join token or credential of an agent or a booting machine: no token of the REST API",
        Role.ENDED_TASK: "the token of a task whose allocation has ended",
        Role.OTHER_TASK: "the token of a task that the call does not concern",
        Role.OWN_TASK: "the token of the task that the call concerns, or whose trial, allocation or checkpoint it names",
        Role.OTHER: "a user who owns no entity of the call",
        Role.OWNER: "the owner of the experiment, trial, checkpoint, task, job or project; the creator of the template; the user",
        Role.WORKSPACE_OWNER: "the owner of the workspace that it is in, or that the call names",
        Role.ADMINISTRATOR: "a user with the administrator's flag, logged in",
        Role.ADMINISTRATOR_IN_TASK: "the same user, with the token in a task's environment (`DET_USER_TOKEN`), for work of others",
    }
)

NEEDS_NO_REST = (Role.UNAUTHENTICATED, Role.AGENT, Role.ENDED_TASK)
"""Callers without a valid token: answered with 401."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A call. `when` limits the row to some requests of it, if the route authorises them separately."""

    method: str
    path: str
    when: str = ""
    granted: frozenset[Role]

    @property
    def call(self) -> str:
        return f"{self.method} {self.path}"


# -------------------------------------------------------------------------------------------------------- the callers

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _user(id_: int, *, admin: bool = False) -> User:
    return User(id=UserId(id_), username=str(id_), password_hash="", admin=admin, modified_at=_EPOCH)


def _login(user: User) -> Caller:
    return Caller(user=user, session=SessionId("session"))


def _task(name: str, trial: int) -> Caller:
    allocation = Allocation(
        id=AllocationId(f"{name}.1"),
        task_id=TaskId(name),
        task_type=TaskType.TRIAL,
        job_id=JobId("job"),
        pool=PoolName("pool"),
        slots_needed=1,
        requested_at=_EPOCH,
        trial_id=TrialId(trial),
    )
    return Caller(user=_OWNER, allocation=allocation)


_OWNER, _WORKSPACE_OWNER, _OTHER, _THIRD, _ADMINISTRATOR = (_user(n, admin=n == 5) for n in range(1, 6))

CALLERS: Mapping[Role, Caller | None] = MappingProxyType(
    {
        **dict.fromkeys(NEEDS_NO_REST),
        Role.OTHER_TASK: _task("other", 2),
        Role.OWN_TASK: _task("own", 1),
        Role.OTHER: _login(_OTHER),
        Role.OWNER: _login(_OWNER),
        Role.WORKSPACE_OWNER: _login(_WORKSPACE_OWNER),
        Role.ADMINISTRATOR: _login(_ADMINISTRATOR),
        Role.ADMINISTRATOR_IN_TASK: Caller(user=_ADMINISTRATOR, in_task=True),
    }
)

_WORKSPACE = Workspace(id=2, name="workspace", owner=_WORKSPACE_OWNER.id)
_WORK = Target(name="work", owner=_OWNER, workspace=_WORKSPACE, trial=TrialId(1))
_TARGETS: Mapping[Action, Target] = MappingProxyType(
    {
        Action.EDIT_WORKSPACE: Target(name="workspace", workspace=_WORKSPACE),
        Action.DELETE_WORKSPACE: Target(name="workspace", workspace=_WORKSPACE),
        Action.OVERTAKE: Target(name="others' work", owner=_THIRD),
    }
)


# ----------------------------------------------------------------------------------------------------------- the rows


def granted(steps: Sequence[tuple[Action, bool]], policy: Policy = BASIC) -> frozenset[Role]:
    """The callers that may do all of them; each step has a flag that it concerns an entity, not the cluster."""
    return frozenset(
        role
        for role, caller in CALLERS.items()
        if all(
            can(caller, action, (_TARGETS.get(action, _WORK),) if has_target else None, policy=policy)
            for action, has_target in steps
        )
    )


def rows_of(route: Route, policy: Policy = BASIC) -> tuple[Row, ...]:
    """One for the call, and one for each condition that it authorises separately."""
    first = (route.action, route.find is not nothing)
    always = [(also.action, True) for also in route.also if not also.when]
    rows = [Row(method=route.method, path=route.path, granted=granted([first, *always], policy))]
    for also in route.also:
        if also.when:
            steps = [first, *always, (also.action, True)]
            rows.append(Row(method=route.method, path=route.path, when=also.when, granted=granted(steps, policy)))
    return tuple(rows)


def table(routes: Iterable[Route], policy: Policy = BASIC) -> tuple[Row, ...]:
    return tuple(row for route in routes for row in rows_of(route, policy))


# ----------------------------------------------------------------------------------------------------------- the page

INTRODUCTION = """# Authorisation by call

Every call of the REST API, and the callers that may make it, with `security.authz.type: basic`, the default. **yes**: the call
is served if its own conditions hold. A caller without a valid token gets 401. Any other caller that may not make the call gets 403
with the callers that may.

`python -m resolute_master.api.rights docs/authorisation.md` generates this page from the routes and from the function that
authorises (`resolute_master/api/auth/authorise.py`). A test makes each call as each caller, compares the answers with the table,
and fails for a route that it does not cover (`tests/integration/api/test_api_rights.py`).
"""

ENDPOINTS = """
## Endpoints for machines

These are not calls of the REST API: they accept no token of a user or a task, and the REST API does not accept their credentials.

| endpoint | caller |
|---|---|
| `GET /agents/link` | an agent, with its [credential](security.md#agents-how-a-machine-joins) |
| `POST /agents/boot/{instance}` | a launched machine, with its own one-time token |
| `GET /agents/wheels/{name}` | anyone: the open source of the agent, whose hash the downloading machine checks |
| `GET /metrics`, `/prom/*`, `/debug/prom/metrics` | the callers of the table, and a scraper with `observability.metrics_token` |

## Calls that are not served yet

The following return 501 to every user and every task, and 401 to callers without a valid token. They read and
change nothing.

"""


def page() -> str:
    """The whole document."""
    lines = [INTRODUCTION, "| caller | meaning |", "|---|---|"]
    lines += [f"| {role} | {MEANING[role]} |" for role in Role]
    lines += ["", "## The calls", "", *_markdown(table(ROUTES)), ENDPOINTS]
    lines += [f"- `{route.method} {route.path}`" for route in not_yet.ROUTES]
    lines += ["", "## With `security.authz.type: open`", "", _open_text(), ""]
    return "\n".join(lines)


def _markdown(rows: Iterable[Row]) -> list[str]:
    lines = [f"| call | {' | '.join(Role)} |", f"|---|{'---|' * len(Role)}"]
    for row in rows:
        call = f"`{row.call}`" + (f", {row.when}" if row.when else "")
        lines.append(f"| {call} | {' | '.join('**yes**' if role in row.granted else '–' for role in Role)} |")
    return lines


def _open_text() -> str:
    opened = {(row.call, row.when): row.granted for row in table(ROUTES, Policy(open=True))}
    kept = [
        f"`{row.call}`" + (f" ({row.when})" if row.when else "")
        for row in table(ROUTES)
        if Role.OTHER not in opened[row.call, row.when]
        and opened[row.call, row.when] & {Role.OWNER, Role.WORKSPACE_OWNER}
    ]
    return (
        "As in the original, every user controls every experiment, trial, checkpoint, template and job, and reports for it.\n"
        "Every user may make each call of the table that an owner may make, except these.\n\n"
        + "\n".join(f"- {call}" for call in kept)
    )


def main(arguments: Sequence[str]) -> int:
    """Write the named document."""
    Path(arguments[0]).write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
