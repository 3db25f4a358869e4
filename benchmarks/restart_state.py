"""A busy cluster, stored by the engine's commands, and the clients that reconnect to a master that starts from it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load import fill
from resolute.clock import SystemClock
from resolute.config import load_master_config
from resolute.ids import SystemIds
from resolute.wire.agent_link import (
    PROTOCOL_VERSION,
    AgentMessage,
    ContainerChanged,
    ContainerReport,
    Device,
    Exit,
    Hello,
)
from resolute.wire.states import ContainerState, SlotKind
from resolute_agent.link import encode_frame
from resolute_master.agents.credentials import digest_of
from resolute_master.api.auth.authenticate import Tokens
from resolute_master.app import open_store
from resolute_master.domain.allocation import Allocation, Container
from resolute_master.domain.commands import RegisterAgent, ReportContainer
from resolute_master.domain.ids import AgentId, PoolName
from resolute_master.domain.user import User
from resolute_master.engine.engine import Engine
from resolute_master.pools.policies import pool_policies
from resolute_master.seal import open_secrets

POOL = "default"
INCARNATION = "the one before"
AT_ONCE = 1000
"""Concurrent commands to the engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Returning:
    """The messages of one agent after it reconnects, and the requests of its tasks."""

    hello: str
    news: tuple[str, ...]
    """Messages after the welcome: ends of tasks while the master was down."""
    polls: tuple[str, ...]
    """For each running task the head of its preemption poll."""


async def store_cluster(config_file: Path, *, agents: int, slots: int, jobs: int, ended: int) -> tuple[Returning, ...]:
    """Every slot has a running task. `ended` tasks end while the master is down; they are the same ones in each run."""
    await fill(config_file, jobs)
    config = load_master_config(config_file, {}, {})
    clock = SystemClock()
    store = await open_store(config)
    engine = Engine(store=store, clock=clock, ids=SystemIds(), pools=pool_policies(config), version="bench")
    tokens = Tokens(
        signing_key=await (await open_secrets(store, config)).secret("token_key"), engine=engine, clock=clock
    )
    await engine.start()
    running = asyncio.create_task(engine.run())
    await _in_turn(engine, [_registration(number, slots) for number in range(agents)])
    wanted = min(jobs, agents * slots)
    with engine.watch("", "") as news:
        while sum(a.assigned_at is not None for a in engine.state.all(Allocation)) < wanted:
            await news.changed()
    placed = [a for a in engine.state.all(Allocation) if a.containers]
    reports = {c.id: _report(a, c, ContainerState.RUNNING, clock) for a in placed for c in a.containers}
    await _in_turn(
        engine,
        [
            ReportContainer(agent=c.agent, incarnation=INCARNATION, report=reports[c.id])
            for a in placed
            for c in a.containers
        ],
    )
    over = {a.id for a in random.Random(1).sample(placed, min(ended, len(placed)))}
    owner = engine.state.all(User)[0].id
    found = []
    for number in range(agents):
        here = engine.state.find(Allocation, "allocations_on_agent", _name(number))
        mine = [reports[c.id] for a in here for c in a.containers]
        ends = [_report(a, c, ContainerState.TERMINATED, clock) for a in here if a.id in over for c in a.containers]
        polls = [_poll(a, tokens.issue_allocation(a.id, owner)) for a in here if a.id not in over]
        found.append(
            Returning(
                hello=encode_frame(_hello(number, slots, mine)),
                news=tuple(encode_frame(ContainerChanged(report=end)) for end in ends),
                polls=tuple(polls),
            )
        )
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await store.close()
    return tuple(found)


async def _in_turn(engine: Engine, commands: Sequence[RegisterAgent | ReportContainer]) -> None:
    for begin in range(0, len(commands), AT_ONCE):
        await asyncio.gather(*(engine.submit(command) for command in commands[begin : begin + AT_ONCE]))


def _name(number: int) -> AgentId:
    return AgentId(f"agent-{number:05}")


def _address(agent: AgentId) -> str:
    """Each agent is a machine of its own: those with a loopback address would share the ports of one computer."""
    number = int(agent.removeprefix("agent-"))
    return f"10.0.{number // 256}.{number % 256}"


def _devices(number: int, slots: int) -> tuple[Device, ...]:
    return tuple(Device(index=i, kind=SlotKind.CUDA, brand="simulated", uuid=f"gpu-{number}-{i}") for i in range(slots))


def _credential(number: int) -> str:
    return f"{number:064x}"


def _registration(number: int, slots: int) -> RegisterAgent:
    return RegisterAgent(
        agent=_name(number),
        pool=PoolName(POOL),
        incarnation=INCARNATION,
        devices=_devices(number, slots),
        address=_address(_name(number)),
        version="bench",
        instance=None,
        reports=(),
        key=digest_of(_credential(number)),
    )


def _hello(number: int, slots: int, reports: Sequence[ContainerReport]) -> AgentMessage:
    return Hello(
        protocol=PROTOCOL_VERSION,
        version="bench",
        agent_id=_name(number),
        resource_pool=POOL,
        incarnation=INCARNATION,
        devices=_devices(number, slots),
        address=_address(_name(number)),
        credential=_credential(number),
        containers=tuple(reports),
    )


def _report(allocation: Allocation, container: Container, state: ContainerState, clock: SystemClock) -> ContainerReport:
    over = state is ContainerState.TERMINATED
    return ContainerReport(
        container_id=container.id,
        allocation_id=allocation.id,
        state=state,
        sequence=2 if over else 1,
        at=clock.now(),
        address=_address(container.agent),
        exit=Exit(code=0) if over else None,
    )


def _poll(allocation: Allocation, token: str) -> str:
    path = f"/api/v1/allocations/{allocation.id}/signals/preemption?timeoutSeconds=60"
    return f"GET {path} HTTP/1.1\r\nHost: master\r\nGrpc-Metadata-x-allocation-token: Bearer {token}\r\n\r\n"
