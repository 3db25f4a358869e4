"""One seed, from its first moment to its result."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context

from resolute_master.store.memory import MemoryStore, MemoryTables
from resolute_sim.checks import Violation
from resolute_sim.fault_injection import FaultInjector, restore_order
from resolute_sim.fault_plan import FaultPlan, draw_fault_plan
from resolute_sim.loop import run_virtually
from resolute_sim.market import move_prices, with_moving_prices
from resolute_sim.master import SimulatedMaster
from resolute_sim.money import relent, with_money, with_time
from resolute_sim.workload import Submission, Workload, draw_workload
from resolute_sim.world import World

LOOK_S = 20.0
"""How often the world is looked at from outside."""

SETTLE_LIMIT_S = 4 * 3600.0
"""Calm time that everything has to settle in, besides the time that its work takes one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one world. `trace` is equal whenever the seed and the code are."""

    seed: int
    violations: tuple[Violation, ...]
    trace: str
    virtual_s: float
    commits: int
    masters: int
    machines: int
    steps: int
    replayed: int
    """Cycles of the journal that were run again; 0 when that was not asked for."""
    deadlines: int
    """Number of deadlines that were checked."""
    tally: Mapping[str, int]
    """How often what happened."""


def simulate_many(seeds: range, *, processes: int) -> Iterator[Outcome]:
    """The worlds of these seeds, in order, each with its replay; some in parallel."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_with_replay, seeds, chunksize=5)


def _with_replay(seed: int) -> Outcome:
    return simulate(seed, with_replay=True, deadlines=True)


def simulate(
    seed: int,
    *,
    tell: Callable[[str], None] | None = None,
    workload: Workload | None = None,
    fault_plan: FaultPlan | None = None,
    with_replay: bool = False,
    snapshot_every: int = 7,
    rules_every: int = 1,
    deadlines: bool = False,
    look: Callable[[MemoryTables], None] = lambda _tables: None,
) -> Outcome:
    """Run the world of this seed. `workload` and `fault_plan` replace what the seed would draw; with `deadlines` some worlds are
    given ones that can be kept (`money.with_time`). `look` is given what is stored at the end."""
    rng = random.Random(f"world {seed}")
    chosen_fault_plan = draw_fault_plan(rng)
    chosen_workload = with_money(rng, draw_workload(rng, within_s=chosen_fault_plan.faults_s))
    chosen_fault_plan = with_moving_prices(rng, chosen_fault_plan)
    if deadlines:
        chosen_workload = with_time(rng, chosen_workload)
    with quiet():
        return run_virtually(
            _lead(
                seed,
                workload or chosen_workload,
                fault_plan or chosen_fault_plan,
                tell,
                with_replay,
                snapshot_every=snapshot_every,
                rules_every=rules_every,
                look=look,
            )
        )


async def _lead(
    seed: int,
    workload: Workload,
    fault_plan: FaultPlan,
    tell: Callable[[str], None] | None,
    with_replay: bool,
    *,
    snapshot_every: int,
    rules_every: int,
    look: Callable[[MemoryTables], None],
) -> Outcome:
    world = World(
        seed=seed,
        workload=workload,
        fault_plan=fault_plan,
        tell=tell,
        snapshot_every=snapshot_every,
        rules_every=rules_every,
    )
    try:
        await _live(world)
        replayed = await _replay(world) if with_replay and not world.checks.broken else 0
        look(world.tables)
        return _outcome(seed, world, replayed)
    finally:
        await world.close()


async def _live(world: World) -> None:
    await world.start_master()
    world.spawn(world.watch_master())
    await world.set_up()
    world.boot_fixed_machines()
    submitting = [asyncio.create_task(_submit(world, each)) for each in world.workload.submissions]
    injector = FaultInjector(world)
    faults = [asyncio.create_task(injector.run(fault)) for fault in sorted(world.fault_plan.gaps)]
    faults.append(asyncio.create_task(move_prices(world)))
    await _pass(world, world.fault_plan.faults_s)
    for task in faults:
        task.cancel()
    await asyncio.gather(*faults, return_exceptions=True)
    if world.checks.broken:
        for task in submitting:
            task.cancel()
        return
    await asyncio.gather(*submitting)
    world.stop_faults()
    await restore_order(world)
    await _settle(world)


async def _submit(world: World, submission: Submission) -> None:
    await asyncio.sleep(submission.at_s)
    id_ = await world.submit(submission.command())
    world.submitted.append(id_)
    resources, data = submission.config["resources"], submission.config["data"]
    world.tell(f"user   submits experiment {id_}: {resources['slots_per_trial']} slot(s), {data}")


async def _pass(world: World, seconds: float) -> None:
    """Let time go by, unless a rule is broken."""
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end and not world.checks.broken:
        await asyncio.sleep(LOOK_S)
        await world.checks.look(MemoryStore(world.tables))
        if (failure := world.machine_failure()) is not None:
            world.violate("safety: the code does not fail", f"agent: {type(failure).__name__}: {failure}")


async def _settle(world: World) -> None:
    """Wait until nothing moves any more, then look at what it came to."""
    began = asyncio.get_running_loop().time()
    limit_s = SETTLE_LIMIT_S + world.workload.serial_work_s
    while not world.checks.broken:
        await relent(world)
        await _pass(world, LOOK_S)
        if _at_rest(world) is not None:
            await _pass(world, 2 * LOOK_S)  # what the agents have left to forget
            if (master := _at_rest(world)) is not None:  # the cloud may have announced the end of a machine meanwhile
                await world.checks.at_the_end(master.engine.memory, master.store)
                return
        passed_s = asyncio.get_running_loop().time() - began
        if passed_s > limit_s:
            if world.master is None:
                world.violate("liveness: everything settles", "the master did not come back")
            else:
                world.checks.not_settled(world.master.engine.memory, passed_s / 3600.0)
            return


def _at_rest(world: World) -> SimulatedMaster | None:
    """The master of a world in which nothing is in progress."""
    master = world.master
    rests = master is not None and not world.checks.unsettled(master.engine.memory) and not world.event_log.live
    return master if rests else None


async def _replay(world: World) -> int:
    found = await world.replayed()
    if found.divergence is not None:
        world.violate("replay: the journal replays with equal digests", f"{found.divergence}")
    return found.cycles


def _outcome(seed: int, world: World, replayed: int) -> Outcome:
    return Outcome(
        seed=seed,
        violations=tuple(world.checks.violations),
        trace=world.trace,
        virtual_s=asyncio.get_running_loop().time(),
        commits=world.checks.commits,
        masters=world.masters,
        machines=len(world.cloud.machines),
        steps=sum(entry.event == "step" for entry in world.event_log.entries),
        replayed=replayed,
        deadlines=world.checks.deadlines,
        tally=dict(sorted(world.tally.items())),
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Faults are what this is about: their log lines are noise, and formatting them is half the time."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
