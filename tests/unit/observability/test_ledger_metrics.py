"""Slot-seconds by account, and how long saves take."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from prometheus_client import CollectorRegistry

from resolute.clock import FixedClock
from resolute.wire.states import AllocationState
from resolute_master.api.reading.booked_runs import runs_on
from resolute_master.domain.allocation import Allocation, AllocationExit
from resolute_master.domain.change import Change, JournalEntry
from resolute_master.domain.ids import AgentId, AllocationId, InstanceId
from resolute_master.domain.instance import Instance
from resolute_master.domain.metrics import StepMark
from resolute_master.lifecycle.cost import ACCOUNTS, line_of_machine
from resolute_master.lifecycle.ledger import Books
from resolute_master.observability.ledger import SETTLED_AFTER_S, LedgerMetrics, SaveMetrics
from resolute_master.store.memory import MemoryStore
from resolute_provisioner.model import Observed
from support.cluster import a_running_allocation, at
from support.engines import DEFAULT, an_engine
from support.stores import a_report


def a_machine(name: str = "m", **changes: object) -> Instance:
    machine = Instance(
        id=InstanceId(name),
        pool=DEFAULT,
        token=name,
        offer_id="offer",
        slots=2,
        price_per_hour=7.2,
        requested_at=at(0),
        paid_from=at(0),
        joined_at=at(10),
    )
    return replace(machine, **changes)  # type: ignore[arg-type]


def a_change(sequence: int, *changed: Instance | Allocation) -> Change:
    entry = JournalEntry(sequence=sequence, at=at(0), entropy="0", commands=b"[]", adopted=b"[]", digest=str(sequence))
    return Change(journal=entry, upserts=changed)


async def test_machines_are_booked_while_they_live_and_kept_when_they_are_over() -> None:
    store, clock, registry = MemoryStore(), FixedClock(at(60)), CollectorRegistry()
    engine = an_engine(store, clock=clock)
    await engine.start()
    ledger = LedgerMetrics(registry, engine, store, clock)

    def seconds(account: str) -> float | None:
        return registry.get_sample_value("resolute_ledger_slot_seconds", {"pool": DEFAULT, "account": account})

    ledger.committed(a_change(2, a_machine()))
    await ledger.look()
    assert (seconds("starting"), seconds("idle"), seconds("useful")) == (20.0, 100.0, 0.0)
    price = registry.get_sample_value("resolute_ledger_price", {"pool": DEFAULT, "account": "idle"})
    assert price is not None and abs(price - 0.1) < 1e-9  # 100 slot-seconds at 3.6 a slot and hour

    over = a_machine(paid_until=at(110), observed=Observed.GONE)
    ledger.committed(a_change(3, over))
    for later_s in (200, 110 + SETTLED_AFTER_S + 1, 10_000):
        clock.set(at(0) + timedelta(seconds=later_s))
        await ledger.look()
        assert (seconds("starting"), seconds("idle")) == (20.0, 200.0)
    ledger.committed(a_change(4, a_machine("n", paid_from=at(9_990), joined_at=at(10_000))))
    await ledger.look()
    assert (seconds("starting"), seconds("idle")) == (40.0, 200.0)


async def test_work_of_a_harness_that_only_reports_is_useful_here_as_in_the_ledger() -> None:
    store, clock, registry = MemoryStore(), FixedClock(at(60)), CollectorRegistry()
    engine = an_engine(store, clock=clock)
    await engine.start()
    ledger = LedgerMetrics(registry, engine, store, clock)
    machine = a_machine(slots=1, agent_id=AgentId("agent-1"))
    finished = a_running_allocation(
        state=AllocationState.TERMINATED,
        assigned_at=at(10),
        ended_at=at(50),
        exit=AllocationExit(reason="finished", finished=True),
    )
    await store.commit(a_change(engine.memory.sequence + 1, machine, finished))
    await store.append_metrics(
        [a_report(steps, reported_at=at(when)) for steps, when in ((10, 30), (20, 40), (30, 50))]
    )
    ledger.committed(a_change(2, machine))
    await ledger.look()
    found = {
        account: registry.get_sample_value("resolute_ledger_slot_seconds", {"pool": DEFAULT, "account": account})
        for account in ACCOUNTS
    }
    assert found == {"starting": 20.0, "useful": 30.0, "checkpointing": 0.0, "lost": 0.0, "idle": 10.0}
    booked = line_of_machine(machine, Books(await runs_on(store, [machine])), now=at(60)).booking
    assert found == {account: getattr(booked, f"{account}_s") for account in ACCOUNTS}


async def test_a_machine_that_counted_as_gone_and_is_found_again_is_booked_once() -> None:
    store, clock, registry = MemoryStore(), FixedClock(at(0)), CollectorRegistry()
    engine = an_engine(store, clock=clock)
    await engine.start()
    ledger = LedgerMetrics(registry, engine, store, clock)

    def seconds() -> float:
        labels = [{"pool": DEFAULT, "account": account} for account in ACCOUNTS]
        found = (registry.get_sample_value("resolute_ledger_slot_seconds", each) for each in labels)
        return sum(each or 0.0 for each in found)

    running, other = a_machine(joined_at=None), a_machine("n", joined_at=None)
    gone = replace(running, paid_until=at(100), observed=Observed.GONE)
    ledger.committed(a_change(2, running, other))
    ledger.committed(a_change(3, gone, replace(other, paid_until=at(50), observed=Observed.GONE)))
    clock.set(at(1000))
    await ledger.look()
    assert seconds() == 2 * (100 + 50)
    ledger.committed(a_change(4, running))
    await ledger.look()
    assert seconds() == 2 * (1000 + 50)
    ledger.committed(a_change(5, replace(gone, paid_until=at(1200))))
    for later_s in (1300, 1200 + SETTLED_AFTER_S + 1, 10_000):
        clock.set(at(0) + timedelta(seconds=later_s))
        await ledger.look()
        assert seconds() == 2 * (1200 + 50)
    # Found and gone between two commits.
    ledger.committed(a_change(6, replace(gone, paid_until=at(1250))))
    await ledger.look()
    assert seconds() == 2 * (1250 + 50)


async def test_a_machine_whose_final_booking_was_forgotten_is_not_booked_twice_when_it_is_found_again() -> None:
    store, clock, registry = MemoryStore(), FixedClock(at(0)), CollectorRegistry()
    engine = an_engine(store, clock=clock)
    await engine.start()
    ledger = LedgerMetrics(registry, engine, store, clock, remembered=1)

    def starting() -> float | None:
        labels = {"pool": DEFAULT, "account": "starting"}
        return registry.get_sample_value("resolute_ledger_slot_seconds", labels)

    running = [a_machine(name, joined_at=None) for name in ("forgotten", "remembered")]
    ledger.committed(a_change(2, *running))
    ledger.committed(a_change(3, *(replace(each, paid_until=at(100), observed=Observed.GONE) for each in running)))
    clock.set(at(1000))
    await ledger.look()
    assert starting() == 2 * (100 + 100)
    ledger.committed(a_change(4, *(replace(each, found_again_at=at(1000)) for each in running)))
    await ledger.look()
    assert starting() == 2 * (100 + 1000)


def test_a_save_is_what_lies_between_two_marks() -> None:
    registry = CollectorRegistry()
    saves = SaveMetrics(registry)

    def mark(name: str, saved_s: float) -> StepMark:
        return StepMark(allocation_id=AllocationId(name), steps_completed=1, at=at(0), checkpointing_s=saved_s)

    saves.marked([mark("a", 0.0), mark("a", 0.0), mark("b", 2.0)])
    saves.marked([mark("a", 3.0), mark("a", 3.0), mark("b", 2.5), mark("a", 3.0)])
    assert registry.get_sample_value("resolute_checkpoint_save_seconds_count") == 3
    assert registry.get_sample_value("resolute_checkpoint_save_seconds_sum") == 5.5
