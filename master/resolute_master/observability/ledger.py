"""What paid slot-seconds were spent on, and how long saves hold training up."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime, timedelta

from prometheus_client import CollectorRegistry, Gauge, Histogram

from resolute.clock import Clock
from resolute.errors import ResoluteError
from resolute_master.api.reading.booked_runs import runs_on
from resolute_master.domain.change import Change
from resolute_master.domain.ids import AllocationId, InstanceId
from resolute_master.domain.instance import Instance
from resolute_master.domain.metrics import StepMark
from resolute_master.engine.engine import Engine
from resolute_master.lifecycle.cost import ACCOUNTS, Line, line_of_machine
from resolute_master.lifecycle.ledger import Books
from resolute_master.store.base import Store

log = logging.getLogger(__name__)

PERIOD_S = 30.0
"""Interval between reads of the ledger, which take some queries per machine."""

SHARE = 20
"""Between two looks passes at least this many times the time that the last one took: never more than a twentieth of the store."""

SETTLED_AFTER_S = 600.0
"""Time after a machine's end after which its booking is final: by then the next run has reported which steps were repeated."""

MOST_SETTLED = 10_000
"""Number of machines whose final booking is kept, so that it can be undone if one that counted as ended is found again."""

MOST_SAVING = 20_000
"""Allocations whose last mark is remembered."""


Amounts = dict[tuple[str, str], tuple[float, float]]
"""(pool, account) -> slot-seconds and price."""


class LedgerMetrics:
    """Sums over the machines that have lived since this master started; what was spent before is in `det ledger`.

    Gauges, not counters: a second that looked useful is lost when its step has to be done again.
    """

    def __init__(
        self, registry: CollectorRegistry, engine: Engine, store: Store, clock: Clock, *, remembered: int = MOST_SETTLED
    ) -> None:
        self._store = store
        self._clock = clock
        self._remembered = remembered
        self._forgotten = False
        """Some final bookings are not remembered any more."""
        self._machines: dict[InstanceId, Instance] = {i.id: i for i in engine.state.all(Instance)}
        self._settled: Amounts = {}
        """Sum over all machines whose booking is final."""
        self._settled_of: OrderedDict[InstanceId, Amounts] = OrderedDict()
        """Amounts of each of the latest of these machines."""
        self._seconds = Gauge(
            "resolute_ledger_slot_seconds",
            "Paid slot-seconds since the master started, by what they were spent on",
            ["pool", "account"],
            registry=registry,
        )
        self._price = Gauge(
            "resolute_ledger_price",
            "Price of paid slot-seconds since the master started, by what they were spent on",
            ["pool", "account"],
            registry=registry,
        )
        engine.on_commit(self.committed)

    def committed(self, change: Change) -> None:
        for entity in change.upserts:
            if not isinstance(entity, Instance):
                continue
            if self._may_be_settled(entity):
                continue
            final = self._settled_of.pop(entity.id, None)
            if final is not None:
                # It was found again, and is booked from its beginning once more.
                _add(self._settled, final, -1.0)
            if not entity.over or final is not None or entity.id in self._machines:
                self._machines[entity.id] = entity

    def _may_be_settled(self, machine: Instance) -> bool:
        """It was found again, and its final booking may be among those that were forgotten: rather what it has cost since then
        is missing than all of it is there twice."""
        known = machine.id in self._machines or machine.id in self._settled_of
        return self._forgotten and machine.found_again_at is not None and not known

    async def run(self) -> None:
        while True:
            begun = self._clock.monotonic()
            try:
                await self.look()
            except ResoluteError as error:
                log.warning("the ledger's metrics are not up to date: %s", error)
            await asyncio.sleep(max(PERIOD_S, SHARE * (self._clock.monotonic() - begun)))

    async def look(self) -> None:
        """Book what every machine has cost until now."""
        now = self._clock.now()
        paid = [machine for _, machine in sorted(self._machines.items()) if machine.paid_from is not None]
        runs = await runs_on(self._store, paid) if paid else ()
        totals, books = dict(self._settled), Books(runs)
        for machine in paid:
            amounts = _amounts(machine, line_of_machine(machine, books, now=now))
            _add(totals, amounts)
            # Not one that has changed while the books were read: it may have been found again.
            if _settled(machine, now) and self._machines.get(machine.id) is machine:
                _add(self._settled, amounts)
                self._settled_of[machine.id] = amounts
        for id_, machine in list(self._machines.items()):
            if _settled(machine, now) and (machine.paid_from is None or id_ in self._settled_of):
                del self._machines[id_]
        while len(self._settled_of) > self._remembered:
            self._settled_of.popitem(last=False)
            self._forgotten = True
        for labels, (seconds, price) in totals.items():
            self._seconds.labels(*labels).set(seconds)
            self._price.labels(*labels).set(price)


def _settled(machine: Instance, now: datetime) -> bool:
    ended = machine.paid_until or machine.stopped_at or machine.requested_at
    return machine.over and now - ended > timedelta(seconds=SETTLED_AFTER_S)


def _amounts(machine: Instance, line: Line) -> Amounts:
    booking, costs = line.booking, line.costs
    return {(machine.pool, account): (getattr(booking, f"{account}_s"), costs[account]) for account in ACCOUNTS}


def _add(totals: Amounts, amounts: Amounts, sign: float = 1.0) -> None:
    for key, (more_s, more_price) in amounts.items():
        seconds, price = totals.get(key, (0.0, 0.0))
        totals[key] = (seconds + sign * more_s, price + sign * more_price)


class SaveMetrics:
    """How long each save of a checkpoint blocked its training: marks contain the sum so far, so two of them give one save."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._last: OrderedDict[AllocationId, float] = OrderedDict()
        self._seconds = Histogram(
            "resolute_checkpoint_save_seconds",
            "Time that a save blocked the step loop",
            buckets=(0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0),
            registry=registry,
        )

    def marked(self, marks: Sequence[StepMark]) -> None:
        for mark in marks:
            last = self._last.get(mark.allocation_id)
            if last is not None and mark.checkpointing_s <= last:
                continue
            if mark.checkpointing_s > (last or 0.0):
                self._seconds.observe(mark.checkpointing_s - (last or 0.0))
            self._last[mark.allocation_id] = mark.checkpointing_s
            self._last.move_to_end(mark.allocation_id)
            if len(self._last) > MOST_SAVING:
                self._last.popitem(last=False)
