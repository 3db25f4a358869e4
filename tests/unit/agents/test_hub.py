"""The master's end of the agent link: who may join, who is told what, and what one agent can do to the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from resolute.clock import FixedClock, LoopClock
from resolute.wire.agent_link import (
    LOG_BATCH_LINES,
    LOG_BATCHES_IN_FLIGHT,
    Acknowledged,
    AgentMessage,
    ContainerChanged,
    ContainerReport,
    ContainerSpec,
    Exit,
    Heartbeat,
    HeartbeatAnswer,
    Hello,
    KillContainer,
    LogBatch,
    LogLine,
    LogsStored,
    Notice,
    Refused,
    StartContainer,
    Welcome,
)
from resolute.wire.states import ContainerState, NoticeKind
from resolute_master.agents.credentials import digest_of
from resolute_master.agents.hub import ORDERS_AT_ONCE, AgentHub
from resolute_master.agents.session import HELLO_S, SILENT_HEARTBEATS
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.commands import KillExperiment, RecordReports
from resolute_master.domain.ids import AgentId, AllocationId, TaskId
from resolute_master.engine.engine import Engine
from resolute_master.store.base import LogQuery
from resolute_master.store.memory import MemoryStore
from support.agent_virtual import run_virtually
from support.cluster import T0, device
from support.engines import AgentByHand, a_user, an_engine, an_experiment, running
from support.hubs import JOIN_TOKEN, a_hello, a_hub, credential_of
from support.wires import Wire

SECRET = "a-token-that-nobody-may-keep"
FOREIGN = (TaskId("1.x"), TaskId("another"), TaskId("\ufdd0"))


@dataclass
class Master:
    engine: Engine
    store: MemoryStore
    hub: AgentHub

    def connect(self) -> tuple[Wire, asyncio.Task[None]]:
        wire = Wire()
        return wire, asyncio.create_task(self.hub.serve(wire))

    async def joined(self, hello: Hello) -> tuple[Wire, asyncio.Task[None]]:
        wire, serving = self.connect()
        wire.say(hello)
        await wire.hear(Welcome)
        return wire, serving

    async def until(self, what: Callable[[], bool]) -> None:
        with self.engine.watch("", "") as watch:
            while not what():
                assert await watch.changed(10.0)

    def agent(self, name: str = "agent-1") -> Agent | None:
        return self.engine.state.get(Agent, AgentId(name))


@asynccontextmanager
async def a_master(store: MemoryStore | None = None, *, virtual: bool = False) -> AsyncIterator[Master]:
    store = store or MemoryStore()
    clock = LoopClock(T0, asyncio.get_running_loop()) if virtual else FixedClock(T0)
    async with (
        running(an_engine(store, clock=clock)) as engine,
        a_hub(engine, store, clock, token=SECRET) as hub,
    ):
        yield Master(engine, store, hub)


def changed(container: str, state: ContainerState, sequence: int, exit_: Exit | None = None) -> ContainerChanged:
    report = ContainerReport(
        container_id=container, allocation_id="", state=state, sequence=sequence, at=T0, exit=exit_
    )
    return ContainerChanged(report=report)


# ------------------------------------------------------------------------------------------------------- admission


@pytest.mark.parametrize(
    ("message", "reason", "final"),
    [
        (Heartbeat(at=T0), "expected Hello, got Heartbeat", True),
        (a_hello(protocol=99), "protocol 99", True),
        (a_hello(resource_pool="gpus"), "'gpus' is none of default", True),
        (a_hello(join_token="wrong"), "join_token", True),
        (a_hello(join_token="falsch-ä"), "join_token", True),
        (a_hello(instance_id="i-1", join_token="guessed"), "join_token", True),
    ],
)
async def test_whoever_cannot_be_taken_in_is_told_why(message: AgentMessage, reason: str, final: bool) -> None:
    async with a_master() as master:
        wire, serving = master.connect()
        wire.say(message)
        refused = await wire.hear(Refused)
        await serving
        assert reason in refused.reason and refused.final is final
        assert wire.closed.is_set()
        assert master.engine.state.all(Agent) == ()


async def test_a_machine_with_its_own_token_that_nobody_asked_for_is_to_end_itself() -> None:
    async with a_master() as master:
        wire, serving = master.connect()
        wire.say(a_hello("i-9", instance_id="i-9", join_token=master.hub.join_token("i-9")))
        refused = await wire.hear(Refused)
        await serving
        assert refused.final and "instance 'i-9' not found" in refused.reason


async def test_a_stranger_cannot_take_the_name_of_an_agent_that_is_connected() -> None:
    async with a_master() as master:
        await master.joined(a_hello())
        stranger, serving = master.connect()
        stranger.say(a_hello(incarnation="other"))
        refused = await stranger.hear(Refused)
        await serving
        assert not refused.final and "connected already" in refused.reason
        agent = master.agent()
        assert agent is not None and agent.connected and agent.incarnation == "first"


async def test_of_two_strangers_that_come_at_once_one_is_refused() -> None:
    async with a_master() as master:
        one, _ = master.connect()
        two, _ = master.connect()
        one.say(a_hello(incarnation="one"))
        two.say(a_hello(incarnation="two"))
        await one.hear(Welcome)
        await two.hear(Refused)
        agent = master.agent()
        assert agent is not None and agent.incarnation == "one"


async def test_an_agent_that_connects_twice_at_once_is_served_on_the_later_link() -> None:
    async with a_master() as master:
        one, serving_one = master.connect()
        two, _ = master.connect()
        one.say(a_hello())
        two.say(a_hello())
        await two.hear(Welcome)
        await serving_one
        assert one.closed.is_set() and not two.closed.is_set()
        await an_experiment(master.engine, await a_user(master.engine))
        await two.hear(StartContainer)
        agent = master.agent()
        assert agent is not None and agent.connected


async def test_an_agent_may_replace_its_own_half_dead_link_and_stays_connected() -> None:
    async with a_master() as master:
        old, serving_old = await master.joined(a_hello())
        new, serving_new = await master.joined(a_hello())
        await serving_old
        assert old.closed.is_set()
        await a_user(master.engine)
        agent = master.agent()
        assert agent is not None and agent.connected
        new.hang_up()
        await serving_new
        agent = master.agent()
        assert agent is not None and not agent.connected


async def test_a_refused_return_of_a_machine_leaves_it_disconnected() -> None:
    async with a_master() as master:
        _, serving = await master.joined(a_hello())
        again, serving_again = master.connect()
        again.say(a_hello(instance_id="i-9", join_token=master.hub.join_token("i-9"), incarnation="second"))
        assert (await again.hear(Refused)).final
        await serving_again
        await serving
        agent = master.agent()
        assert agent is not None and not agent.connected


def test_a_connection_that_does_not_say_who_it_is_is_closed() -> None:
    async def scenario() -> None:
        async with a_master(virtual=True) as master:
            loop = asyncio.get_running_loop()
            began = loop.time()
            wire, serving = master.connect()
            await serving
            assert wire.closed.is_set() and loop.time() - began == HELLO_S

    run_virtually(scenario())


def test_a_silent_agent_is_disconnected_and_a_speaking_one_is_answered() -> None:
    async def scenario() -> None:
        async with a_master(virtual=True) as master:
            wire, serving = await master.joined(a_hello())
            for _ in range(3 * SILENT_HEARTBEATS):
                await asyncio.sleep(5.0)
                wire.say(Heartbeat(at=T0))
                await wire.hear(HeartbeatAnswer)
            await serving
            agent = master.agent()
            assert agent is not None and not agent.connected

    run_virtually(scenario())


async def test_a_master_that_stops_closes_every_link_and_takes_no_new_one() -> None:
    async with a_master() as master:
        links = [await master.joined(a_hello(f"agent-{n}")) for n in range(3)]
        await master.hub.close()
        await asyncio.gather(*(serving for _, serving in links))
        assert all(wire.closed.is_set() for wire, _ in links)
        late, serving = master.connect()
        late.say(a_hello("agent-9"))
        assert not (await late.hear(Refused)).final
        await serving


# ---------------------------------------------------------------------------------------------------------- orders


async def test_orders_follow_the_commit_and_are_repeated_after_a_return_until_they_are_obeyed() -> None:
    async with a_master() as master:
        wire, serving = await master.joined(a_hello())
        await an_experiment(master.engine, await a_user(master.engine))
        first = (await wire.hear(StartContainer)).spec.container_id
        wire.hang_up()
        await serving
        wire, serving = master.connect()
        wire.say(a_hello())
        assert (await wire.hear(Welcome)).expected == (first,)
        assert (await wire.hear(StartContainer)).spec.container_id == first
        wire.say(changed(first, ContainerState.RUNNING, 1))
        assert (await wire.hear(Acknowledged)).sequence == 1
        wire.hang_up()
        await serving
        report = changed(first, ContainerState.RUNNING, 2).report
        wire, _ = master.connect()
        wire.say(a_hello(containers=(report,)))
        assert (await wire.hear(Welcome)).expected == (first,)
        await wire.hear(Acknowledged)
        await master.engine.submit(KillExperiment(experiment=1))  # type: ignore[arg-type]
        assert (await wire.hear(KillContainer)).container_id == first


async def test_an_agent_that_takes_nothing_does_not_hold_up_the_others() -> None:
    async with a_master() as master:
        slow, _ = await master.joined(a_hello("agent-1", devices=(device(0),)))
        quick, _ = await master.joined(a_hello("agent-2", devices=(device(0),)))
        slow.stuck = True
        owner = await a_user(master.engine)
        for _ in range(2):
            await an_experiment(master.engine, owner)
        await quick.hear(StartContainer)
        quick.say(Heartbeat(at=T0))
        await quick.hear(HeartbeatAnswer)


async def test_a_container_that_has_ended_meanwhile_is_not_started_any_more() -> None:
    async with a_master() as master:
        owner = await a_user(master.engine)
        hand = AgentByHand(master.engine)
        await hand.register()
        id_ = await an_experiment(master.engine, owner)
        (container,) = hand.containers()
        await master.engine.submit(KillExperiment(experiment=id_))
        await hand.report(container, ContainerState.TERMINATED, Exit(code=137))
        wire, _ = master.connect()
        wire.say(a_hello())
        assert (await wire.hear(Welcome)).expected == ()
        wire.say(Heartbeat(at=T0))
        await wire.hear(HeartbeatAnswer)


# --------------------------------------------------------------------------------------------------------- reports


async def test_a_report_is_acknowledged_when_it_is_stored() -> None:
    async with a_master() as master:
        wire, _ = await master.joined(a_hello())
        await an_experiment(master.engine, await a_user(master.engine))
        container = (await wire.hear(StartContainer)).spec.container_id
        wire.say(changed(container, ContainerState.TERMINATED, 7, Exit(code=0)))
        assert (await wire.hear(Acknowledged)).sequence == 7
        (row,) = await master.store.allocations_of_task(TaskId(f"1.{(await a_trial(master)).request_id}"))
        assert row.ended


async def a_trial(master: Master) -> Any:
    return await master.store.trial(1)  # type: ignore[arg-type]


async def test_a_notice_reaches_the_rules() -> None:
    async with a_master() as master:
        wire, _ = await master.joined(a_hello())
        wire.say(Notice(kind=NoticeKind.INTERRUPTION, deadline=None, reason="spot", at=T0))
        await master.until(lambda: getattr(master.agent(), "leaving", False))


def a_batch(number: int, *offsets: int, of: ContainerSpec | None = None, **changes: str) -> LogBatch:
    names = {"task_id": "1.x", "allocation_id": "1.x.1", "container_id": "c1"}
    if of is not None:
        names = {name: getattr(of, name) for name in names}
    lines = tuple(
        LogLine(
            **{**names, **changes},
            stdtype="stdout",
            offset=offset,
            at=T0,
            log=f"line at {offset}\n",
        )
        for offset in offsets
    )
    return LogBatch(batch=number, lines=lines)


async def test_lines_are_stored_in_order_and_once_however_often_they_come() -> None:
    async with a_master() as master:
        wire, serving = await master.joined(a_hello())
        await an_experiment(master.engine, await a_user(master.engine))
        spec = (await wire.hear(StartContainer)).spec
        for number in range(4):
            wire.say(a_batch(number, *range(number * 10, number * 10 + 10), of=spec))
        assert [(await wire.hear(LogsStored)).batch for _ in range(4)] == [0, 1, 2, 3]
        wire.hang_up()
        await serving
        wire, _ = await master.joined(a_hello())
        wire.say(a_batch(0, *range(30, 50), of=spec))
        await stored(wire)
        assert await lines_of_agents(master, spec) == [f"line at {offset}\n" for offset in range(50)]


async def stored(wire: Wire) -> int:
    """The number of the next batch that is stored, whatever else is said before."""
    while not isinstance(said := await wire.hear(Any), LogsStored):
        pass
    return said.batch


async def lines_of_agents(master: Master, spec: ContainerSpec) -> list[str]:
    lines = await master.store.logs(LogQuery(task_ids=(TaskId(spec.task_id),)))
    return [line.log for line in lines if line.source == "task"]


async def test_an_agent_writes_only_into_logs_of_tasks_that_it_runs() -> None:
    async with a_master() as master:
        wire, _ = await master.joined(a_hello(devices=(device(0),)))
        await an_experiment(master.engine, await a_user(master.engine))
        spec = (await wire.hear(StartContainer)).spec
        other, _ = await master.joined(a_hello("agent-2"))
        forged = [
            a_batch(1, 0, of=spec),
            a_batch(2, 0, of=spec, container_id="c1"),
            a_batch(3, 0),
            a_batch(4, 0, allocation_id="\x00", task_id="\ufdd0"),
        ]
        for batch in forged:
            other.say(batch)
        wire.say(a_batch(5, 7, of=spec, task_id="another"))
        assert {await stored(other) for _ in forged} == {1, 2, 3, 4}  # it would send them for ever
        assert await stored(wire) == 5
        assert {line.log for line in await master.store.logs(LogQuery(task_ids=FOREIGN))} == set()
        assert await lines_of_agents(master, spec) == []
        wire.say(a_batch(6, 7, of=spec))
        await stored(wire)
        assert await lines_of_agents(master, spec) == ["line at 7\n"]


async def test_lines_of_a_run_that_is_over_and_no_longer_in_memory_are_stored() -> None:
    """An agent that was away sends them when it is back."""
    async with a_master() as master:
        wire, _ = await master.joined(a_hello())
        experiment = await an_experiment(master.engine, await a_user(master.engine))
        spec = (await wire.hear(StartContainer)).spec
        await master.engine.submit(KillExperiment(experiment=experiment))
        await wire.hear(KillContainer)
        wire.say(changed(spec.container_id, ContainerState.TERMINATED, 1, Exit(code=137)))
        await master.until(lambda: master.engine.state.get(Allocation, AllocationId(spec.allocation_id)) is None)
        wire.say(a_batch(1, 0, of=spec))
        await stored(wire)
        assert await lines_of_agents(master, spec) == ["line at 0\n"]


def test_an_agent_that_does_not_keep_to_its_batches_begins_anew() -> None:
    async def scenario() -> None:
        async with a_master(virtual=True) as master:
            for batches in (
                [a_batch(number, number) for number in range(LOG_BATCHES_IN_FLIGHT + 1)],
                [a_batch(9, *range(LOG_BATCH_LINES + 1))],
            ):
                wire, serving = await master.joined(a_hello())
                for batch in batches:
                    wire.say(batch)
                await serving
                # For what it sent, and not because it was silent for a while.
                assert wire.closed.is_set() and asyncio.get_running_loop().time() == 0.0
            wire, _ = await master.joined(a_hello())
            wire.say(a_batch(0, *range(LOG_BATCH_LINES)))
            assert (await wire.hear(LogsStored)).batch == 0

    run_virtually(scenario())


async def test_an_outdated_link_ends_and_changes_nothing() -> None:
    async with a_master() as master:
        wire, serving = await master.joined(a_hello())
        await an_experiment(master.engine, await a_user(master.engine))
        container = (await wire.hear(StartContainer)).spec.container_id
        await AgentByHand(master.engine, incarnation="second", key=digest_of(credential_of("agent-1"))).register()
        wire.say(changed(container, ContainerState.TERMINATED, 1, Exit(code=0)))
        await serving
        (allocation,) = master.engine.state.all(Allocation)
        assert not allocation.ended
        agent = master.agent()
        assert agent is not None and agent.connected


# --------------------------------------------------------------------------------------------------------- secrets


async def test_what_a_task_proves_itself_with_is_sent_and_never_stored() -> None:
    async with a_master() as master:
        wire, _ = await master.joined(a_hello())
        await an_experiment(master.engine, await a_user(master.engine))
        spec = (await wire.hear(StartContainer)).spec
        assert spec.environment["DET_SESSION_TOKEN"] == SECRET
        await master.engine.submit(RecordReports(reports=()))
        tables = master.store.tables
        kept = [entry.commands + entry.adopted for entry in tables.journal.values()]
        kept += [row for rows in tables.entities.values() for row in rows.values()]
        kept += [*tables.outbox.values(), *(snapshot.body for snapshot in tables.snapshots.values())]
        for secret in (SECRET, JOIN_TOKEN, credential_of("agent-1")):
            assert not any(secret.encode() in row for row in kept)


async def test_orders_of_one_cycle_leave_in_the_order_of_the_commits_and_let_others_work_between() -> None:
    async with a_master() as master:
        owner = await a_user(master.engine)
        wires = [
            (await master.joined(a_hello(f"agent-{n}", devices=tuple(map(device, range(8))))))[0] for n in range(4)
        ]
        others = 0

        async def work() -> None:
            nonlocal others
            while True:
                await asyncio.sleep(0)
                others += 1

        working = asyncio.create_task(work())
        ids = await asyncio.gather(*(an_experiment(master.engine, owner) for _ in range(32)))
        await asyncio.gather(*(master.engine.submit(KillExperiment(experiment=id_)) for id_ in ids))
        for wire in wires:
            orders = [await wire.hear(Any) for _ in range(16)]
            started = [o.spec.container_id for o in orders if isinstance(o, StartContainer)]
            killed = [o.container_id for o in orders if isinstance(o, KillContainer)]
            assert sorted(started) == sorted(killed) and len(started) == 8
            assert all(
                orders.index(next(o for o in orders if isinstance(o, StartContainer) and o.spec.container_id == id_))
                < orders.index(next(o for o in orders if isinstance(o, KillContainer) and o.container_id == id_))
                for id_ in started
            )
        assert others >= 32 / ORDERS_AT_ONCE
        working.cancel()
