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


class Who(StrEnum):
    """The callers of the table; the value heads their column."""

    NOBODY = "nobody"
    AGENT = "agent"
    ENDED_TASK = "ended task"
    OTHER_TASK = "other task"
    OWN_TASK = "own task"
    OTHER = "other user"
    OWNER = "owner"
    WORKSPACE_OWNER = "workspace owner"
    ADMINISTRATOR = "administrator"
    ADMINISTRATOR_IN_TASK = "administrator, from a task"


MEANING: Mapping[Who, str] = MappingProxyType(
    {
        Who.NOBODY: "without a token, or with one that is not valid; also a user who is not active",
        Who.AGENT: "the join token or credential of an agent or a booting machine: no token of the REST API",
        Who.ENDED_TASK: "the token of a task whose allocation has ended",
        Who.OTHER_TASK: "the token of a task that the call is not about",
        Who.OWN_TASK: "the token of the task that the call is about, or whose trial, allocation or checkpoint it names",
        Who.OTHER: "a user to whom nothing of the call belongs",
        Who.OWNER: "the owner of the experiment, trial, checkpoint, task or job; the creator of the template; the user themself",
        Who.WORKSPACE_OWNER: "the owner of the workspace that it is in, or that the call names",
        Who.ADMINISTRATOR: "a user with the administrator's flag, logged in",
        Who.ADMINISTRATOR_IN_TASK: "the same user, with the token in a task's environment (`DET_USER_TOKEN`), about others' work",
    }
)

NEEDS_NO_REST = (Who.NOBODY, Who.AGENT, Who.ENDED_TASK)
"""Who has no valid token: answered with 401."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A call. `when` says of what a request, where the route decides that beside its action."""

    method: str
    path: str
    when: str = ""
    granted: frozenset[Who]

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

CALLERS: Mapping[Who, Caller | None] = MappingProxyType(
    {
        **dict.fromkeys(NEEDS_NO_REST),
        Who.OTHER_TASK: _task("other", 2),
        Who.OWN_TASK: _task("own", 1),
        Who.OTHER: _login(_OTHER),
        Who.OWNER: _login(_OWNER),
        Who.WORKSPACE_OWNER: _login(_WORKSPACE_OWNER),
        Who.ADMINISTRATOR: _login(_ADMINISTRATOR),
        Who.ADMINISTRATOR_IN_TASK: Caller(user=_ADMINISTRATOR, in_task=True),
    }
)

_WORKSPACE = Workspace(id=2, name="workspace", owner=_WORKSPACE_OWNER.id)
_WORK = Target(name="work", owner=_OWNER, workspace=_WORKSPACE, trial=TrialId(1))
_TARGETS: Mapping[Action, Target] = MappingProxyType(
    {
        Action.EDIT_WORKSPACE: Target(name="workspace", workspace=_WORKSPACE),
        Action.OVERTAKE: Target(name="others' work", owner=_THIRD),
    }
)


# ----------------------------------------------------------------------------------------------------------- the rows


def granted(steps: Sequence[tuple[Action, bool]], policy: Policy = BASIC) -> frozenset[Who]:
    """Who may do all of them; each with whether it is about a thing, not about the cluster."""
    return frozenset(
        who
        for who, caller in CALLERS.items()
        if all(
            can(caller, action, (_TARGETS.get(action, _WORK),) if has_target else None, policy=policy)
            for action, has_target in steps
        )
    )


def rows_of(route: Route, policy: Policy = BASIC) -> tuple[Row, ...]:
    """One for the call, and one for each thing that it decides beside that."""
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

INTRODUCTION = """# Who may make which call

Every call of the REST API, and who may make it, with `security.authz.type: basic`, the default. **yes**: the call is served,
as far as its own conditions hold. A caller without a valid token gets 401; any other that may not make the call gets 403 and a
sentence that names who may.

The page is written from the routes and from the one function that decides (`resolute_master/api/auth/authorise.py`) by
`python -m resolute_master.api.rights docs/authorisation.md`. A test makes each call as each caller, compares the answers with the
table, and fails for a route that it does not know (`tests/integration/api/test_api_rights.py`).
"""

DOORS = """
## Doors of machines

These are no calls of the REST API: no token of a user or a task opens them, and what opens them opens nothing else.

| door | who |
|---|---|
| `GET /agents/link` | an agent, with what [proves it](security.md#agents-how-a-machine-joins) |
| `POST /agents/boot/{instance}` | a machine that was launched, with its own one-time token |
| `GET /agents/wheels/{name}` | anyone: the open source of the agent, checked against its hash by the machine that fetches it |
| `GET /metrics`, `/prom/*`, `/debug/prom/metrics` | beside what the table says, a scraper with `observability.metrics_token` |

## Calls that are not served yet

The following are answered with 501 to every user and to every task, and with 401 to everyone without a valid token. They read and
change nothing.

"""


def page() -> str:
    """The whole document."""
    lines = [INTRODUCTION, "| caller | who that is |", "|---|---|"]
    lines += [f"| {who} | {MEANING[who]} |" for who in Who]
    lines += ["", "## The calls", "", *_markdown(table(ROUTES)), DOORS]
    lines += [f"- `{route.method} {route.path}`" for route in not_yet.ROUTES]
    lines += ["", "## With `security.authz.type: open`", "", _open_text(), ""]
    return "\n".join(lines)


def _markdown(rows: Iterable[Row]) -> list[str]:
    lines = [f"| call | {' | '.join(Who)} |", f"|---|{'---|' * len(Who)}"]
    for row in rows:
        call = f"`{row.call}`" + (f", {row.when}" if row.when else "")
        lines.append(f"| {call} | {' | '.join('**yes**' if who in row.granted else '–' for who in Who)} |")
    return lines


def _open_text() -> str:
    opened = {(row.call, row.when): row.granted for row in table(ROUTES, Policy(open=True))}
    kept = [
        f"`{row.call}`" + (f" ({row.when})" if row.when else "")
        for row in table(ROUTES)
        if Who.OTHER not in opened[row.call, row.when] and opened[row.call, row.when] & {Who.OWNER, Who.WORKSPACE_OWNER}
    ]
    return (
        "As with the original, every user controls every experiment, trial, checkpoint, template and job, and reports for it.\n"
        "Each call of the table that an owner may make is for every user, but for these.\n\n"
        + "\n".join(f"- {call}" for call in kept)
    )


def main(arguments: Sequence[str]) -> int:
    """Write the named document."""
    Path(arguments[0]).write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
