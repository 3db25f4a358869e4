"""The machines of a pool over time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from resolute.wire.states import NoticeKind
from resolute_master.domain.agent import MachineNotice
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.ids import AgentId, InstanceId, PoolName
from resolute_master.domain.instance import Instance
from resolute_provisioner.model import Intent, Observed
from resolute_web.timeline import MOST_LANES, WIDTH, Lane, Timeline, Window, timeline_of
from support.stores import an_allocation

BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)
WINDOW = Window(begin=BEGIN, end=BEGIN + timedelta(hours=1))


def at(minutes: float) -> datetime:
    return BEGIN + timedelta(minutes=minutes)


def a_machine(name: str = "m1", **changes: Any) -> Instance:
    values: dict[str, Any] = {
        "id": InstanceId(name),
        "pool": PoolName("spot"),
        "token": name,
        "offer_id": "small",
        "slots": 1,
        "price_per_hour": 1.0,
        "requested_at": at(0),
        "agent_id": AgentId(name),
    }
    return Instance(**{**values, **changes})


def a_run(agent: str, begin: float, end: float | None, id_: str = "1.request-1.1") -> Allocation:
    until = None if end is None else at(end)
    return an_allocation(id_, (agent,), assigned_at=at(begin), ended_at=until)


def drawn(*machines: Instance, ran: tuple[Any, ...] = (), limit: int = 4) -> Timeline:
    return timeline_of(machines, ran, WINDOW, limit=limit)


def stages(lane: Lane) -> list[tuple[str, float, float]]:
    minutes = [(each.stage.value, (each.begin - BEGIN), (each.end - BEGIN)) for each in lane.segments]
    return [(stage, begin.total_seconds() / 60, end.total_seconds() / 60) for stage, begin, end in minutes]


def test_a_machine_is_requested_boots_waits_works_and_ends() -> None:
    machine = a_machine(
        launched_at=at(5),
        joined_at=at(10),
        intent=Intent.STOP,
        stopped_at=at(50),
        paid_until=at(55),
        observed=Observed.GONE,
    )
    (lane,) = drawn(machine, ran=(a_run("m1", 20, 40), a_run("other", 12, 13, "2.request-1.1"))).lanes
    assert stages(lane) == [
        ("requested", 0, 5),
        ("booting", 5, 10),
        ("idle", 10, 20),
        ("busy", 20, 40),
        ("idle", 40, 50),
        ("ending", 50, 55),
    ]
    assert (round(lane.segments[3].x), round(lane.segments[3].width)) == (333, 333)
    assert lane.stages["idle"] == 20 * 60


def test_what_is_not_over_reaches_until_now_and_what_began_earlier_from_the_edge() -> None:
    machine = a_machine(requested_at=at(-60), launched_at=at(-50), joined_at=at(-40))
    (lane,) = drawn(machine, ran=(a_run("m1", -30, None),)).lanes
    assert stages(lane) == [("busy", 0, 60)]
    (waiting,) = drawn(a_machine(requested_at=at(30))).lanes
    assert stages(waiting) == [("requested", 30, 60)]


def test_two_runs_at_once_are_one_stretch_of_work() -> None:
    machine = a_machine(launched_at=at(0), joined_at=at(0), slots=2)
    ran = (a_run("m1", 10, 40), a_run("m1", 20, 30, "2.request-1.1"), a_run("m1", 35, 50, "3.request-1.1"))
    (lane,) = drawn(machine, ran=ran).lanes
    assert stages(lane) == [("idle", 0, 10), ("busy", 10, 40), ("busy", 40, 50), ("idle", 50, 60)]


def test_refusals_are_marks_of_one_lane_and_count_as_nothing_that_was_wanted() -> None:
    refused = [
        a_machine(f"r{n}", refused="no capacity", observed=Observed.GONE, observed_at=at(n), agent_id=None)
        for n in range(3)
    ]
    found = drawn(*refused)
    assert found.lanes == [] and [mark.text for mark in found.refused] == ["small: no capacity"] * 3
    assert found.wanted.most == 0


def test_a_notice_and_a_machine_that_ended_by_itself_are_marked() -> None:
    notice = MachineNotice(
        kind=NoticeKind.INTERRUPTION, deadline=at(32), reason="spot is taken back", received_at=at(30)
    )
    machine = a_machine(launched_at=at(1), joined_at=at(2), notice=notice, paid_until=at(32), observed=Observed.GONE)
    (lane,) = drawn(machine).lanes
    assert [(mark.kind, mark.x) for mark in lane.marks] == [("notice", WIDTH / 2), ("lost", round(WIDTH * 32 / 60, 2))]
    given_back = a_machine(
        launched_at=at(1), joined_at=at(2), stopped_at=at(30), paid_until=at(32), observed=Observed.GONE
    )
    assert drawn(given_back).lanes[0].marks == []


def test_the_lines_count_what_is_wanted_and_what_is_there() -> None:
    found = drawn(
        a_machine("m1", launched_at=at(1), joined_at=at(10)),
        a_machine(
            "m2", requested_at=at(20), launched_at=at(21), joined_at=at(30), stopped_at=at(40), paid_until=at(45)
        ),
        limit=2,
    )
    assert (found.wanted.last, found.wanted.most) == (1, 2)
    assert (found.there.last, found.there.most) == (1, 2)
    assert found.limit_y == 4 and found.wanted.points.startswith("0.0,40.0 ")
    assert found.wanted.points.endswith("1000,40.0")


def test_too_many_machines_are_counted_and_hours_are_round() -> None:
    machines = [a_machine(f"m{n:03}", requested_at=at(n / 10)) for n in range(MOST_LANES + 3)]
    found = drawn(*machines)
    assert len(found.lanes) == MOST_LANES and found.hidden == 3 and found.lanes[0].instance.id == "m003"
    assert [moment.minute for _, moment in found.ticks] == [10, 20, 30, 40, 50]
