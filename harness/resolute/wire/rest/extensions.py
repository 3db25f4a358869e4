"""What this master serves beyond the contract: new fields and new paths, never changed ones.

    POST /api/v1/allocations/{allocationId}/step_marks      PostStepMarksRequest
    GET  /api/v1/trials/{trialId}/allocations               GetTrialAllocationsResponse
    GET  /api/v1/ledger                                     GetLedgerResponse
    GET  /api/v1/instances                                  GetInstancesResponse
    GET  /api/v1/decisions?limit=                           GetDecisionsResponse
    GET  /api/v1/jobs/{jobId}/explain                       why.ExplainJobResponse
    GET  /api/v1/resource-pools/{poolName}/snapshot         a snapshot file (docs/snapshots.md)
    GET  /api/v1/resource-pools/{poolName}/offers           offers.GetPoolOffersResponse
    GET  /api/v1/resource-pools/{poolName}/advice           advice.GetPoolAdviceResponse
    GET  /api/v1/agent-join-token                           AgentJoinTokenResponse
    POST /api/v1/agent-join-token/rotate                    AgentJoinTokenResponse
    POST /api/v1/agents/{agentId}/forget                    ForgetAgentRequest, ForgetAgentResponse

Names are in the contract's style; money is in the currency of the pool's price list, durations are in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from resolute.wire.rest.enums import WireTaskState
from resolute.wire.states import NoticeKind


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionNotice:
    """The machine under a task will go away; `deadline` None is an unknown moment."""

    kind: NoticeKind
    deadline: datetime | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFailure:
    """The last failure of a trial. `times` runs in a row have failed like this; `error` is the traceback, or the last lines."""

    reason: str
    error: str = ""
    times: int = 1
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMark:
    """At the time `at` a run had done `steps` steps, and saves had blocked it for `checkpointing_s` in total."""

    steps: int
    at: datetime
    checkpointing_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PostStepMarksRequest:
    """Progress of a run for the ledger, oldest first. Repeats are harmless."""

    marks: tuple[StepMark, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialAllocation:
    """One attempt at a trial, from its history.

    `steps_at_start` is the step that it resumed from, `steps_at_end` the last step it is known to have done and
    `steps_kept` the last one whose result was kept; None is unknown.
    """

    allocation_id: str
    state: WireTaskState
    agent_ids: tuple[str, ...] = ()
    instance_ids: tuple[str, ...] = ()
    slots: int = 0
    run_id: int | None = None
    start_time: datetime | None = None
    end_time: datetime | None = None
    exit_reason: str = ""
    exit_code: int | None = None
    preempted: bool = False
    notice: PreemptionNotice | None = None
    steps_at_start: int | None = None
    steps_at_end: int | None = None
    steps_kept: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTrialAllocationsResponse:
    """Every attempt at a trial, oldest first."""

    allocations: tuple[TrialAllocation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """Where the paid slot-seconds of one machine, or of all, went.

    `paid_s` is the sum of the five parts; `cost` is the price of all of them and `costs` of each part by its name.
    `steps_lost` counts steps that were done again later. `cost_unknown_s` is the part of `paid_s` whose price is not known;
    no cost has it in it, and where it is all of it, `cost` is None.
    """

    paid_s: float = 0.0
    useful_s: float = 0.0
    starting_s: float = 0.0
    checkpointing_s: float = 0.0
    lost_s: float = 0.0
    idle_s: float = 0.0
    cost: float | None = None
    costs: Mapping[str, float] = field(default_factory=dict)
    steps_lost: int = 0
    cost_unknown_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLedger:
    """The ledger of one machine; `paid_until` None means that it is still being paid for. `price_per_hour` is its last price:
    where the market has moved, the costs of `row` are of several. None: unknown."""

    instance_id: str
    pool: str
    slots: int
    price_per_hour: float | None = None
    paid_from: datetime | None = None
    paid_until: datetime | None = None
    row: LedgerRow = field(default_factory=LedgerRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """One loss of a machine under a trial: with a notice or without, and the steps that it cost."""

    at: datetime
    trial_id: int
    allocation_id: str
    instance_id: str
    noticed: bool
    steps_done: int | None = None
    steps_saved: int | None = None
    steps_lost: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GetLedgerResponse:
    """The books of the cluster: a row a machine, the sums, and what each interruption cost."""

    instances: tuple[InstanceLedger, ...] = ()
    totals: LedgerRow = field(default_factory=LedgerRow)
    interruptions: tuple[Interruption, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One machine of an elastic pool, from the intent to launch it to its end.

    `token` is the client token of the launch and known before the cloud gave an `id`. `state` is the provisioner's, `observed`
    the cloud's latest one.
    """

    id: str
    pool: str
    token: str
    state: str
    offer: str = ""
    observed: str = ""
    agent_id: str = ""
    slots: int = 0
    price_per_hour: float | None = None
    """None: unknown."""
    requested_at: datetime | None = None
    joined_at: datetime | None = None
    paid_from: datetime | None = None
    paid_until: datetime | None = None
    end_reason: str = ""
    notice: PreemptionNotice | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetInstancesResponse:
    """All machines that the master remembers, oldest request first."""

    instances: tuple[Instance, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Something the scheduler or the provisioner decided, or learnt, and why.

    `kind` is one of place, preempt, launch, terminate, refused, notice or a later addition; `subject` names what it
    is about: a job, an allocation or a machine. `cycle` is the engine's cycle that decided it, where that is known.
    """

    at: datetime
    cycle: int | None = None
    kind: str
    subject: str
    reason: str
    pool: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GetDecisionsResponse:
    """The last decisions, oldest first."""

    decisions: tuple[Decision, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GetDecisionsQuery:
    """`limit` is how many of the last decisions to give; 0 is all that are remembered."""

    limit: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricBatchStored:
    """What became of a batch of reports: `conflicting_steps` have other values already, and none of those were stored."""

    stored: int
    conflicting_steps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentJoinTokenResponse:
    """What machines outside of cloud pools show to join. `configured`: the master's configuration sets it."""

    join_token: str
    configured: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetAgentRequest:
    """`force`: also while the agent is connected, which ends what runs there."""

    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetAgentResponse:
    """The name is free."""
