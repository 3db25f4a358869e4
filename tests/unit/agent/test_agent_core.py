"""The agent over an in-memory link and the scripted runtime, under virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from resolute.wire.agent_link import (
    LOG_BATCH_LINES,
    LOG_BATCHES_IN_FLIGHT,
    Device,
    KillContainer,
    Notice,
    Refused,
    Shutdown,
    StartContainer,
)
from resolute.wire.states import ContainerState, FailureKind, NoticeKind, SlotKind
from resolute_agent.devices.tools import DetectionFailed
from resolute_agent.runtimes.scripted import ScriptedRuntime
from support.agent_memory_master import EPOCH, World
from support.agent_scripts import a_container
from support.agent_virtual import run_virtually

EVENTS = [ContainerState.STARTING, ContainerState.RUNNING, ContainerState.TERMINATED]


def virtually(scenario: Callable[[World], Awaitable[None]], **setup: Any) -> None:
    async def live() -> None:
        world = World(**setup)
        try:
            await world.until(lambda: world.agent.state.welcomed or world.running.done())
            await scenario(world)
        finally:
            await world.close()

    run_virtually(live())


def start(world: World, script: str, container_id: str = "c1", **changes: object) -> None:
    world.master.expected = (*world.master.expected, container_id)
    world.master.say(StartContainer(spec=a_container(script, container_id, command=("true",), **changes)))


def test_a_container_lives_its_story_and_its_output_precedes_its_end() -> None:
    async def scenario(world: World) -> None:
        start(world, "pull 3s; log 5 lines; run 40s; exit 7")
        await world.until(lambda: ContainerState.TERMINATED in world.master.states("c1"))
        assert world.master.states("c1") == EVENTS
        end = world.master.end("c1")
        assert end.exit is not None and end.exit.code == 7
        assert [line.log for line in world.master.lines] == [f"line {n}\n" for n in range(5)]
        assert end.at >= EPOCH + timedelta(seconds=43)
        await world.until(lambda: not world.agent.state.containers)
        assert await world.runtime.adopt() == ()

    virtually(scenario)


def test_output_is_not_read_further_than_the_master_stores() -> None:
    async def scenario(world: World) -> None:
        world.master.stores_logs = False
        start(world, "log 20000 lines; run 600s")
        await asyncio.sleep(60)
        assert len(world.master.batches) == LOG_BATCHES_IN_FLIGHT
        world.master.stores_logs = True
        world.master.cut()  # what was sent and not stored is sent again over the next connection
        await world.until(lambda: len(world.master.lines) >= 20_000)
        assert [line.log for line in world.master.lines] == [f"line {n}\n" for n in range(20_000)]

    virtually(scenario)


def test_a_container_that_writes_much_holds_up_no_other() -> None:
    async def scenario(world: World) -> None:
        world.master.stores_logs = False
        start(world, "log 50000 lines; run 600s", "noisy")
        await asyncio.sleep(60)
        full = len(world.master.batches)
        assert full == LOG_BATCHES_IN_FLIGHT
        start(world, "log 3 lines; run 600s", "quiet")
        await asyncio.sleep(60)
        world.master.stores_logs = True
        world.master.cut()
        await world.until(lambda: len(world.master.lines) >= 50_003)
        # Behind what was sent already, in the first batch that was closed since then.
        sent = list({batch.batch: batch for batch in world.master.batches}.values())
        assert all({line.container_id for line in batch.lines} == {"noisy"} for batch in sent[:full])
        assert [line.log for line in sent[full].lines if line.container_id == "quiet"] == [
            f"line {n}\n" for n in range(3)
        ]
        for name, count in (("noisy", 50_000), ("quiet", 3)):
            lines = [line.log for line in world.master.lines if line.container_id == name]
            assert lines == [f"line {n}\n" for n in range(count)]

    virtually(scenario)


def test_containers_share_each_batch_evenly() -> None:
    async def scenario(world: World) -> None:
        world.master.stores_logs = False
        for name in ("a", "b", "c", "d"):
            start(world, "log 5000 lines; run 600s", name)
        await asyncio.sleep(60)
        (*_, last) = world.master.batches
        counts = Counter(line.container_id for line in last.lines)
        assert len(last.lines) == LOG_BATCH_LINES and set(counts.values()) == {LOG_BATCH_LINES // 4}

    virtually(scenario)


def test_an_end_is_reported_although_its_output_is_never_stored() -> None:
    async def scenario(world: World) -> None:
        world.master.stores_logs = False
        start(world, "log 5 lines; exit 1")
        await world.until(lambda: ContainerState.TERMINATED in world.master.states("c1"), limit_s=60)

    virtually(scenario)


def test_reports_that_were_not_acknowledged_are_sent_again_and_in_order() -> None:
    async def scenario(world: World) -> None:
        world.master.acknowledges = False
        start(world, "exit 3")
        await world.until(lambda: ContainerState.TERMINATED in world.master.states("c1"))
        before = len(world.master.reports)
        world.master.acknowledges = True
        world.master.cut()
        await world.until(lambda: len(world.master.reports) > before)
        assert world.master.hellos[-1].containers == (world.master.end("c1"),)
        assert world.master.reports[-1] == world.master.end("c1")

    virtually(scenario)


def test_a_task_outlives_the_agent_and_its_end_meanwhile_is_credited() -> None:
    async def scenario(world: World) -> None:
        start(world, "say one; run 20s; say two; exit 9")
        await world.until(lambda: ContainerState.RUNNING in world.master.states("c1"))
        await world.crash_agent()
        await asyncio.sleep(25)
        world.start_agent()
        await world.until(lambda: ContainerState.TERMINATED in world.master.states("c1"))
        end = world.master.end("c1")
        assert end.exit is not None and end.exit.code == 9
        assert {line.offset: line.log for line in world.master.lines} == {0: "one\n", 4: "two\n"}
        sequences = [report.sequence for report in world.master.reports]
        assert sequences == sorted(sequences)

    virtually(scenario)


def test_an_unanswered_lease_ends_the_task_in_time() -> None:
    async def scenario(world: World) -> None:
        start(world, "run 100000s")
        await world.until(lambda: ContainerState.RUNNING in world.master.states("c1"))
        await asyncio.sleep(500)
        assert ContainerState.TERMINATED not in world.master.states("c1")
        silent_from = world.clock.now()
        world.master.answers_heartbeats = False
        world.master.connector.reachable = False
        await asyncio.sleep(world.master.lease_s + 1)
        (found,) = await world.runtime.adopt()
        assert found.exit is not None and found.exit.failure is FailureKind.AGENT_FAILED
        assert world.clock.now() - silent_from < timedelta(seconds=world.master.lease_s + 2)

    virtually(scenario)


def test_a_silent_master_is_left_and_a_new_connection_made() -> None:
    async def scenario(world: World) -> None:
        world.master.answers_heartbeats = False
        await world.until(lambda: len(world.master.hellos) >= 2, limit_s=120)

    virtually(scenario)


def test_an_unreachable_master_is_tried_without_end_and_not_in_a_storm() -> None:
    async def scenario(world: World) -> None:
        world.master.connector.reachable = False
        world.master.cut()
        await asyncio.sleep(3600)
        assert not world.running.done()
        world.master.connector.reachable = True
        await world.until(lambda: len(world.master.hellos) == 2, limit_s=31)

    virtually(scenario)


def test_an_elastic_machine_without_master_ends_itself() -> None:
    async def scenario(world: World) -> None:
        start(world, "run 100000s")
        await world.until(lambda: ContainerState.RUNNING in world.master.states("c1"))
        await asyncio.sleep(1000)
        assert not world.running.done()
        world.master.connector.reachable = False
        world.master.cut()
        reason = await asyncio.wait_for(world.running, 700)
        assert reason is not None and "600 s" in reason
        (found,) = await world.runtime.adopt()
        assert found.exit is not None, "nothing may be left running"

    virtually(scenario, master_timeout_s=600.0)


@pytest.mark.parametrize("final", [True, False])
def test_a_final_refusal_ends_the_machine_of_a_pool_and_another_does_not(final: bool) -> None:
    async def live() -> None:
        world = World(instance_id="i-1")
        world.master.refuses = Refused(reason="unknown token", final=final)
        try:
            if final:
                reason = await asyncio.wait_for(world.running, 60)
                assert reason is not None and "unknown token" in reason
            else:
                await world.until(lambda: len(world.master.hellos) > 3)
                world.master.refuses = None
                await world.until(lambda: world.agent.state.welcomed)
        finally:
            await world.close()

    run_virtually(live())


def test_a_shutdown_kills_reports_and_ends() -> None:
    async def scenario(world: World) -> None:
        start(world, "run 600s")
        await world.until(lambda: ContainerState.RUNNING in world.master.states("c1"))
        world.master.say(Shutdown(reason="enough"))
        reason = await asyncio.wait_for(world.running, 30)
        assert reason is not None and "enough" in reason
        end = world.master.end("c1")
        assert end.exit is not None and end.exit.code == 137

    virtually(scenario)


def test_a_kill_while_the_image_is_pulled_aborts_the_start() -> None:
    async def scenario(world: World) -> None:
        start(world, "pull 600s; run 600s")
        await asyncio.sleep(5)
        world.master.say(KillContainer(container_id="c1"))
        await world.until(lambda: ContainerState.TERMINATED in world.master.states("c1"), limit_s=5)
        end = world.master.end("c1")
        assert end.exit is not None and end.exit.failure is FailureKind.ABORTED

    virtually(scenario)


@pytest.mark.parametrize(
    ("script", "failure"),
    [
        ("refuse wrong processor", FailureKind.LAUNCH_REFUSED),
        ("fail no space", FailureKind.AGENT_ERROR),
        ("dance", FailureKind.LAUNCH_REFUSED),
    ],
)
def test_what_cannot_be_started_is_answered_with_the_reason(script: str, failure: FailureKind) -> None:
    async def scenario(world: World) -> None:
        start(world, script)
        await world.until(lambda: ContainerState.TERMINATED in world.master.states("c1"))
        end = world.master.end("c1")
        assert end.exit is not None and end.exit.failure is failure
        assert script.split(" ", 1)[-1] in end.exit.message

    virtually(scenario)


class OneNotice:
    """A source that has its notice at a given time."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s

    async def next(self) -> Notice:
        await asyncio.sleep(self._after_s)
        self._after_s = 10**9
        return Notice(kind=NoticeKind.INTERRUPTION, deadline=EPOCH, reason="taken back", at=EPOCH)


def test_a_notice_reaches_tasks_present_and_later_and_each_connection() -> None:
    async def scenario(world: World) -> None:
        runtime = world.runtime
        assert isinstance(runtime, ScriptedRuntime)
        start(world, "run 600s")
        await world.until(lambda: len(world.master.notices) == 1)
        start(world, "run 600s", "c2")
        await world.until(lambda: ContainerState.RUNNING in world.master.states("c2"))
        await asyncio.sleep(1)
        told = {name: [notice.reason for notice in runtime.task(name).notices] for name in ("c1", "c2")}
        assert told == {"c1": ["taken back"], "c2": ["taken back"]}
        world.master.cut()
        await world.until(lambda: len(world.master.notices) == 2)

    virtually(scenario, notices=OneNotice(30.0))


def test_a_broken_part_ends_the_agent_loudly() -> None:
    class Broken(ScriptedRuntime):
        async def kill(self, container_id: str, grace_s: float) -> None:
            raise RuntimeError("the disk is gone")

    async def scenario(world: World) -> None:
        start(world, "run 600s")
        await world.until(lambda: ContainerState.RUNNING in world.master.states("c1"))
        world.master.say(KillContainer(container_id="c1"))
        with pytest.raises(RuntimeError, match="disk is gone"):
            await asyncio.wait_for(world.running, 30)

    virtually(scenario, runtime=Broken())


def test_two_runs_of_one_scenario_are_the_same() -> None:
    def scenario() -> list[tuple[str, str]]:
        told: list[tuple[str, str]] = []

        async def scenario(world: World) -> None:
            for number in range(5):
                start(world, f"pull {number}s; log {number * 7} lines; run {50 - number}s; exit {number}", f"c{number}")
            await asyncio.sleep(20)
            world.master.cut()
            await world.until(lambda: not world.agent.state.containers)
            told.extend((str(report.at), f"{report.container_id} {report.state}") for report in world.master.reports)
            told.extend((str(line.at), line.log) for line in world.master.lines)

        virtually(scenario)
        return told

    assert scenario() == scenario()


# ------------------------------------------------------------------------------------------------------- lost devices


class Machine:
    """Looks at two devices, until told of a loss; `fault` is what the vendor's tool says instead of an answer."""

    def __init__(self) -> None:
        self.devices = (device(0), device(1))
        self.fault = ""
        self.looks = 0

    async def look(self) -> tuple[Device, ...]:
        self.looks += 1
        await asyncio.sleep(5)
        if self.fault:
            raise DetectionFailed(self.fault)
        return self.devices


def device(number: int) -> Device:
    return Device(index=number, kind=SlotKind.CUDA, brand="g", uuid=f"GPU-{number}")


def test_a_gpu_that_is_gone_after_a_cut_is_told_on_a_new_link_and_the_others_keep_their_numbers() -> None:
    machine = Machine()

    async def scenario(world: World) -> None:
        start(world, "run 600s")
        await world.until(lambda: world.master.states("c1") == EVENTS[:2])
        assert machine.looks == 0
        machine.devices = (replace(device(1), index=0),)  # the driver counts anew
        world.master.cut()
        await world.until(lambda: len(world.master.hellos) == 3)
        assert [hello.devices for hello in world.master.hellos] == [(device(0), device(1))] * 2 + [(device(1),)]
        await asyncio.sleep(60)
        assert (machine.looks, len(world.master.hellos), world.master.states("c1")) == (2, 3, EVENTS[:2])

    virtually(scenario, look_again=machine.look, devices=(device(0), device(1)))


def test_devices_that_cannot_be_listed_any_more_stay_what_they_were() -> None:
    machine = Machine()
    machine.fault = "the driver hangs"

    async def scenario(world: World) -> None:
        world.master.cut()
        await world.until(lambda: len(world.master.hellos) == 2)
        await asyncio.sleep(60)
        assert (machine.looks, len(world.master.hellos)) == (1, 2)
        assert world.agent.state.identity.devices == (device(0), device(1))

    virtually(scenario, look_again=machine.look, devices=(device(0), device(1)))
