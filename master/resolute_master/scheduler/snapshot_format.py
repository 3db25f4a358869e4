"""The format of a snapshot file, version 1: the input of a scheduling decision, as JSON that can be written by hand.

Omitted keys have the defaults below; `docs/snapshots.md` documents them for users. Times have a zone. A name whose value is
`null` does not exist (any more), although other entries refer to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from resolute.config.base import (
    ConfigModel,
    Count,
    Flag,
    Integer,
    NonEmptyText,
    Number,
    Text,
    broken_rule,
)
from resolute.config.durations import not_too_long
from resolute.config.pools import Scheduler
from resolute.config.resources import Priority, Weight
from resolute.wire.states import NoticeKind
from resolute.wire.times import FIRST_YEAR, LAST_YEAR

VERSION = 1

SOME_DAY = datetime(2026, 1, 1, tzinfo=UTC)
"""The default time of a snapshot."""


def _this_version(value: Any) -> Any:
    if value != VERSION:
        raise broken_rule(f"is the version of another program; this one reads version {VERSION}")
    return value


def _as_agent(value: Any) -> Any:
    """A number is short for an agent with only `slots`."""
    return {"slots": value} if isinstance(value, int) and not isinstance(value, bool) else value


def _slots(value: Any) -> Any:
    numbers = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(number, int) and not isinstance(number, bool) and number >= 0 for number in numbers):
        raise broken_rule("must be the number of slots, or a list of their numbers; write it like 4, or like [0, 1]")
    return value


def _moment(value: Any) -> Any:
    """A time with a zone, as text. Raises a configuration error for anything else."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        moment = None
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise broken_rule("must be a time with a zone; write it like 2026-01-01T12:00:00Z")
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise broken_rule(f"is out of range; name a time of the years {FIRST_YEAR} to {LAST_YEAR}")
    return moment


MOST_SLOTS = 2**20
"""Most slots of all agents together, and most that all tasks together hold: a short line of a file must not exhaust memory."""


def _not_too_many(what: str, held: Mapping[str, int]) -> None:
    total = sum(held.values())
    if total > MOST_SLOTS:
        name, most = max(held.items(), key=lambda each: each[1])
        raise broken_rule(
            f"they {what} {total} slots in all ('{name}' alone {most}); at most {MOST_SLOTS} are read, so name fewer"
        )


def _how_many(slots: int | tuple[int, ...]) -> int:
    return slots if isinstance(slots, int) else len(slots)


def _agents_of_a_size(agents: dict[str, AgentRow | None]) -> dict[str, AgentRow | None]:
    _not_too_many("have", {id_: _how_many(row.slots) for id_, row in agents.items() if row is not None})
    return agents


def _tasks_of_a_size(tasks: dict[str, TaskRow | None]) -> dict[str, TaskRow | None]:
    there = {id_: (row.on or {}).values() for id_, row in tasks.items() if row is not None}
    _not_too_many("hold", {id_: sum(map(_how_many, places)) for id_, places in there.items()})
    return tasks


def _named(rows: Any) -> Any:
    if isinstance(rows, Mapping) and "" in rows:
        raise broken_rule("one of them has an empty name; give each a name")
    return rows


Moment = Annotated[datetime, BeforeValidator(_moment)]

Slots = Annotated[Count | tuple[Count, ...], BeforeValidator(_slots)]
"""The number of slots, or their numbers."""


class Policy(Scheduler):
    """How the pool decides: the `scheduler` block of the configuration, and one key of the pool's."""

    max_aux_containers_per_agent: Count = 100
    """Tasks without slots that an agent may run at a time."""


class AgentRow(ConfigModel):
    """An agent, or just its number of slots."""

    slots: Slots
    """The number of its slots, or their numbers."""
    disabled_slots: tuple[Count, ...] = ()
    """Numbers of the disabled slots."""
    draining_slots: tuple[Count, ...] = ()
    """Numbers of the draining slots."""
    enabled: Flag = True
    """Whether it is enabled."""
    draining: Flag = False
    """Whether it finishes its work and accepts no new work."""
    connected: Flag = True
    """Whether it is in contact."""
    notice: Literal[tuple(NoticeKind)] | None = None  # type: ignore[valid-type]
    """The notice of its machine."""
    instance: Text | None = None
    """Its machine, in an elastic pool."""


class JobRow(ConfigModel):
    """What the tasks of a job have in common."""

    priority: Priority | None = None
    """1 (first) to 99; null is the policy's default_priority."""
    weight: Weight = 1.0
    """Its weight in a fair-share pool."""
    max_slots: Count | None = None
    """Slots that it may hold at a time."""
    held: str = ""
    """Why no task of it with slots may start for now, such as an exhausted budget; empty when it may."""
    owner: Integer = 1
    """Id of its user."""
    workspace: Integer = 1
    """Id of its workspace."""
    submitted_at: Moment | None = None
    """When it was submitted; null is the request time of its first task, or without tasks the order of the file."""
    queue_position: Number | None = None
    """Its place among jobs of its priority, smaller is earlier; null is the time of its submission in seconds since 1970."""


class TaskRow(ConfigModel):
    """One run of a task: pending, running or vacating."""

    hints: ClassVar[Mapping[str, str]] = {
        "state": "a task with 'on' runs there, one without waits; 'leaving: true' is one that was preempted"
    }

    job: NonEmptyText | None = None
    """Its job; null is a job of its own, of the task's name and with the defaults of a job."""
    slots: Count | None = None
    """Slots that it needs; null is what it holds, or 1 if it is pending."""
    single_node: Flag = False
    """Whether all of them must be on one machine."""
    preemptible: Flag = True
    """Whether it may be asked to save and end for another."""
    blocked_agents: tuple[NonEmptyText, ...] = ()
    """Agents that it must not run on."""
    reserved_agents: tuple[NonEmptyText, ...] = ()
    """Agents that an earlier decision reserved for it."""
    requested_at: Moment | None = None
    """When it requested its slots; null is a second after the previous task in the file."""
    on: dict[str, Slots] | None = None
    """Where it runs: for each agent, the chief's first, the number of slots or their numbers; no slots is an auxiliary place. Null
    is pending."""
    assigned_at: Moment | None = None
    """When its slots were assigned; null is when it started."""
    started_at: Moment | None = None
    """When it started; null is when it was requested."""
    ready_at: Moment | None = None
    """When its program ran on all its machines: the time before is the duration of a start. Null is when it started."""
    saved_at: Moment | None = None
    """When it reported its newest checkpoint; null is not yet. A task with a newer checkpoint is preempted first."""
    evictions: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """How often it was preempted before: a task with fewer preemptions is preferred as a victim."""
    likelihood: Annotated[Number, Field(ge=0, le=1)] = 1.0
    """How likely its search needs it after its next result: a less likely task is preempted first, and starts last in its job."""
    rung: Count = 0
    """The rung that it trains for: among equally likely tasks of its job, a higher one starts first."""
    score: Number = 0.0
    """Its newest result in its search: among tasks of its job at the same rung, a smaller one starts first."""
    leaving: Flag = False
    """Whether it was asked to end, so that its slots will be free."""


class OfferRow(ConfigModel):
    """A kind of machine that the pool may launch."""

    slots: Count
    """Slots of such a machine; 0 is one for work without slots."""
    price_per_hour: Annotated[Number, Field(ge=0)] | None = None
    """The cheapest is launched first; null is not known."""
    expected_s: Annotated[Number, Field(ge=0), AfterValidator(not_too_long)] | None = None
    """Seconds from the request until its agent joins; null is not known."""
    available: Flag = True
    """Whether it may be requested now."""
    room: Count | None = None
    """Machines of it that may still be requested; null is as many as of all together."""
    one_only: Flag = False
    """Whether it may not be asked for machines of a task that needs several."""


class MachineRow(ConfigModel):
    """A machine that was requested and whose agent has not joined."""

    slots: Count
    """Slots that it will have; 0 for none."""
    expected_at: Moment | None = None
    """When its agent is expected; null is unknown."""
    tasks: tuple[NonEmptyText, ...] = ()
    """The tasks that it was launched for."""


class SupplyRow(ConfigModel):
    """Makes the pool elastic."""

    max_instances: Count = 5
    """Machines that the pool may have."""
    offers: Annotated[dict[str, OfferRow], BeforeValidator(_named)] = Field(default_factory=dict)
    """Offers that the pool may launch, by name."""
    machines: Annotated[dict[str, MachineRow], BeforeValidator(_named)] = Field(default_factory=dict)
    """Starting machines, by name."""
    unused: Annotated[dict[str, tuple[NonEmptyText, ...]], BeforeValidator(_named)] = Field(default_factory=dict)
    """Tasks that machines were launched for whose agents have run nothing yet, by the `instance` of the agent."""
    room: Count | None = None
    """Machines of all offers together that may still be requested; null is the rest of max_instances."""
    reason: Text = ""
    """Why no machine is available now, as text."""


class SnapshotRow(ConfigModel):
    """A whole pool at one moment."""

    version: Annotated[int, BeforeValidator(_this_version)] = VERSION
    """Version of the format."""
    pool: NonEmptyText = "default"
    """Name of the pool."""
    now: Moment = SOME_DAY
    """The moment."""
    policy: Policy = Policy()
    """How the pool decides."""
    held: str = ""
    """Why nothing may start in the pool for now, such as an exhausted budget; empty when work may start."""
    agents: Annotated[
        dict[str, Annotated[AgentRow, BeforeValidator(_as_agent)] | None], AfterValidator(_agents_of_a_size)
    ] = Field(default_factory=dict)
    """Its agents, by id; null is one that is missing while an allocation still counts as running there."""
    jobs: Annotated[dict[str, JobRow | None], BeforeValidator(_named)] = Field(default_factory=dict)
    """Its jobs, by id; null is one that is missing: its tasks count with the defaults."""
    tasks: Annotated[dict[str, TaskRow | None], BeforeValidator(_named), AfterValidator(_tasks_of_a_size)] = Field(
        default_factory=dict
    )
    """Pending and running tasks, by id, the earliest first; null is none."""
    usage: dict[str, Annotated[Number, Field(ge=0)]] = Field(default_factory=dict)
    """With usage_half_life: the charge of a user, named `<workspace>/<user>`, for past usage, in slots."""
    supply: SupplyRow | None = None
    """Machines that an elastic pool may launch; null is a pool that never grows."""
