"""The queue, slots, agents and machines at the moment of a query by Prometheus: read from the committed state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

from resolute.clock import Clock
from resolute_master.domain.agent import Agent, Slot
from resolute_master.domain.change import Entity
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import PoolName
from resolute_master.domain.instance import Instance
from resolute_master.engine.engine import Engine
from resolute_master.event_loop import yielding
from resolute_master.scheduler.snapshot import PoolSnapshot
from resolute_provisioner.model import Intent, Observed

SLOT_STATES = ("free", "used", "draining", "disabled", "disconnected")
AGENT_STATES = ("connected", "draining", "disabled", "leaving", "disconnected")
MACHINE_STATES = ("launching", "booting", "idle", "busy", "leaving", "stopping", "unreachable")

Tally = Counter[tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The state at one moment, frozen: it may be counted in any thread."""

    at: datetime
    pools: tuple[PoolSnapshot, ...]
    tables: tuple[tuple[str, list[Entity]], ...]
    orders: int


class StateMetrics(Collector):
    """Pools of the configuration and the states above are always shown, with 0 if empty: so an alert can distinguish empty from
    missing."""

    def __init__(self, registry: CollectorRegistry, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._seen: Seen | None = None
        registry.register(self)

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Nothing is read when the collector is registered."""
        return ()

    def look(self) -> None:
        """Take hold of the state as it is now; in the engine's thread, which the counting would hold up."""
        engine = self._engine
        self._seen = Seen(
            at=self._clock.now(),
            pools=tuple(engine.snapshot(PoolName(pool)) for pool in sorted(engine.pools)),
            tables=engine.state.tables(),
            orders=len(engine.state.outbox),
        )

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """What was seen at the last look, counted."""
        seen = self._seen
        if seen is None:
            return
        pools = [snapshot.policy.name for snapshot in seen.pools]
        allocations, slots, agents = Counter[tuple[str, ...]](), _zeros(pools, SLOT_STATES), _zeros(pools, AGENT_STATES)
        queued_slots, oldest = _zeros(pools), _none(pools)
        for snapshot in seen.pools:
            _add_queue(snapshot, allocations, queued_slots, oldest, seen.at)
            _add_agents(snapshot, slots, agents)
        machines, prices = _zeros(pools, MACHINE_STATES), _none(pools)
        experiments: Tally = Counter()
        tables = chain.from_iterable(table for kind, table in seen.tables if kind in ("instance", "experiment"))
        for entity in yielding(tables):
            if isinstance(entity, Experiment):
                experiments[(entity.state.value,)] += 1
            elif isinstance(entity, Instance):
                _add_machine(entity, machines, prices)
        yield _family("resolute_experiments", "Experiments that are not over", ("state",), experiments)
        yield _family("resolute_allocations", "Allocations that have not ended", ("pool", "state"), allocations)
        yield _family("resolute_queue_slots", "Slots that waiting allocations need", ("pool",), queued_slots)
        yield _family(
            "resolute_queue_oldest_seconds", "How long the oldest waiting allocation has waited", ("pool",), oldest
        )
        yield _family("resolute_slots", "Slots of the agents", ("pool", "state"), slots)
        yield _family("resolute_agents", "Agents by pool and state", ("pool", "state"), agents)
        yield _family("resolute_machines", "Machines of elastic pools that are not over", ("pool", "state"), machines)
        yield _family("resolute_machines_price_per_hour", "Price of the machines that are paid for", ("pool",), prices)
        yield _family("resolute_outbox_effects", "Orders that agents have not carried out yet", (), {(): seen.orders})


def _zeros(pools: Iterable[str], states: Iterable[str] | None = None) -> Tally:
    return Counter(
        {(pool, state): 0 for pool in pools for state in states} if states else {(pool,): 0 for pool in pools}
    )


def _none(pools: Iterable[str]) -> dict[tuple[str, ...], float]:
    return {(pool,): 0.0 for pool in pools}


def _family(
    name: str, text: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric(key, value)
    return family


def _add_queue(
    snapshot: PoolSnapshot, allocations: Tally, queued: Tally, oldest: dict[tuple[str, ...], float], now: datetime
) -> None:
    pool = snapshot.policy.name
    first: datetime | None = None
    for allocation in yielding(snapshot.allocations.values()):
        allocations[(pool, allocation.state.value)] += 1
    for allocation in yielding(snapshot.pending()):
        queued[(pool,)] += allocation.slots_needed
        first = allocation.requested_at if first is None else min(first, allocation.requested_at)
    if first is not None:
        oldest[(pool,)] = max(0.0, (now - first).total_seconds())


def _add_machine(instance: Instance, machines: Tally, prices: dict[tuple[str, ...], float]) -> None:
    machines[(instance.pool, machine_state(instance))] += 1
    if instance.paid_from is not None and instance.paid_until is None:
        prices[(instance.pool,)] = prices.get((instance.pool,), 0.0) + (instance.price_per_hour or 0.0)


def _add_agents(snapshot: PoolSnapshot, slots: Tally, agents: Tally) -> None:
    pool = snapshot.policy.name
    for agent in yielding(snapshot.agents.values()):
        agents[(pool, agent_state(agent))] += 1
        used = {index for _, occupant in snapshot.occupancy.get(agent.id) or () for index in occupant.slots}
        for slot in agent.slots:
            slots[(pool, slot_state(agent, slot, slot.index in used))] += 1


def agent_state(agent: Agent) -> str:
    if not agent.connected:
        return "disconnected"
    if agent.leaving:
        return "leaving"
    if agent.draining:
        return "draining"
    return "connected" if agent.enabled else "disabled"


def slot_state(agent: Agent, slot: Slot, used: bool) -> str:
    """`draining` still runs work and accepts no new work; a used slot of a lost link counts as used."""
    barred = agent.draining or slot.draining or not (agent.enabled and slot.enabled)
    if used:
        return "draining" if barred else "used"
    if not agent.connected:
        return "disconnected"
    return "disabled" if barred or agent.leaving else "free"


def machine_state(instance: Instance) -> str:
    """The state of a machine, in one word."""
    if instance.intent is Intent.STOP:
        return "stopping"
    if instance.unreachable_since is not None:
        return "unreachable"
    if instance.joined_at is None:
        return "launching" if instance.observed is Observed.UNKNOWN else "booting"
    if instance.notice is not None or instance.draining_since is not None:
        return "leaving"
    return "idle" if instance.idle_since is not None else "busy"
