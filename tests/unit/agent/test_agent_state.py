"""The agent's decisions: one event at a time, nothing else."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resolute.wire.agent_link import (
    Acknowledged,
    ContainerChanged,
    ContainerReport,
    Device,
    Exit,
    HeartbeatAnswer,
    KillContainer,
    MasterMessage,
    Notice,
    Refused,
    Shutdown,
    StartContainer,
    Welcome,
)
from resolute.wire.states import ContainerState, FailureKind, NoticeKind, SlotKind
from resolute_agent import state as core
from resolute_agent.state import AgentState, Effect, Event, Identity, initial, step
from support.agent_master import a_spec

NOW = datetime(2030, 1, 1, tzinfo=UTC)

IDENTITY = Identity(
    agent_id="agent-1",
    resource_pool="pool",
    incarnation="first",
    version="1",
    devices=tuple(Device(index=n, kind=SlotKind.CPU, brand="x", uuid=f"u{n}") for n in range(2)),
)


class Told:
    """An agent's state, fed with events; keeps the effects of the last one."""

    def __init__(self, state: AgentState | None = None) -> None:
        self.state = state or initial(IDENTITY, None)
        self.effects: tuple[Effect, ...] = ()
        self.everything: list[Effect] = []

    def event(self, event: Event) -> Told:
        self.state, self.effects = step(self.state, event, NOW)
        self.everything += self.effects
        return self

    def says(self, message: MasterMessage) -> Told:
        return self.event(core.Received(message=message))

    def welcomed(self, *expected: str) -> Told:
        self.event(core.LinkOpened(address="10.0.0.1"))
        return self.says(welcome(*expected))

    def running(self, container_id: str = "c1", slots: tuple[int, ...] = ()) -> Told:
        self.says(StartContainer(spec=a_spec(container_id, slots=slots)))
        return self.event(core.Progressed(container_id=container_id, state=ContainerState.RUNNING))

    def exits(self, container_id: str = "c1", code: int = 0) -> Told:
        return self.event(core.Exited(container_id=container_id, exit=Exit(code=code)))

    def drained(self, container_id: str = "c1") -> Told:
        return self.event(core.LogsDrained(container_id=container_id))

    def restarted(self, *found: core.Found) -> Told:
        """The next agent process with what this one has saved."""
        identity = replace(IDENTITY, incarnation="second")
        return Told(initial(identity, self.state.durable())).event(core.Booted(found=found))

    def of(self, kind: type[Effect]) -> list[Effect]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def reports(self) -> list[ContainerReport]:
        """What the last event's effects tell the master of containers."""
        messages = [effect.message for effect in self.effects if isinstance(effect, core.Send)]
        return [message.report for message in messages if isinstance(message, ContainerChanged)]


def welcome(*expected: str) -> Welcome:
    return Welcome(
        cluster_id="k", cluster_name="k", master_id="m", heartbeat_s=2.0, lease_s=30.0, expected=tuple(expected)
    )


def found(container_id: str = "c1", exit: Exit | None = None) -> core.Found:
    return core.Found(container_id=container_id, allocation_id="a", task_id="t", slots=(), exit=exit)


def test_a_start_is_saved_then_answered_then_carried_out() -> None:
    told = Told().welcomed().says(StartContainer(spec=a_spec(slots=(1,))))
    assert [type(effect) for effect in told.effects] == [core.Save, core.Send, core.Start]
    (begun,) = told.of(core.Start)
    assert isinstance(begun, core.Start) and [device.index for device in begun.devices] == [1]
    assert [report.state for report in told.reports()] == [ContainerState.STARTING]


def test_an_acknowledgement_alone_is_not_saved_for_its_report_may_be_repeated() -> None:
    told = Told().welcomed().running()
    saved = told.state.durable()
    told.says(Acknowledged(sequence=told.state.sequence))
    assert told.effects == () and told.state.acknowledged == told.state.sequence
    after = Told(initial(IDENTITY, saved)).event(core.Booted(found=(found(),))).welcomed("c1")
    assert [report.state for report in after.reports()] == [ContainerState.RUNNING]


def test_a_repeated_start_is_answered_and_not_carried_out_again() -> None:
    told = Told().welcomed().running().says(StartContainer(spec=a_spec()))
    assert told.of(core.Start) == []
    assert [report.state for report in told.reports()] == [ContainerState.RUNNING]


def test_a_start_of_what_has_ended_is_answered_with_its_end() -> None:
    told = Told().welcomed().running().exits(code=4).drained()
    (end,) = told.reports()
    told.says(Acknowledged(sequence=end.sequence))
    assert told.state.containers == {}
    told.says(StartContainer(spec=a_spec()))
    assert told.of(core.Start) == []
    assert told.reports() == [end]


@pytest.mark.parametrize("slots", [(2,), (0, 7), (1, 1)])
def test_slots_that_are_not_there_are_refused_to_the_master(slots: tuple[int, ...]) -> None:
    told = Told().welcomed().says(StartContainer(spec=a_spec(slots=slots)))
    (report,) = told.reports()
    assert report.state is ContainerState.TERMINATED
    assert report.exit is not None and report.exit.failure is FailureKind.AGENT_ERROR
    assert told.of(core.Start) == []


def test_a_taken_slot_is_refused_and_a_dying_one_waited_for() -> None:
    told = Told().welcomed().running("c1", slots=(0,))
    told.says(StartContainer(spec=a_spec("c2", slots=(0, 1))))
    assert told.reports()[0].state is ContainerState.TERMINATED
    told.says(KillContainer(container_id="c1"))
    told.says(StartContainer(spec=a_spec("c3", slots=(0,))))
    assert told.reports()[0].state is ContainerState.ASSIGNED
    assert told.of(core.Start) == []
    told.exits("c1", code=137)
    (begun,) = told.of(core.Start)
    assert isinstance(begun, core.Start) and begun.spec.container_id == "c3"


def test_a_kill_of_what_waits_for_its_slot_aborts_it() -> None:
    told = Told().welcomed().running("c1", slots=(0,)).says(KillContainer(container_id="c1"))
    told.says(StartContainer(spec=a_spec("c2", slots=(0,)))).says(KillContainer(container_id="c2"))
    (report,) = told.reports()
    assert report.exit is not None and report.exit.failure is FailureKind.ABORTED
    assert told.exits("c1").of(core.Start) == []


def test_a_kill_of_a_stranger_is_answered_and_its_late_start_refused() -> None:
    told = Told().welcomed().says(KillContainer(container_id="c9"))
    (report,) = told.reports()
    assert report.exit is not None and report.exit.failure is FailureKind.RESTORE_ERROR
    told.says(StartContainer(spec=a_spec("c9")))
    assert told.of(core.Start) == []
    assert [again.state for again in told.reports()] == [ContainerState.TERMINATED]


def test_an_end_is_reported_after_its_output_and_forgotten_after_its_acknowledgement() -> None:
    told = Told().welcomed().running().exits(code=7)
    assert told.reports() == []
    assert len(told.of(core.DrainLogs)) == 1
    (report,) = told.drained().reports()
    assert report.exit == Exit(code=7)
    assert told.of(core.Forget) == []
    told.says(Acknowledged(sequence=report.sequence - 1))
    assert told.of(core.Forget) == []
    told.says(Acknowledged(sequence=report.sequence))
    assert len(told.of(core.Forget)) == 1


def test_nothing_is_sent_without_a_welcome_and_all_that_is_owed_after_one() -> None:
    told = Told().welcomed().running("c1").running("c2").event(core.LinkClosed())
    told.exits("c1", code=3).drained("c1")
    assert told.reports() == []
    told.event(core.LinkOpened(address="10.0.0.2"))
    (greeting,) = told.of(core.Send)
    assert isinstance(greeting, core.Send) and greeting.message == core.hello(told.state)
    told.says(welcome("c1", "c2"))
    assert [(report.container_id, report.state) for report in told.reports()] == [
        ("c2", ContainerState.RUNNING),
        ("c1", ContainerState.TERMINATED),
    ]


def test_what_is_not_expected_is_killed_and_forgotten_without_a_word() -> None:
    told = Told().welcomed().running("c1").running("c2").exits("c2").drained("c2").event(core.LinkClosed())
    told.welcomed()
    assert [effect.container_id for effect in told.of(core.Kill) if isinstance(effect, core.Kill)] == ["c1"]
    assert [effect.container_id for effect in told.of(core.Forget) if isinstance(effect, core.Forget)] == ["c2"]
    told.exits("c1", code=137)
    assert told.reports() == []
    assert told.state.containers == {}


def test_leases_are_renewed_for_what_lives_only() -> None:
    told = Told().welcomed()
    assert not told.says(HeartbeatAnswer(at=NOW)).effects
    told.running("c1").running("c2").exits("c2").says(HeartbeatAnswer(at=NOW))
    assert told.effects == (core.RenewLeases(container_ids=("c1",), lease_s=30.0),)


def test_a_new_agent_goes_on_where_the_last_one_was_killed() -> None:
    before = Told().welcomed().running("lives").running("ended").running("lost").running("drains").exits("drains")
    after = before.restarted(found("lives"), found("ended", Exit(code=2)), found("drains", Exit(code=0)))
    watched = [effect.container_id for effect in after.of(core.Watch) if isinstance(effect, core.Watch)]
    assert watched == ["ended", "lives"]
    assert [e.container_id for e in after.of(core.DrainLogs) if isinstance(e, core.DrainLogs)] == ["drains"]
    lost = after.state.containers["lost"]
    assert lost.exit is not None and lost.exit.failure is FailureKind.RESTORE_ERROR
    assert after.state.sequence > before.state.sequence
    assert core.hello(after.state).incarnation == "second"


def test_a_start_that_the_last_agent_did_not_finish_is_reported_as_its_error() -> None:
    before = Told().welcomed().says(StartContainer(spec=a_spec()))
    record = before.restarted().state.containers["c1"]
    assert record.exit is not None and record.exit.failure is FailureKind.AGENT_ERROR


def test_a_container_without_record_is_shown_to_the_master_who_decides() -> None:
    kept = Told().event(core.Booted(found=(found("c1"),))).welcomed("c1")
    assert [report.state for report in kept.reports()] == [ContainerState.RUNNING]
    dropped = Told().event(core.Booted(found=(found("c1"),))).welcomed()
    assert len(dropped.of(core.Kill)) == 1


def test_a_kill_is_not_forgotten_by_a_restart() -> None:
    before = Told().welcomed().running("c1").event(core.LinkClosed()).welcomed()
    after = before.restarted(found("c1"))
    assert len(after.of(core.Kill)) == 1
    assert after.exits("c1").of(core.Forget) != []


def test_a_notice_is_told_once_and_again_on_each_connection() -> None:
    notice = Notice(kind=NoticeKind.INTERRUPTION, deadline=NOW + timedelta(minutes=2), reason="spot", at=NOW)
    told = Told().welcomed().running("c1").event(core.NoticeSeen(notice=notice))
    assert [type(effect) for effect in told.effects] == [core.Send, core.NotifyTasks]
    assert told.event(core.NoticeSeen(notice=replace(notice, at=NOW + timedelta(seconds=5)))).effects == ()
    told.event(core.LinkClosed()).welcomed("c1")
    assert core.Send(message=notice) in told.effects
    told.running("c2")
    (more,) = told.of(core.NotifyTasks)
    assert isinstance(more, core.NotifyTasks) and more.container_ids == ("c2",)


@pytest.mark.parametrize(
    "event",
    [
        core.Received(message=Shutdown(reason="why")),
        core.MasterLost(after_s=60.0),
    ],
)
def test_an_ending_agent_kills_refuses_and_says_end_when_nothing_lives(event: Event) -> None:
    told = Told().welcomed().running("c1").running("c2").exits("c2").event(event)
    assert len(told.of(core.Kill)) == 1 and told.of(core.End) == []
    told.says(StartContainer(spec=a_spec("c3")))
    assert told.reports()[0].state is ContainerState.TERMINATED
    told.exits("c1", code=137)
    assert len(told.of(core.End)) == 1
    assert {record.state for record in told.state.containers.values()} == {ContainerState.TERMINATED}
    assert told.event(event).of(core.End) == []


def test_a_final_refusal_ends_a_machine_of_a_pool_with_all_that_runs_there() -> None:
    told = Told(initial(replace(IDENTITY, instance_id="i-1"), None)).welcomed().running("c1")
    told.says(Refused(reason="why", final=True))
    assert len(told.of(core.Kill)) == 1 and told.state.refused is None
    told.exits("c1", code=137)
    assert len(told.of(core.End)) == 1


def test_a_final_refusal_ends_any_other_agent_and_leaves_what_runs_there_to_its_lease() -> None:
    told = Told().welcomed().running("c1").says(Refused(reason="get a token", final=True))
    assert told.effects == () and told.state.refused == "get a token"
    assert told.state.ending is None and told.state.containers["c1"].living


def test_a_refusal_that_is_not_final_closes_the_link_and_nothing_else() -> None:
    told = Told().welcomed().running("c1").says(Refused(reason="starting up", final=False))
    assert told.effects == (core.CloseLink(reason="starting up"),)


def test_other_devices_begin_the_link_anew_and_the_same_ones_change_nothing() -> None:
    told = Told().welcomed().running("c1", slots=(0,))
    assert told.event(core.DevicesSeen(devices=IDENTITY.devices)).effects == ()
    told.event(core.DevicesSeen(devices=IDENTITY.devices[:1]))
    (closed,) = told.of(core.CloseLink)
    assert isinstance(closed, core.CloseLink) and "1 slot(s) now instead of 2" in closed.reason
    assert core.hello(told.state).devices == IDENTITY.devices[:1]
    told.welcomed("c1").says(StartContainer(spec=a_spec("c2", slots=(1,))))
    assert "has no slot [1]" in told.reports()[0].exit.message  # type: ignore[union-attr]


def test_what_waits_for_a_device_that_is_lost_is_never_started_without_it() -> None:
    told = Told().welcomed().running("c1", slots=(1,)).says(KillContainer(container_id="c1"))
    told.says(StartContainer(spec=a_spec("c2", slots=(0, 1)))).event(core.DevicesSeen(devices=IDENTITY.devices[:1]))
    assert told.exits("c1").of(core.Start) == []


def test_the_memory_of_ends_is_bounded() -> None:
    told = Told().welcomed()
    for number in range(core.REMEMBERED_ENDS + 20):
        told.says(KillContainer(container_id=f"c{number}"))
        told.says(Acknowledged(sequence=told.state.sequence))
    assert len(told.state.ended) == core.REMEMBERED_ENDS


# ------------------------------------------------------------------------------------------------ any order of events

IDS = st.sampled_from(["a", "b", "c"])
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.just(core.LinkOpened(address="x")),
    st.just(core.LinkClosed()),
    st.integers(0, 2).map(lambda count: core.DevicesSeen(devices=IDENTITY.devices[:count])),
    st.lists(IDS, unique=True).map(lambda ids: core.Received(message=welcome(*ids))),
    st.tuples(IDS, st.sampled_from([(), (0,), (1,), (0, 1), (9,)])).map(
        lambda pair: core.Received(message=StartContainer(spec=a_spec(pair[0], slots=pair[1])))
    ),
    IDS.map(lambda name: core.Received(message=KillContainer(container_id=name))),
    st.integers(0, 60).map(lambda number: core.Received(message=Acknowledged(sequence=number))),
    st.tuples(IDS, st.sampled_from(list(ContainerState)[1:4])).map(
        lambda pair: core.Progressed(container_id=pair[0], state=pair[1])
    ),
    IDS.map(lambda name: core.Exited(container_id=name, exit=Exit(code=1))),
    IDS.map(lambda name: core.LogsDrained(container_id=name)),
    st.just(core.Received(message=HeartbeatAnswer(at=NOW))),
)


@given(st.lists(EVENTS, max_size=60))
def test_whatever_happens_reports_only_go_forward_and_nothing_runs_twice(events: list[Event]) -> None:
    told = Told()
    started: list[str] = []
    for event in events:
        before = told.state
        told.event(event)
        after = told.state
        if isinstance(event, core.Received) and isinstance(event.message, StartContainer) and before.welcomed:
            assert told.reports(), "a start is always answered"
        started += [effect.spec.container_id for effect in told.effects if isinstance(effect, core.Start)]
        assert after.sequence >= before.sequence and after.acknowledged <= after.sequence
        for name, record in after.containers.items():
            earlier = before.containers.get(name)
            assert earlier is None or record.state.order >= earlier.state.order
        held = [slot for r in after.containers.values() if r.living for slot in r.slots]
        assert len(held) == len(set(held)), "a slot is lent once"
        saves = [index for index, effect in enumerate(told.effects) if isinstance(effect, core.Save)]
        assert saves in ([], [0]), "nothing is done before what it follows from is saved"
        unacknowledged = [replace(state.durable(), acknowledged=0) for state in (before, after)]
        assert (unacknowledged[0] != unacknowledged[1]) == bool(saves)
        assert initial(IDENTITY, after.durable()).containers == after.containers
    sequences = [report.sequence for effect in told.everything for report in _reported(effect)]
    assert all(sequence > 0 for sequence in sequences)
    forgotten_unsaid = {e.container_id for e in told.everything if isinstance(e, core.Forget) and not e.ship}
    assert len([name for name in started if name not in forgotten_unsaid]) == len(
        {name for name in started if name not in forgotten_unsaid}
    ), "an acknowledged container is never started again"


def _reported(effect: Effect) -> list[ContainerReport]:
    if isinstance(effect, core.Send) and isinstance(effect.message, ContainerChanged):
        return [effect.message.report]
    return []
