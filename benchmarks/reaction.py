"""Latency of the response to a notice or a refusal, through the whole engine and a database, from the command to its commit.

Each machine of an elastic pool of `MACHINES` spot machines runs a task. `ROUNDS` of them report a notice in turn: the response is
the commit that preempts the task and requests the replacement. Then the same number of launches is refused: the response is the
commit that requests a machine of the next offer. The provisioner acts on committed requests only. For comparison: a command of the
same engine that needs no decision.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from benchmarks.report import Row, Spread, Target
from resolute.clock import SystemClock
from resolute.wire.states import ContainerState, NoticeKind
from resolute_master.domain.account import Limits
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.change import Change
from resolute_master.domain.commands import Command, CreateUser, Reconsider, RecordRefusal, ReportNotice
from resolute_master.domain.ids import AgentId, UserId
from resolute_master.domain.instance import Instance
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine.engine import Engine
from resolute_master.garbage import collecting, survivors_frozen
from resolute_master.store.base import Store
from resolute_master.store.sql import open_store, sqlite_url
from resolute_provisioner.model import Market, Offer, PoolScaling, RefusalKind
from support.engines import DEFAULT, AgentByHand, a_config, a_user, an_engine, an_experiment, joined, launched, running
from support.postgres import find_programs, postgres_server

MACHINES = 500
ROUNDS = 40
NOTICE_MS, REFUSAL_MS = 100.0, 1_000.0
FIRM = Offer(offer_id="firm", instance_type="t", zone="z", market=Market.ON_DEMAND, slots=1, price_per_hour=1.0)
ZONES = tuple(
    replace(
        FIRM,
        offer_id=f"spot-{number:02}",
        zone=f"zone-{number:02}",
        market=Market.SPOT,
        price_per_hour=0.3 + 0.01 * number,
    )
    for number in range(ROUNDS + 10)
)
"""A refused offer is skipped for a while, so each round uses the next one."""
SCALING = PoolScaling(pool=DEFAULT, offers=(*ZONES, FIRM), max_instances=2 * MACHINES)
POOLS = {DEFAULT: PoolPolicy(name=DEFAULT, scaling=SCALING, budget=Limits(per_day=1e6))}
"""The budget is never exhausted, but each decision evaluates it."""


def main() -> list[Row]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        urls = {"SQLite": sqlite_url(directory / "reaction.db")}
        if find_programs() is not None:
            server = stack.enter_context(postgres_server())
            urls["PostgreSQL"] = server.url(server.new_database())
        return [row for name, url in urls.items() for row in asyncio.run(_on(name, url))]


async def _on(name: str, url: str) -> list[Row]:
    store = await open_store(url)
    try:
        return await _measured(name, store)
    finally:
        await store.close()


async def _measured(name: str, store: Store) -> list[Row]:
    with survivors_frozen():  # as in a master
        collector = asyncio.create_task(collecting())
        try:
            return await _rounds(name, store)
        finally:
            collector.cancel()


async def _rounds(name: str, store: Store) -> list[Row]:
    async with running(an_engine(store, pools=POOLS)) as engine:
        owner = await a_user(engine)
        busy = await _grown(engine, owner)
        plain = [await _timed(engine, CreateUser(username=f"user-{n}", password_hash="hash")) for n in range(ROUNDS)]
        notices = [await _noticed(engine, agent) for agent in busy[:ROUNDS]]
        refusals = [await _refused(engine, owner) for _ in range(ROUNDS)]
    return [
        _row(f"{name}: replacement requested after a notice", notices, plain, NOTICE_MS),
        _row(f"{name}: next offer requested after a refusal", refusals, plain, REFUSAL_MS),
    ]


def _row(name: str, found: list[float], plain: list[float], limit_ms: float) -> Row:
    return Row(
        name=f"{name}, {MACHINES} machines",
        subject=Spread.of(found, "ms"),
        bound_name="a command without a decision",
        bound=Spread.of(plain, "ms"),
        result=max(found),
        unit="ms at most",
        target=Target(at_most=limit_ms),
    )


async def _grown(engine: Engine, owner: UserId) -> list[AgentId]:
    """Every machine with its running task."""
    await asyncio.gather(*(an_experiment(engine, owner, a_config()) for _ in range(MACHINES)))
    agents = await asyncio.gather(*(_boots(engine, machine) for machine in _asked_for(engine)))
    await _all_placed(engine)
    for agent in agents:
        placed = agent.containers()
        assert len(placed) == 1, "each machine came for one task"
        await agent.report(placed[0], ContainerState.RUNNING)
    return [agent.id for agent in agents]


async def _all_placed(engine: Engine) -> None:
    """Largest number of launches in one cycle."""
    placed = asyncio.Event()

    def look(_: Change) -> None:
        if all(allocation.containers for allocation in engine.state.all(Allocation)):
            placed.set()

    engine.on_commit(look)
    await engine.submit(Reconsider())
    await placed.wait()


async def _boots(engine: Engine, machine: Instance) -> AgentByHand:
    await launched(engine, machine, SystemClock().now())
    return await joined(engine, machine)


def _asked_for(engine: Engine) -> list[Instance]:
    """Requested machines that the cloud has not confirmed yet."""
    return [machine for machine in engine.state.all(Instance) if not machine.over and not machine.provider_id]


async def _noticed(engine: Engine, agent: AgentId) -> float:
    before, deadline = len(_asked_for(engine)), SystemClock().now() + timedelta(seconds=120)
    notice = ReportNotice(
        agent=agent, incarnation="first", kind=NoticeKind.INTERRUPTION, deadline=deadline, reason="taken back"
    )
    milliseconds = await _timed(engine, notice)
    (displaced,) = engine.state.find(Allocation, "allocations_on_agent", agent)
    assert displaced.leaving, "the task is asked to save"
    assert len(_asked_for(engine)) == before + 1, "the replacement is asked for"
    return milliseconds


async def _refused(engine: Engine, owner: UserId) -> float:
    """The cloud refuses the machine for a new task."""
    known = {machine.id for machine in _asked_for(engine)}
    await an_experiment(engine, owner, a_config())
    (first,) = [machine for machine in _asked_for(engine) if machine.id not in known]
    known.add(first.id)
    refusal = RecordRefusal(instance=first.id, kind=RefusalKind.NO_CAPACITY, message="none left")
    milliseconds = await _timed(engine, refusal)
    (second,) = [machine for machine in _asked_for(engine) if machine.id not in known]
    assert second.offer_id != first.offer_id, "another offer is asked for"
    return milliseconds


async def _timed(engine: Engine, command: Command) -> float:
    """Milliseconds until the command and its decisions are committed."""
    begun = time.perf_counter()
    await engine.submit(command)
    return 1e3 * (time.perf_counter() - begun)
