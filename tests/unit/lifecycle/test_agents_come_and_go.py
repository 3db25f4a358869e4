"""Agents: registration, notices, loss and the operators' switches, as commands on a working copy."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from resolute.errors import Conflict, FailedPrecondition, NotFound, PermissionDenied
from resolute.ids import SeededIds
from resolute.wire.agent_link import ContainerReport, Exit
from resolute.wire.states import AllocationState, ContainerState, ExperimentState, FailureKind, NoticeKind
from resolute_master.domain.agent import Agent, MachineNotice
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.commands import (
    Command,
    LoseAgentLink,
    MasterStarted,
    RegisterAgent,
    ReportContainer,
    ReportNotice,
    SetAgentEnabled,
    SetSlotEnabled,
)
from resolute_master.domain.copies import replace
from resolute_master.domain.effects import KillContainer, StartContainer
from resolute_master.domain.ids import AgentId, ContainerId, InstanceId, PoolName, TaskId, TrialId
from resolute_master.domain.instance import Instance
from resolute_master.domain.trial import Trial
from resolute_master.lifecycle.apply import apply
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.lifecycle.step import Step
from resolute_provisioner.model import Intent, Observed
from support.cluster import T0, a_container, a_running_allocation, an_agent, an_allocation, an_instance, at, device

ONE = AgentId("agent-1")


def a_trial(number: int = 1) -> Trial:
    """Paused, so that it asks for nothing when its run has ended: these tests are about machines."""
    return Trial(
        id=TrialId(number),
        experiment_id=1,  # type: ignore[arg-type]
        job_id="job-1",  # type: ignore[arg-type]
        task_id=TaskId("1.aaaa"),
        request_id="aaaa",
        state=ExperimentState.PAUSED,
        hparams={},
        seed=1,
        started_at=T0,
    )


def world(*entities: Any, outbox: tuple[Any, ...] = (), now: datetime = T0) -> Step:
    return Step(ClusterState((a_trial(), *entities), outbox), now=now, ids=SeededIds(1), sequence=1)


def told(step: Step, command: Command) -> Any:
    return apply(step, command)


def registration(**changes: Any) -> RegisterAgent:
    given: dict[str, Any] = {
        "agent": ONE,
        "pool": PoolName("default"),
        "incarnation": "second",
        "devices": tuple(device(i) for i in range(4)),
        "address": "10.0.0.9",
        "version": "0",
        "instance": None,
        "reports": (),
    }
    return RegisterAgent(**{**given, **changes})


def test_an_agent_that_comes_back_with_what_is_known_writes_down_nothing_but_itself() -> None:
    running = a_running_allocation()
    container = running.containers[0]
    step = world(an_agent(), running)
    report = ContainerReport(
        container_id=container.id,
        allocation_id=running.id,
        state=ContainerState.RUNNING,
        sequence=1,
        at=T0,
        address=container.address,
    )
    known = told(step, registration(address=container.address, reports=(report,)))
    assert known == (container.id,)
    assert [key for key in step.written_keys() if key[0] == "allocation"] == []
    told(step, registration(address="10.0.0.10", reports=(replace(report, address="10.0.0.10"),)))
    assert ("allocation", running.id) in step.written_keys()


def a_report(rank: int, state: ContainerState, exit_: Exit | None = None, sequence: int = 1) -> ContainerReport:
    return ContainerReport(
        container_id=f"container-{rank}", allocation_id="", state=state, sequence=sequence, at=T0, exit=exit_
    )


def notice(kind: NoticeKind, deadline: datetime | None = None, incarnation: str = "first") -> ReportNotice:
    return ReportNotice(agent=ONE, incarnation=incarnation, kind=kind, deadline=deadline, reason="the cloud says so")


def agent(step: Step) -> Agent:
    return step.need(Agent, ONE)


def allocation(step: Step, name: str = "1.aaaa.1") -> Allocation:
    return step.need(Allocation, name)


# ---------------------------------------------------------------------------------------------------- registration


def test_an_agent_that_returns_with_its_containers_keeps_them_and_is_told_what_is_expected() -> None:
    step = world(an_agent(disconnected_at=T0), a_running_allocation())
    expected = told(step, registration(reports=(a_report(0, ContainerState.RUNNING),)))
    assert expected == ("container-0",)
    assert agent(step).connected and agent(step).incarnation == "second"
    assert allocation(step).state is AllocationState.RUNNING


def test_the_order_in_which_an_agent_lists_its_devices_means_nothing() -> None:
    step = world(an_agent(), a_running_allocation())
    devices = tuple(device(i) for i in (3, 1, 0, 2))
    told(step, registration(devices=devices, reports=(a_report(0, ContainerState.RUNNING),)))
    assert allocation(step).state is AllocationState.RUNNING
    assert [slot.index for slot in agent(step).slots] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"devices": (device(1),)}, "the agent reconnected without the devices of slots [0]"),
        (
            {"devices": (replace(device(0), uuid="another"), device(1))},
            "the agent reconnected without the devices of slots [0]",
        ),
        ({"pool": PoolName("other")}, "the agent reconnected in pool other"),
    ],
)
def test_what_ran_on_an_agent_that_is_another_one_now_has_failed_with_the_machine(
    changes: dict[str, Any], reason: str
) -> None:
    step = world(an_agent(), a_running_allocation())
    assert told(step, registration(reports=(a_report(0, ContainerState.RUNNING),), **changes)) == ()
    exit_ = allocation(step).exit
    assert exit_ is not None and exit_.failure is FailureKind.AGENT_FAILED and reason in exit_.reason


def test_what_ran_on_devices_that_are_still_there_goes_on_when_another_one_is_lost() -> None:
    step = world(an_agent(), a_running_allocation())
    came_back = registration(devices=(device(0), device(2)), reports=(a_report(0, ContainerState.RUNNING),))
    assert told(step, came_back) == ("container-0",)
    assert allocation(step).state is AllocationState.RUNNING
    assert [slot.index for slot in agent(step).slots] == [0, 2]


def test_switches_stay_with_the_device_over_a_registration() -> None:
    before = an_agent(slots=2)
    off = replace(before, slots=(before.slots[0], replace(before.slots[1], enabled=False)))
    step = world(off)
    told(step, registration(devices=(device(0), device(1))))
    assert [slot.enabled for slot in agent(step).slots] == [True, False]


def test_a_start_that_the_agent_never_got_is_expected_and_one_that_it_had_is_not_restored() -> None:
    members = (a_container(0, state=ContainerState.ASSIGNED), a_container(1, state=ContainerState.RUNNING, slots=(1,)))
    had = an_allocation("1.aaaa.2", state=AllocationState.RUNNING, containers=(members[1],), run_id=2)
    waits = an_allocation(state=AllocationState.ASSIGNED, containers=(members[0],))
    start = StartContainer(container=ContainerId("container-0"), allocation=waits.id, agent=ONE)
    step = world(an_agent(), waits, had, outbox=(start,))
    assert told(step, registration()) == ("container-0",)
    exit_ = allocation(step, "1.aaaa.2").exit
    assert exit_ is not None and exit_.failure is FailureKind.RESTORE_ERROR


def test_an_end_that_happened_while_the_link_was_down_is_credited() -> None:
    step = world(an_agent(disconnected_at=T0), a_running_allocation(trial_id=None))
    assert told(step, registration(reports=(a_report(0, ContainerState.TERMINATED, Exit(code=0)),))) == ()
    exit_ = allocation(step).exit
    assert exit_ is not None and exit_.finished


def test_a_container_is_only_believed_from_its_own_agent() -> None:
    step = world(an_agent(), an_agent("agent-2", incarnation="x"), a_running_allocation())
    stranger = ReportContainer(
        agent=AgentId("agent-2"), incarnation="x", report=a_report(0, ContainerState.TERMINATED, Exit(code=0))
    )
    told(step, stranger)
    assert allocation(step).state is AllocationState.RUNNING


def test_a_machine_that_is_over_or_unknown_is_refused() -> None:
    over = an_instance(observed=Observed.GONE)
    for instance in ("instance-1", "instance-9"):
        with pytest.raises(NotFound, match=instance):
            told(world(over), registration(instance=InstanceId(instance)))


def test_a_machine_that_is_to_stop_may_join_and_is_given_nothing() -> None:
    step = world(an_instance(intent=Intent.STOP, agent_id=None))
    told(step, registration(agent=AgentId("instance-1"), instance=InstanceId("instance-1")))
    (joined,) = step.all(Agent)
    assert joined.connected and not joined.placeable


def test_a_machine_of_a_pool_joins_under_its_own_name_and_in_its_own_pool() -> None:
    step, machine = world(an_instance(agent_id=None)), InstanceId("instance-1")
    with pytest.raises(PermissionDenied, match="joins under its own name only"):
        told(step, registration(instance=machine))
    with pytest.raises(PermissionDenied, match="was launched for pool 'default'"):
        told(step, registration(agent=AgentId("instance-1"), instance=machine, pool=PoolName("other")))


def test_no_other_machine_takes_the_name_of_a_machine_of_a_pool() -> None:
    for step in (
        world(an_instance(agent_id=None)),
        world(an_agent("instance-1", instance_id=InstanceId("instance-1"))),
    ):
        with pytest.raises(PermissionDenied, match="a machine that a cloud pool launched"):
            told(step, registration(agent=AgentId("instance-1"), key="1" * 64))


def test_an_outdated_connection_is_refused_and_its_end_means_nothing() -> None:
    step = world(an_agent(incarnation="second"))
    with pytest.raises(Conflict, match="registered again"):
        told(step, notice(NoticeKind.INTERRUPTION, at(9), incarnation="first"))
    told(step, LoseAgentLink(agent=ONE, incarnation="first"))
    assert agent(step).connected


def test_no_link_survives_a_start_of_the_master() -> None:
    step = world(an_agent(), an_agent("agent-2", disconnected_at=at(-50)), now=at(3))
    told(step, MasterStarted(version="0"))
    assert [a.disconnected_at for a in step.all(Agent)] == [at(3), at(3)]


# --------------------------------------------------------------------------------------------------------- notices


def test_a_notice_asks_every_gang_with_a_member_there_to_save_before_the_deadline() -> None:
    gang = a_running_allocation(members=2)
    other = a_running_allocation(id="1.aaaa.2", containers=(a_container(5, "agent-2", slots=(3,)),))
    step = world(an_agent(), an_agent("agent-2"), gang, other, an_instance())
    told(step, notice(NoticeKind.INTERRUPTION, at(120)))
    asked = allocation(step).preempt
    assert asked is not None and (asked.deadline, asked.notice) == (at(120), NoticeKind.INTERRUPTION)
    assert allocation(step, "1.aaaa.2").preempt is None
    assert agent(step).leaving and not agent(step).placeable


def test_a_risk_asks_nobody_to_end() -> None:
    step = world(an_agent(), a_running_allocation())
    told(step, notice(NoticeKind.REBALANCE))
    assert allocation(step).preempt is None
    assert agent(step).notice is not None


def kinds_of(*notices: ReportNotice) -> tuple[NoticeKind, datetime | None]:
    step = world(an_agent())
    for each in notices:
        told(step, each)
    kept = agent(step).notice
    assert kept is not None
    return kept.kind, kept.deadline


def test_what_is_certain_is_not_taken_back_by_a_risk() -> None:
    certain = notice(NoticeKind.INTERRUPTION, at(120))
    assert kinds_of(notice(NoticeKind.REBALANCE), certain) == (NoticeKind.INTERRUPTION, at(120))
    assert kinds_of(certain, notice(NoticeKind.REBALANCE)) == (NoticeKind.INTERRUPTION, at(120))


def test_of_two_ends_the_sooner_counts_and_the_same_one_may_be_put_off() -> None:
    soon, late = notice(NoticeKind.INTERRUPTION, at(60)), notice(NoticeKind.MAINTENANCE, at(600))
    assert kinds_of(soon, late) == kinds_of(late, soon) == (NoticeKind.INTERRUPTION, at(60))
    assert kinds_of(late, notice(NoticeKind.MAINTENANCE, at(900))) == (NoticeKind.MAINTENANCE, at(900))


def test_a_repeated_notice_is_no_news() -> None:
    step = world(an_agent())
    told(step, notice(NoticeKind.INTERRUPTION, at(60)))
    said = len(step.decisions)
    told(step, notice(NoticeKind.INTERRUPTION, at(60)))
    assert len(step.decisions) == said


def test_a_machine_of_ones_own_that_starts_again_after_its_announced_end_may_work_again() -> None:
    maintained = MachineNotice(kind=NoticeKind.MAINTENANCE, deadline=at(60), reason="", received_at=T0)
    step = world(an_agent(notice=maintained), now=at(61))
    told(step, registration())
    assert agent(step).placeable
    early = world(an_agent(notice=maintained), now=at(59))
    told(early, registration())
    assert not agent(early).placeable
    machine = AgentId("instance-1")
    clouds = world(an_agent(machine, notice=maintained), an_instance(agent_id=machine), now=at(61))
    told(clouds, registration(agent=machine, instance=InstanceId("instance-1")))
    (joined,) = clouds.all(Agent)
    assert not joined.placeable


# ------------------------------------------------------------------------------------------------------- operators


def killed(step: Step) -> list[str]:
    return [effect.container for effect in step.outbox_added() if isinstance(effect, KillContainer)]


def test_draining_lets_work_finish_disabling_ends_it_and_enabling_clears_both() -> None:
    step = world(an_agent(), a_running_allocation())
    told(step, SetAgentEnabled(agent=ONE, enabled=False, draining=True))
    assert (agent(step).placeable, killed(step)) == (False, [])
    told(step, SetAgentEnabled(agent=ONE, enabled=False))
    assert (agent(step).enabled, killed(step)) == (False, ["container-0"])
    told(step, SetAgentEnabled(agent=ONE, enabled=True))
    assert (agent(step).enabled, agent(step).draining, agent(step).placeable) == (True, False, True)


def test_disabling_an_agent_ends_the_whole_of_each_gang_there() -> None:
    step = world(an_agent(), an_agent("agent-2"), a_running_allocation(members=2))
    told(step, SetAgentEnabled(agent=ONE, enabled=False))
    assert killed(step) == ["container-0", "container-1"]


def test_a_disabled_slot_ends_what_uses_it_and_nothing_else() -> None:
    second = a_running_allocation(id="1.aaaa.2", containers=(a_container(5, slots=(1,)),))
    step = world(an_agent(), a_running_allocation(), second)
    told(step, SetSlotEnabled(agent=ONE, index=1, enabled=False))
    assert killed(step) == ["container-5"]
    with pytest.raises(NotFound, match="slot of agent 'agent-1' '9' not found"):
        told(step, SetSlotEnabled(agent=ONE, index=9, enabled=True))


def test_what_was_killed_for_a_disabled_agent_has_not_failed() -> None:
    step = world(an_agent(), a_running_allocation())
    told(step, SetAgentEnabled(agent=ONE, enabled=False))
    report = a_report(0, ContainerState.TERMINATED, Exit(code=137))
    told(step, ReportContainer(agent=ONE, incarnation="first", report=report))
    exit_ = allocation(step).exit
    assert exit_ is not None and (exit_.failure, exit_.finished) == (None, False)


@pytest.mark.parametrize("given_back", [{"intent": Intent.STOP}, {"draining_since": T0}])
def test_a_machine_that_is_given_back_cannot_be_enabled(given_back: dict[str, Any]) -> None:
    step = world(an_agent(instance_id=InstanceId("instance-1"), draining=True), an_instance(**given_back))
    with pytest.raises(FailedPrecondition, match="being given back"):
        told(step, SetAgentEnabled(agent=ONE, enabled=True))
    assert step.need(Instance, "instance-1") is not None
