"""One committed step of the cluster: everything that a cycle stores, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from operator import attrgetter
from typing import Any

from msgspec import Struct

from resolute_master.domain.account import Account
from resolute_master.domain.agent import Agent, AgentKey
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.checkpoint import Checkpoint
from resolute_master.domain.effects import Effect
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import ExperimentId
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job
from resolute_master.domain.metrics import LogRecord
from resolute_master.domain.search import Search, SearchTrial
from resolute_master.domain.template import Template
from resolute_master.domain.trial import Trial
from resolute_master.domain.usage import Usage
from resolute_master.domain.user import Session, User
from resolute_master.domain.workspace import PoolBinding, Project, Workspace
from resolute_provisioner.model import OfferBelief


class Counter(Struct, frozen=True, kw_only=True, gc=False):
    """The last number given out for a kind of id (`experiment`, `trial`, `user`)."""

    id: str
    value: int


class PoolBelief(Struct, frozen=True, kw_only=True, gc=False):
    """Facts about one offer of one pool, learnt from launches. `id` is `<pool>/<offer id>`."""

    id: str
    pool: str
    belief: OfferBelief


class ExternalExperiment(Struct, frozen=True, kw_only=True, gc=False):
    """The unmanaged experiment whose owner's name for it is `id`."""

    id: str
    experiment_id: ExperimentId


Entity = (
    Experiment
    | Trial
    | Job
    | Allocation
    | Agent
    | Instance
    | Checkpoint
    | User
    | Session
    | Counter
    | PoolBelief
    | Template
    | ExternalExperiment
    | Usage
    | Workspace
    | Project
    | PoolBinding
    | Account
    | AgentKey
    | Search
    | SearchTrial
)

KINDS: Mapping[str, type[Entity]] = {
    "experiment": Experiment,
    "trial": Trial,
    "job": Job,
    "allocation": Allocation,
    "agent": Agent,
    "instance": Instance,
    "checkpoint": Checkpoint,
    "user": User,
    "session": Session,
    "counter": Counter,
    "belief": PoolBelief,
    "template": Template,
    "external_experiment": ExternalExperiment,
    "usage": Usage,
    "workspace": Workspace,
    "project": Project,
    "pool_binding": PoolBinding,
    "account": Account,
    "agent_key": AgentKey,
    "search": Search,
    "search_trial": SearchTrial,
}
"""The nouns of the state, by the name of their table."""

ALWAYS_LOADED = (
    "user",
    "session",
    "counter",
    "belief",
    "template",
    "external_experiment",
    "usage",
    "workspace",
    "project",
    "pool_binding",
    "account",
    "agent_key",
)
"""Kinds of which every entity is in memory, besides agents."""

KIND_OF: Mapping[type[Any], str] = {type_: kind for kind, type_ in KINDS.items()}

EntityKey = int | str


def kind_name(type_: type[Any]) -> str:
    """Name of the kind of `type_`."""
    return KIND_OF[type_]


key_of: Callable[[Entity], EntityKey] = attrgetter("id")
"""Key of an entity within its kind."""


class Decision(Struct, frozen=True, kw_only=True, gc=False):
    """One decision as text, for users: the action, its subject and the reason."""

    at: datetime
    pool: str
    kind: str
    """Kind of the decision: place, preempt, launch, refused, terminate, notice, lost, end ..."""
    subject: str
    reason: str


class JournalEntry(Struct, frozen=True, kw_only=True, gc=False):
    """The record of a cycle, from which it can be run again: its commands and all inputs that do not follow from them.

    `commands` and `adopted` are JSON; `entropy` seeds the cycle's ids; `digest` chains over the plans and changes of
    all cycles up to this one.
    """

    sequence: int
    at: datetime
    entropy: str
    commands: bytes
    adopted: bytes
    digest: str


class Change(Struct, frozen=True, kw_only=True, gc=False):
    """A change, which is applied as a whole or not at all. `journal.sequence` is one more than that of the change before."""

    journal: JournalEntry
    upserts: tuple[Entity, ...] = ()
    bodies: tuple[bytes, ...] = ()
    """Stored form of each of `upserts`, if known: the engine's digest needs it before the store does."""
    deletes: tuple[tuple[str, EntityKey], ...] = ()
    """(kind, key) of rows that are removed."""
    outbox_added: tuple[Effect, ...] = ()
    outbox_removed: tuple[str, ...] = ()
    logs: tuple[LogRecord, ...] = ()
    decisions: tuple[Decision, ...] = ()


class Stored(Struct, frozen=True, kw_only=True, gc=False):
    """The state that the engine loads at startup: all live entities, and the position of the journal."""

    sequence: int
    digest: str
    entities: tuple[Entity, ...] = ()
    outbox: tuple[Effect, ...] = ()
