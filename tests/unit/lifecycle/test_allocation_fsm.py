"""One allocation by itself: what each event makes of it."""

from __future__ import annotations

from datetime import timedelta, timezone

import pytest

from resolute.wire.agent_link import Exit
from resolute.wire.states import AllocationState, ContainerState, FailureKind, NoticeKind
from resolute_master.domain.allocation import Allocation, remembered
from resolute_master.domain.copies import replace
from resolute_master.domain.effects import KillContainer, StartContainer
from resolute_master.domain.ids import ContainerId
from resolute_master.lifecycle.allocation_fsm import (
    HISTORY_LIMIT,
    Assigned,
    ContainerMoved,
    InvalidTransition,
    KillAsked,
    PreemptionAcknowledged,
    PreemptionAsked,
    kill_again,
    step,
)
from support.cluster import T0, a_container, a_running_allocation, an_allocation, at


def ended(rank: int, *, code: int | None = 0, failure: FailureKind | None = None) -> ContainerMoved:
    return ContainerMoved(
        container=ContainerId(f"container-{rank}"),
        state=ContainerState.TERMINATED,
        exit=Exit(code=code, failure=failure),
    )


def play(allocation: Allocation, *events: object) -> Allocation:
    for event in events:
        allocation, _ = step(allocation, event, T0)  # type: ignore[arg-type]
    return allocation


def test_a_history_tells_each_moment_in_its_own_zone() -> None:
    elsewhere = T0.astimezone(timezone(timedelta(hours=2)))
    for moment in (T0, elsewhere, T0, at(1)):
        assert remembered("RUNNING", moment) == f"{moment.isoformat(timespec='milliseconds')} RUNNING"


def test_an_assignment_asks_each_agent_to_start_its_container() -> None:
    members = (a_container(0, "agent-1"), a_container(1, "agent-2"))
    allocation, effects = step(an_allocation(slots_needed=2), Assigned(containers=members, ports={}), T0)
    assert allocation.state is AllocationState.ASSIGNED
    assert [(type(e), e.agent) for e in effects] == [(StartContainer, "agent-1"), (StartContainer, "agent-2")]  # type: ignore[union-attr]


def test_a_second_assignment_is_a_bug_and_tells_the_story() -> None:
    with pytest.raises(InvalidTransition, match=r"Assigned in RUNNING of 1\.aaaa\.1"):
        step(a_running_allocation(), Assigned(containers=(a_container(),), ports={}), T0)


def test_a_late_report_never_takes_the_state_back() -> None:
    late = ContainerMoved(container=ContainerId("container-0"), state=ContainerState.PULLING)
    assert step(a_running_allocation(), late, at(1)) == (a_running_allocation(), ())


def test_who_is_alone_has_met_its_gang_once_it_runs_and_others_have_not() -> None:
    for members, met in ((1, True), (2, False)):
        assigned = Assigned(containers=tuple(a_container(n, "agent-1") for n in range(members)), ports={})
        runs = ContainerMoved(container=ContainerId("container-0"), state=ContainerState.RUNNING)
        allocation = play(an_allocation(slots_needed=members), assigned, runs)
        assert (allocation.containers[0].joined, allocation.ready) == (met, met)


def test_a_clean_end_of_its_own_is_finished() -> None:
    exit_ = play(a_running_allocation(), ended(0)).exit
    assert exit_ is not None
    assert (exit_.finished, exit_.failure, exit_.code) == (True, None, 0)


def test_a_clean_end_after_an_acknowledged_preemption_is_a_preemption() -> None:
    exit_ = play(a_running_allocation(), PreemptionAsked(reason="paused"), PreemptionAcknowledged(), ended(0)).exit
    assert exit_ is not None
    assert (exit_.finished, exit_.failure, exit_.reason) == (False, None, "preempted: paused")


def test_a_crash_after_an_acknowledged_preemption_is_a_failure() -> None:
    exit_ = play(
        a_running_allocation(), PreemptionAsked(reason="paused"), PreemptionAcknowledged(), ended(0, code=1)
    ).exit
    assert exit_ is not None
    assert exit_.failure is FailureKind.CONTAINER_FAILED
    assert "after it had acknowledged the preemption" in exit_.reason


def test_a_machine_that_goes_away_after_the_acknowledgement_is_the_machines_failure() -> None:
    exit_ = play(
        a_running_allocation(),
        PreemptionAsked(reason="notice"),
        PreemptionAcknowledged(),
        ended(0, code=None, failure=FailureKind.AGENT_FAILED),
    ).exit
    assert exit_ is not None
    assert exit_.failure is FailureKind.AGENT_FAILED


def test_one_failed_member_ends_the_gang_with_its_own_reason() -> None:
    allocation, effects = step(a_running_allocation(members=3), ended(1, code=3), T0)
    assert allocation.state is AllocationState.TERMINATING
    assert [e.container for e in effects if isinstance(e, KillContainer)] == ["container-0", "container-2"]
    done = play(allocation, ended(0, code=137), ended(2, code=137))
    assert done.exit is not None
    assert (done.exit.code, done.exit.failure) == (3, FailureKind.CONTAINER_FAILED)
    assert "rank 1 on agent-2" in done.exit.reason


def test_what_was_killed_on_request_ends_without_failure_whatever_the_codes() -> None:
    exit_ = play(a_running_allocation(), KillAsked(reason="killed by the user"), ended(0, code=137)).exit
    assert exit_ is not None
    assert (exit_.failure, exit_.finished, exit_.reason) == (None, False, "killed by the user")


def test_a_failure_that_came_before_the_kill_stays_a_failure() -> None:
    exit_ = play(
        a_running_allocation(members=2), ended(0, code=1), KillAsked(reason="killed by the user"), ended(1, code=137)
    ).exit
    assert exit_ is not None
    assert exit_.failure is FailureKind.CONTAINER_FAILED


def test_daemons_are_ended_when_all_others_are_done_and_their_codes_do_not_count() -> None:
    gang = a_running_allocation(
        containers=(
            a_container(0, "agent-1", state=ContainerState.RUNNING),
            a_container(1, "agent-2", state=ContainerState.RUNNING, daemon=True),
        )
    )
    allocation, effects = step(gang, ended(0), T0)
    assert [e.container for e in effects if isinstance(e, KillContainer)] == ["container-1"]
    done = play(allocation, ended(1, code=137))
    assert done.exit is not None and done.exit.finished


def test_a_waiting_allocation_that_is_preempted_or_killed_ends_at_once() -> None:
    for event in (PreemptionAsked(reason="paused"), KillAsked(reason="killed")):
        done = play(an_allocation(), event)
        assert done.ended and done.exit is not None and done.exit.failure is None and not done.exit.finished


def test_a_notice_brings_the_deadline_of_a_preemption_forward_and_never_back() -> None:
    paused = play(a_running_allocation(preemption_timeout_s=3600), PreemptionAsked(reason="paused"))
    noticed = play(paused, PreemptionAsked(reason="spot", deadline=at(120), notice=NoticeKind.INTERRUPTION))
    assert noticed.preempt is not None and noticed.preempt.deadline == at(120)
    later = play(noticed, PreemptionAsked(reason="paused again"))
    assert later.preempt is not None and later.preempt.deadline == at(120)


def test_slots_of_an_ended_container_are_free_while_its_peers_still_run() -> None:
    allocation = play(a_running_allocation(members=2), ended(0))
    assert [slot.agent for slot in allocation.held_slots] == ["agent-2"]


def test_nothing_moves_an_ended_allocation() -> None:
    done = play(a_running_allocation(), ended(0))
    for event in (ended(0, code=1), KillAsked(reason="late"), PreemptionAsked(reason="late")):
        assert step(done, event, at(9)) == (done, ())


def test_a_task_may_know_of_its_machines_notice_before_the_master_does() -> None:
    ahead = play(a_running_allocation(), PreemptionAcknowledged())
    assert ahead.preempt is not None and ahead.preempt.acknowledged_at == T0
    told = play(ahead, PreemptionAsked(reason="spot", deadline=at(60), notice=NoticeKind.INTERRUPTION))
    assert told.preempt is not None
    assert (told.preempt.notice, told.preempt.deadline, told.preempt.acknowledged_at) == ("interruption", at(60), T0)
    done = play(told, ended(0))
    assert done.exit is not None and not done.exit.finished and done.exit.failure is None


def test_an_end_that_nobody_can_explain_is_a_failure_in_words() -> None:
    silent = ContainerMoved(container=ContainerId("container-0"), state=ContainerState.TERMINATED)
    exit_ = play(a_running_allocation(), silent).exit
    assert exit_ is not None
    assert (exit_.failure, exit_.reason) == (FailureKind.TASK_ERROR, "rank 0 on agent-1 ended without an exit code")


@pytest.mark.parametrize("failure", sorted(FailureKind))
def test_every_kind_of_failure_names_where_it_happened(failure: FailureKind) -> None:
    exit_ = play(a_running_allocation(), ended(0, code=None, failure=failure)).exit
    assert exit_ is not None
    assert exit_.failure is failure
    assert "agent-1" in exit_.reason or failure is FailureKind.ABORTED


def test_what_waits_for_slots_cannot_acknowledge_and_goes_on_waiting() -> None:
    assert step(an_allocation(), PreemptionAcknowledged(), at(1)) == (an_allocation(), ())


def test_a_second_notice_that_names_no_sooner_end_keeps_the_first() -> None:
    first = PreemptionAsked(reason="spot", deadline=at(60), notice=NoticeKind.INTERRUPTION)
    second = PreemptionAsked(reason="again", deadline=at(90), notice=NoticeKind.MAINTENANCE)
    noticed = play(a_running_allocation(), first)
    assert step(noticed, second, at(1)) == (noticed, ())


def test_a_gang_that_lost_one_machine_ends_as_a_whole_and_blames_the_machine() -> None:
    lost = ended(2, code=None, failure=FailureKind.AGENT_FAILED)
    allocation, effects = step(a_running_allocation(members=3), lost, T0)
    assert [e.container for e in effects if isinstance(e, KillContainer)] == ["container-0", "container-1"]
    done = play(allocation, ended(0, code=137), ended(1, code=1))
    assert done.exit is not None and done.exit.failure is FailureKind.AGENT_FAILED


def test_a_kill_is_said_once_and_repeated_only_when_it_shows_no_effect() -> None:
    killed, first = step(a_running_allocation(members=2), KillAsked(reason="killed"), T0)
    assert [type(e) for e in first] == [KillContainer, KillContainer]
    assert step(killed, KillAsked(reason="again"), at(1)) == (killed, ())
    one_left = play(killed, ended(0, code=137))
    again, repeated = kill_again(one_left, at(30))
    assert (again.killed_at, again.kill_reason) == (at(30), "killed")
    assert [e.container for e in repeated if isinstance(e, KillContainer)] == ["container-1"]


def test_the_history_keeps_the_newest_moves_only() -> None:
    allocation = a_running_allocation()
    for second in range(3 * HISTORY_LIMIT):
        allocation, _ = kill_again(allocation, at(second))
        allocation = replace(allocation, killed_at=None)
        allocation, _ = step(allocation, KillAsked(reason=f"number {second}"), at(second))
    assert len(allocation.history) == HISTORY_LIMIT
    assert f"number {3 * HISTORY_LIMIT - 1}" in allocation.history[-1]
