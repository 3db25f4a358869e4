"""What may go wrong in one world, drawn from its seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from resolute_provisioner.clouds.fake import FakeBehaviour, Range


class Fault(StrEnum):
    KILL_MASTER = "kill the master"
    DIE_BEFORE_COMMIT = "the master dies before a commit"
    DIE_AFTER_COMMIT = "the master dies after a commit, before its effects"
    STORE_FAILURE = "the store refuses a commit"
    CRASH_AGENT = "an agent crashes"
    CUT_LINK = "a link is cut"
    HALF_OPEN_LINK = "a link dies on one side"
    SHORT_PARTITION = "a machine is cut off for a moment"
    LONG_PARTITION = "a machine is cut off for long"
    INTERRUPT_WITH_NOTICE = "the cloud takes a machine back, with notice"
    INTERRUPT = "a machine vanishes"
    REBOOT = "a machine reboots: its programs are dead, its disk is not"
    FREEZE = "a machine freezes, runs no program and goes on costing"
    REBALANCE = "the cloud recommends to leave a machine"
    MAINTENANCE = "the cloud announces maintenance"
    USER = "a user acts"


MEAN_GAP_S: Mapping[Fault, float] = {
    Fault.KILL_MASTER: 1500.0,
    Fault.DIE_BEFORE_COMMIT: 2000.0,
    Fault.DIE_AFTER_COMMIT: 1500.0,
    Fault.STORE_FAILURE: 3000.0,
    Fault.CRASH_AGENT: 900.0,
    Fault.CUT_LINK: 700.0,
    Fault.HALF_OPEN_LINK: 1500.0,
    Fault.SHORT_PARTITION: 1500.0,
    Fault.LONG_PARTITION: 2400.0,
    Fault.INTERRUPT_WITH_NOTICE: 1200.0,
    Fault.INTERRUPT: 1500.0,
    Fault.REBOOT: 2500.0,
    Fault.FREEZE: 4000.0,
    Fault.REBALANCE: 4000.0,
    Fault.MAINTENANCE: 6000.0,
    Fault.USER: 240.0,
}
"""Between two faults of a kind, on the average."""

CHANCE_OF_KIND = 0.6
"""How likely a world knows a kind of fault at all: worlds with few kinds show what a kind does by itself."""

RELIABLE_CLOUD = FakeBehaviour(
    launch_latency_s=(0.2, 1.0), pending_s=(3.0, 10.0), boot_s=(10.0, 30.0), ending_s=(1.0, 5.0)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceMoves:
    """`mean_gap_s` is between two moves of the spot market, on the average."""

    mean_gap_s: float
    asked_every_s: float
    """The period of the master's question for prices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """`gaps` holds the kinds of fault that this world knows, with their mean time between two."""

    faults_s: float
    gaps: Mapping[Fault, float]
    cloud: FakeBehaviour
    lost_reply_rate: float
    """Requests of tasks whose answer is lost, so that they are sent again."""
    late_repeat_rate: float
    """Requests that arrive once more, long after."""
    commit_s: Range
    """How long one commit takes."""
    outage_s: Range
    """How long the master is away after it died."""
    prices: PriceMoves | None = None
    """None: the market is constant, and its prices are not queried."""


NO_FAULTS = FaultPlan(
    faults_s=600.0,
    gaps={},
    cloud=RELIABLE_CLOUD,
    lost_reply_rate=0.0,
    late_repeat_rate=0.0,
    commit_s=(0.001, 0.005),
    outage_s=(0.5, 1.0),
)
"""Nothing goes wrong."""


def draw_fault_plan(rng: random.Random) -> FaultPlan:
    gaps = {fault: MEAN_GAP_S[fault] * rng.uniform(0.5, 2.0) for fault in Fault if rng.random() < CHANCE_OF_KIND}
    return FaultPlan(
        faults_s=rng.uniform(900.0, 3600.0),
        gaps=gaps,
        cloud=_draw_cloud(rng),
        lost_reply_rate=rng.choice((0.0, 0.02, 0.1)),
        late_repeat_rate=rng.choice((0.0, 0.05, 0.2)),
        commit_s=rng.choice(((0.0005, 0.01), (0.001, 0.05), (0.05, 2.0))),
        outage_s=rng.choice(((0.5, 5.0), (1.0, 60.0), (30.0, 240.0))),
    )


def _draw_cloud(rng: random.Random) -> FakeBehaviour:
    def sometimes(rate: float) -> float:
        return rate if rng.random() < 0.4 else 0.0

    return FakeBehaviour(
        launch_latency_s=rng.choice(((0.1, 0.5), (0.2, 2.0), (1.0, 15.0))),
        pending_s=rng.choice(((1.0, 5.0), (5.0, 20.0))),
        boot_s=rng.choice(((5.0, 20.0), (20.0, 60.0), (60.0, 200.0))),
        ending_s=rng.choice(((0.5, 2.0), (1.0, 10.0), (10.0, 60.0))),
        no_capacity_rate=sometimes(0.3),
        transient_rate=sometimes(0.2),
        lost_reply_rate=sometimes(0.3),
        throttle_rate=sometimes(0.2),
        late_refusal_rate=sometimes(0.2),
        capacity_of_each=rng.choice((1, 2)) if rng.random() < 0.3 else None,
        dead_boot_rate=sometimes(0.15),
        losses_per_hour=sometimes(1.0),
        noticed_share=rng.choice((0.0, 0.5, 1.0)),
        notice_s=rng.choice((20.0, 120.0)),
        list_failure_rate=sometimes(0.2),
        listing_lag_s=sometimes(8.0),
        repeat_rate=sometimes(0.2),
    )
