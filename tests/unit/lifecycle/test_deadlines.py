"""What is due when nobody says anything."""

from __future__ import annotations

from resolute.wire.states import NoticeKind
from resolute_master.domain.allocation import PreemptRequest
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import PoolName
from resolute_master.domain.pool import PoolPolicy
from resolute_master.lifecycle.allocation_fsm import KILL_AGAIN_S
from resolute_master.lifecycle.deadlines import LEASE_MARGIN_S, deadline
from support.cluster import T0, a_running_allocation, an_agent, at

POOLS = {PoolName("default"): PoolPolicy(name=PoolName("default"), agent_reconnect_wait_s=40.0)}


def test_an_agent_out_of_contact_has_the_reconnect_wait_of_its_pool_and_the_tasks_lease_on_top() -> None:
    assert deadline(an_agent(), POOLS) is None
    assert deadline(an_agent(disconnected_at=T0), POOLS) == at(40 + LEASE_MARGIN_S)


def test_an_agent_whose_pool_is_no_longer_configured_is_given_up_all_the_same() -> None:
    orphan = an_agent(pool=PoolName("gone"), disconnected_at=T0)
    assert deadline(orphan, POOLS) == at(PoolPolicy(name=PoolName("gone")).agent_reconnect_wait_s + LEASE_MARGIN_S)


def test_a_preemption_is_due_at_its_timeout() -> None:
    asked = PreemptRequest(reason="paused", requested_at=at(5), deadline=at(65))
    assert deadline(a_running_allocation(preempt=asked, preemption_timeout_s=60.0), POOLS) == at(65)


def test_a_notice_leaves_the_end_to_the_machine_but_not_for_longer_than_the_tasks_timeout() -> None:
    noticed = PreemptRequest(reason="spot", requested_at=at(0), deadline=at(120), notice=NoticeKind.INTERRUPTION)
    assert deadline(a_running_allocation(preempt=noticed, preemption_timeout_s=600.0), POOLS) == at(600)


def test_a_kill_is_due_again_until_the_allocation_has_ended() -> None:
    killed = a_running_allocation(killed_at=at(7))
    assert deadline(killed, POOLS) == at(7 + KILL_AGAIN_S)
    assert deadline(replace(killed, state=killed.state.TERMINATED), POOLS) is None
