"""Inputs and results of a provisioning decision: frozen values, so that a decision can be stored, compared and replayed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from resolute.wire.states import NoticeKind
from resolute_provisioner.gaps import NONE_SEEN, Gaps


class Market(StrEnum):
    """The market of an offer."""

    ON_DEMAND = "on_demand"
    SPOT = "spot"
    """Cheaper; the cloud may reclaim the machine."""


class Intent(StrEnum):
    """The intent for an instance. It only moves from RUN to STOP."""

    RUN = "run"
    STOP = "stop"


class Observed(StrEnum):
    """The state of an instance that the cloud reports; UNKNOWN before the first report."""

    UNKNOWN = "unknown"
    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    GONE = "gone"

    @property
    def order(self) -> int:
        """Position of the state in the life of a machine; later states have larger numbers."""
        return _OBSERVED_ORDER[self]

    @property
    def final(self) -> bool:
        return self is Observed.GONE


_OBSERVED_ORDER = {state: index for index, state in enumerate(Observed)}


class RefusalKind(StrEnum):
    """Class of a cloud's refusal to launch a machine."""

    NO_CAPACITY = "no_capacity"
    """The cloud has none of these machines now; another zone or type may have some."""
    QUOTA_EXCEEDED = "quota_exceeded"
    """A limit of the account; a retry soon is useless."""
    BAD_REQUEST = "bad_request"
    """The configuration is wrong; a retry is useless until it changes."""
    TRANSIENT = "transient"
    """The cloud failed to answer, also to retries."""
    THROTTLED = "throttled"
    """Too many requests: the cloud did not process the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An offer of a cloud: a machine type in a zone on a market."""

    offer_id: str
    instance_type: str
    zone: str
    market: Market
    slots: int
    price_per_hour: float | None = None
    """In the currency of the account; None when it is not known."""
    price_source: str = ""
    """Source and time of that price, for display."""
    price_is_fixed: bool = False
    """Whether the price is the operator's, which takes precedence over the cloud's current price, also for running machines."""
    max_price_per_hour: float | None = None
    """Maximum price of a purchase; None leaves it to the cloud."""
    region: str = ""
    family: str = ""
    """Offers of one family share a quota of the account; empty means the offer alone."""
    reservation: str = ""
    """Capacity that is reserved, and paid for, under this name."""
    slot_type: str = "auto"
    """As in `MachineBoot` (auto, cuda, rocm, cpu, none), or `artificial`: `slots` slots of an artificial device, for machines
    outside of clouds and for accelerators that the agent cannot enumerate (Trainium)."""
    accelerator: str = ""
    """Kind of accelerator, the cloud's own name where a request needs it."""
    accelerators: int = 0
    vcpus: int | None = None
    memory_gib: float | None = None

    @property
    def price_moves(self) -> bool:
        """Whether its machines have market prices, which change while they run."""
        return self.market is Market.SPOT and not self.price_is_fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Observations of one offer, as sums with decaying weights: half after `risk.HALF_LIFE_S`."""

    as_of: datetime | None = None
    """The time at which the sums were last weighed."""
    requests: float = 0.0
    """Launches that the cloud has answered."""
    granted: float = 0.0
    boots: float = 0.0
    """Machines that joined, or were found not to."""
    joins: float = 0.0
    exposure_h: float = 0.0
    """Hours for which ended machines were available for work."""
    interruptions: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLaunch:
    """Outcome of one launch of a pool, in the sequence of its launches. See `launch_errors`."""

    at: datetime
    """When the cloud had answered."""
    failures: int
    """Number of consecutive failed launches including this one; 0: it succeeded."""
    again_at: datetime | None = None
    """After a failure: the first moment at which the pool could retry, as known then; None: at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferBelief:
    """Facts that were learnt about one offer. A new belief contains none and blocks nothing. Changed by `risk` only."""

    offer_id: str
    consecutive_refusals: int = 0
    backoff_until: datetime | None = None
    """No request before: no capacity, or a cloud that fails to answer."""
    quota_until: datetime | None = None
    """No request before: the account's quota is exhausted."""
    misconfigured: str = ""
    """The cloud's error about our request; if not empty, there are no requests until `risk.forget`."""
    consecutive_boot_failures: int = 0
    """Machines in a row that were launched and never joined, or joined with too few slots for the work that they were for."""
    brought: str = ""
    """"7 of 8": the slots of the last of them and those of the offer, where it did join."""
    boot_backoff_until: datetime | None = None
    """No request before: machines of this offer start, and are not usable."""
    partial_gangs: int = 0
    """Number of times in a row that it gave some machines of a gang and not all."""
    gang_backoff_until: datetime | None = None
    """No request before for several machines of one gang."""
    disturbed_at: tuple[datetime, ...] = ()
    """Times in the last hour at which its machines were drained to save money."""
    launches: int = 0
    interruptions: int = 0
    last_refusal: RefusalKind | None = None
    last_refusal_at: datetime | None = None
    last_message: str = ""
    join_time_s: float | None = None
    """Moving average of seconds from the request to the agent's first connection."""
    price_per_hour: float | None = None
    """The cloud's current price, which takes precedence over the configured one; None if unknown."""
    price_as_of: datetime | None = None
    price_source: str = ""
    seen: Evidence = Evidence()
    gaps: Gaps = NONE_SEEN
    """Times for which its machines were without work."""
    pool_launch: PoolLaunch | None = None
    """The last launch through it, counted over the whole pool; None if not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotFallback:
    """Policy for work without a deadline: when it moves from spot to on demand, and when it returns."""

    after_s: float = 0.0
    """Time that it waits for a spot machine before it may use one on demand."""
    return_after_s: float | None = None
    """Time on demand after which it returns to available spot; None: it stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consolidation:
    """Policy for moves of work so that a machine may end, or a smaller one replaces it. See `consolidation`."""

    margin: float = 2.0
    """Minimum ratio of the expected saving of a move to its cost."""
    restart_s: float = 120.0
    """Assumed cost of a move: time for which the work's slots are paid without progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stretch of certain days. One that ends at or before its start ends on the day after. Times are in UTC."""

    weekdays: frozenset[int]
    """Days on which it begins; Monday is 0."""
    start_s: float
    """Seconds after midnight."""
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Disruption:
    """Limit on running work that may be preempted to save money. See `disruption`."""

    max_per_hour: int | None = None
    """Maximum number of machines with work that are released in an hour; None is no limit."""
    windows: tuple[Window, ...] = ()
    """Windows of such preemptions; empty is always."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpaid:
    """Number of further machines of this offer that the budget covers for long enough to be useful; 0 is none. `until` is when
    the budget has funds again, None: when an operator raises it."""

    offer_id: str
    machines: int
    reason: str
    until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolScaling:
    """The elastic part of a resource pool's configuration."""

    pool: str
    offers: tuple[Offer, ...]
    min_instances: int = 0
    max_instances: int = 5
    idle_timeout_s: float = 1200.0
    """A machine without work for this long is released (`max_idle_agent_period`)."""
    idle_learnt: bool = False
    """It is released sooner if, by the pool's own gaps, it is not worth its price for that time. See `gaps`."""
    max_idle_cost: float | None = None
    """A machine without work is kept longer than that as long as its idle time has cost less: cheap machines stay warm longer."""
    boot_timeout_s: float = 1200.0
    """A machine that has not joined this long after its launch is replaced (`max_agent_starting_period`)."""
    reconnect_wait_s: float = 25.0
    """Time for which a machine whose agent is out of contact counts as capacity (`agent_reconnect_wait`)."""
    disconnect_timeout_s: float = 600.0
    """A machine whose agent is out of contact for this long is released."""
    drain_timeout_s: float = 600.0
    """A draining machine is released after this time even if work remains on it."""
    gang_hold_s: float = 30.0
    """Time after its launch for which a machine of a gang is held while other members are refused."""
    max_aux_per_instance: int = 100
    """Most gangs without slots on one machine."""
    launch_error_timeout_s: float = 0.0
    """Time for which the pool counts a failed launch; 0: it counts none. See `launch_errors`."""
    launch_error_retries: int = 0
    """Number of consecutive failed launches that are retried before the pool gives up for that time."""
    spot_fallback: SpotFallback = SpotFallback()
    consolidation: Consolidation | None = None
    """Consolidation of the pool; None moves nothing."""
    disruption: Disruption = Disruption()
    unpaid: tuple[Unpaid, ...] = ()
    """Limits on launches by the pool's budget: no part of the configuration, and empty where no limit is near."""

    @property
    def has_both_markets(self) -> bool:
        """Whether there are offers on demand and on the spot market."""
        return len({offer.market for offer in self.offers}) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceNotice:
    """A notice of the machine. `deadline` None: soon, at an unknown time."""

    kind: NoticeKind
    deadline: datetime | None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """Slots of one gang on one machine."""

    token: str
    slots: int
    since: datetime
    """When it got these slots."""
    movable: bool
    """It may be preempted, has nothing on other machines, and has committed a checkpoint since it was given these slots: a move
    loses little of it. Work that never saves is never moved."""
    likelihood: float = 1.0
    """Likelihood that it is needed: less than 1 for a trial that its search may stop anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceView:
    """One recorded machine as a decision sees it: the intent, the cloud's state, and the agent's connection.

    "Starting too long", "idle" and "lost" are derived from these and `now`; they are never stored. Instances whose
    `observed` is GONE may be passed and are ignored.
    """

    instance_id: str
    token: str
    offer_id: str
    slots: int
    """The slots of the offer; once the agent has joined, its enabled slots."""
    intent: Intent
    observed: Observed
    requested_at: datetime
    """When the intent was recorded, before the cloud was called."""
    launched_at: datetime | None = None
    """When the cloud confirmed the launch."""
    joined_at: datetime | None = None
    """When its agent first connected."""
    agent_connected: bool = False
    disconnected_since: datetime | None = None
    """Set while an agent that had joined is out of contact."""
    slots_in_use: int = 0
    closed_slots_in_use: int = 0
    """Slots in use that accept no more work and do not count in `slots`."""
    aux_in_use: int = 0
    """Running gangs that use no slot."""
    occupants: tuple[str, ...] = ()
    """Tokens of the gangs that run there."""
    residents: tuple[Resident, ...] = ()
    """The gangs that use slots there and are not leaving, by token."""
    idle_since: datetime | None = None
    """When it became idle; None while something runs and before the agent joined."""
    notice: InstanceNotice | None = None
    draining_since: datetime | None = None
    """Set while nothing new may be placed there because a plan asked for a drain."""
    disabled: bool = False
    """Whether an operator has disabled it for new work. A machine with some disabled slots has fewer `slots`."""
    reserved_for: tuple[str, ...] = ()
    """Tokens of the gangs it was launched for: a preference, never a lock."""
    successor_markets: frozenset[Market] = frozenset(Market)
    """The market on which its replacement is bought after a notice."""

    @property
    def occupied(self) -> bool:
        return self.slots_in_use > 0 or self.aux_in_use > 0

    @property
    def idle(self) -> bool:
        """Whether it has joined, is in contact, and nothing runs on it."""
        return self.joined_at is not None and self.agent_connected and not self.occupied

    @property
    def free_slots(self) -> int:
        return max(0, self.slots - (self.slots_in_use - self.closed_slots_in_use))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """Work that waits for machines and starts on all of them or on none.

    Only gangs that hold no slots belong into a `Demand`. Where it may run:

    - `single_machine`, or `slots` not more than some machine has: on one machine with as many free slots;
    - `slots_per_machine` set: exactly this number of slots on each of `slots / slots_per_machine` machines;
    - otherwise: on machines of one size that are free of other slot users and are used whole.

    `slots` 0 takes one of the auxiliary places of one machine.
    """

    token: str
    slots: int
    submitted_at: datetime
    single_machine: bool = False
    slots_per_machine: int | None = None
    priority: int = 42
    """Smaller is more important."""
    deadline: datetime | None = None
    """Time by which it should have started; it orders gangs of one priority."""
    excluded_instances: frozenset[str] = frozenset()
    """Instances that it must not run on."""
    markets: frozenset[Market] = frozenset(Market)
    """Markets whose machines serve it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The waiting gangs of one pool, in any order."""

    gangs: tuple[Gang, ...] = ()
    kept: tuple[str, ...] = ()
    """Ids of machines on which other work starts once the vacating allocations have ended: it is none of the gangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One machine to launch. `gang_tokens` is empty if it only keeps the pool at its minimum."""

    offer_id: str
    gang_tokens: tuple[str, ...]
    reason: str


class Cause(StrEnum):
    """Why a machine is released, for programs; the sentence for users is `Termination.reason`."""

    IDLE = "idle"
    MAKE_ROOM = "make_room"
    """Idle, and a machine of another kind is needed while the pool is at its maximum."""
    NEVER_JOINED = "never_joined"
    LOST = "lost"
    """Its agent has been out of contact for too long."""
    NOTICE = "notice"
    """It will be taken away, and further payment for it is useless."""
    OVER_MAXIMUM = "over_maximum"
    DRAINED = "drained"
    CONSOLIDATION = "consolidation"
    """Its work fits on fewer or cheaper machines, and moving it pays."""
    STRANDED = "stranded"
    """It was meant as one of several machines of a gang, and the others are not available."""
    UNWANTED = "unwanted"
    """The work that it was launched for no longer waits, or may not run, and the machine has not started."""
    OTHER_MARKET = "other_market"
    """Its work moves to a machine on another market."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Termination:
    """One machine to release. With `drain`, its work is moved away first and the machine is named again, without
    `drain`, once it is empty or `drain_timeout_s` has passed; until then it is reported as draining."""

    instance_id: str
    cause: Cause
    reason: str
    drain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """The reason why something was not done, for the waiting user. `subject` is a gang's token, or "" for the pool."""

    subject: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePlan:
    """The changes to make now, and the time of the next decision if nothing happens before."""

    launches: tuple[Launch, ...] = ()
    terminations: tuple[Termination, ...] = ()
    revisit_at: datetime | None = None
    notes: tuple[Note, ...] = ()
