"""What the end of a machine teaches of its offer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from resolute.ids import SeededIds
from resolute.wire.states import NoticeKind
from resolute_master.domain.agent import MachineNotice
from resolute_master.domain.commands import RecordObservation
from resolute_master.domain.ids import InstanceId, PoolName
from resolute_master.lifecycle import instances
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.lifecycle.step import Step
from resolute_provisioner import risk
from resolute_provisioner.model import Intent, Observed, OfferBelief, RefusalKind
from support.cluster import an_instance, at


def learnt(*, refusal: RefusalKind | None = None, **changes: Any) -> OfferBelief:
    """The machine is gone at 3600 s."""
    machine = replace(an_instance(), **changes)
    step = Step(ClusterState([machine]), now=at(3600), ids=SeededIds(1), sequence=1)
    word = RecordObservation(
        instance=InstanceId(machine.id),
        provider_id="vm",
        observed=Observed.GONE,
        paid_from=None,
        paid_until=None,
        message="said the cloud",
        refusal=refusal,
    )
    instances.observed(step, word)
    return instances.beliefs(step, PoolName(machine.pool)).get(machine.offer_id) or OfferBelief(offer_id="none")


def test_a_machine_that_was_there_for_an_hour_is_an_hour_of_exposure() -> None:
    lost = learnt(joined_at=at(0), intent=Intent.RUN)
    assert (lost.seen.exposure_h, lost.seen.interruptions, lost.interruptions) == (1.0, 1.0, 1)
    returned = learnt(joined_at=at(0), intent=Intent.STOP)
    assert (returned.seen.exposure_h, returned.seen.interruptions) == (1.0, 0.0)
    notice = MachineNotice(kind=NoticeKind.INTERRUPTION, deadline=None, reason="", received_at=at(10))
    left_in_time = learnt(joined_at=at(0), intent=Intent.STOP, notice=notice)
    assert left_in_time.seen.interruptions == 1.0


def test_a_cloud_that_ends_what_it_had_begun_to_give_has_refused() -> None:
    short = learnt(joined_at=None, intent=Intent.RUN, refusal=RefusalKind.NO_CAPACITY)
    assert short.last_refusal is RefusalKind.NO_CAPACITY and short.backoff_until is not None
    assert short.consecutive_boot_failures == 0
    wrong = learnt(joined_at=None, intent=Intent.RUN, refusal=RefusalKind.BAD_REQUEST)
    assert wrong.misconfigured == "said the cloud"
    spent = learnt(joined_at=None, intent=Intent.RUN, refusal=RefusalKind.QUOTA_EXCEEDED)
    obstacle = risk.block(spent, at(3600))
    assert obstacle is not None and "quota" in obstacle.reason
    # Without a reason it is a machine that started and never joined, and what we ended ourselves says nothing.
    assert learnt(joined_at=None, intent=Intent.RUN).consecutive_boot_failures == 1
    assert learnt(joined_at=None, intent=Intent.STOP, refusal=RefusalKind.NO_CAPACITY).last_refusal is None
