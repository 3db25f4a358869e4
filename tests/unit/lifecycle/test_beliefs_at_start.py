"""What a starting master still holds against its offers."""

from __future__ import annotations

from datetime import timedelta

from resolute.ids import SeededIds
from resolute_master.domain.change import PoolBelief
from resolute_master.domain.commands import MasterStarted
from resolute_master.domain.ids import PoolName
from resolute_master.lifecycle import instances
from resolute_master.lifecycle.apply import apply
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.lifecycle.step import Step
from resolute_provisioner import risk
from resolute_provisioner.model import OfferBelief, RefusalKind
from support.cluster import T0

LATER = T0 + timedelta(seconds=1)


def blocked_after_a_restart(kind: RefusalKind) -> bool:
    refused = risk.refused(OfferBelief(offer_id="local"), kind, "said the cloud", asked_at=T0, now=T0)
    known = PoolBelief(id="default/local", pool=PoolName("default"), belief=refused)
    step = Step(ClusterState([known]), now=LATER, ids=SeededIds(1), sequence=1)
    assert risk.block(instances.beliefs(step, PoolName("default"))["local"], LATER) is not None
    apply(step, MasterStarted(version="1"))
    return risk.block(instances.beliefs(step, PoolName("default"))["local"], LATER) is not None


def test_what_was_called_wrong_is_asked_for_again_because_the_configuration_may_have_changed() -> None:
    assert not blocked_after_a_restart(RefusalKind.BAD_REQUEST)


def test_shortage_is_remembered_so_that_restarts_do_not_hammer_the_cloud() -> None:
    assert blocked_after_a_restart(RefusalKind.NO_CAPACITY)
    assert blocked_after_a_restart(RefusalKind.QUOTA_EXCEEDED)
