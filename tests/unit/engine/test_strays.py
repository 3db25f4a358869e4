"""A machine that nobody counts on is ended, and what it cost is in the books of the request that it came of."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest

from resolute.clock import FixedClock
from resolute.ids import SeededIds
from resolute_master.domain.account import Account, Owner, account_id, day_of
from resolute_master.domain.ids import InstanceId
from resolute_master.domain.instance import Instance
from resolute_master.domain.machines import RecordStray
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine.engine import Engine
from resolute_master.engine.provisioning import PoolLedger
from resolute_master.lifecycle import instances
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.lifecycle.step import Step
from resolute_master.store.encoding import decode_entity, to_plain
from resolute_master.store.memory import MemoryStore
from resolute_provisioner.bootstrap import MachineBoot
from resolute_provisioner.model import Intent, Market, Observed, Offer, PoolScaling, RefusalKind
from resolute_provisioner.reconcile import InstanceObserved, LaunchRefused, StrayFound
from support.cluster import T0, an_instance
from support.engines import DEFAULT, a_user, an_engine, an_experiment, running

PRICE = 3.06
OFFER = Offer(offer_id="one", instance_type="type-one", zone="z", market=Market.SPOT, slots=1, price_per_hour=PRICE)
HOUR = timedelta(hours=1)


def a_boot(machine: Instance) -> MachineBoot:
    return MachineBoot(
        master_url="http://m", agent_id=machine.id, resource_pool=DEFAULT, instance_id=machine.id, join_token="secret"
    )


def an_elastic_engine(store: MemoryStore, clock: FixedClock) -> Engine:
    scaling = PoolScaling(pool=DEFAULT, offers=(OFFER,), max_instances=1)
    return an_engine(store, clock=clock, pools={DEFAULT: PoolPolicy(name=DEFAULT, scaling=scaling)})


def spent(engine: Engine, clock: FixedClock) -> float:
    account = engine.state.get(Account, account_id(Owner.POOL, DEFAULT))
    return 0.0 if account is None else account.until(clock.now()).in_all


def no_answer(machine: Instance) -> LaunchRefused:
    return LaunchRefused(
        instance_id=machine.id, offer_id=OFFER.offer_id, kind=RefusalKind.TRANSIENT, message="no answer"
    )


async def one_request(engine: Engine) -> Instance:
    await an_experiment(engine, await a_user(engine))
    (machine,) = engine.state.all(Instance)
    return machine


async def test_a_machine_that_came_of_a_refused_request_is_booked_until_it_is_gone() -> None:
    store, clock = MemoryStore(), FixedClock(T0)
    async with running(an_elastic_engine(store, clock)) as engine:
        ledger = PoolLedger(engine, engine.pools[DEFAULT], cluster="c", boot=a_boot)
        machine = await one_request(engine)
        await ledger.report(no_answer(machine))
        assert await ledger.intents() == []
        clock.advance(3600)
        found = StrayFound(provider_id="cloud-1", token=machine.token, instance_id=machine.id, paid_from=T0)
        await ledger.report(found)
        (intent,) = await ledger.intents()
        assert (intent.instance_id, intent.provider_id, intent.intent) == (machine.id, "cloud-1", Intent.STOP)
        assert abs(spent(engine, clock) - PRICE) < 1e-9
        # It takes the place of the only machine that the pool may have.
        assert [each.id for each in engine.state.all(Instance)] == [machine.id]
        await ledger.report(found)
        clock.advance(3600)
        gone = InstanceObserved(
            instance_id=machine.id,
            provider_id="cloud-1",
            observed=Observed.GONE,
            paid_from=T0,
            paid_until=T0 + 2 * HOUR,
        )
        await ledger.report(gone)
        clock.advance(3600)
        assert abs(spent(engine, clock) - 2 * PRICE) < 1e-9
    (row,) = [each for each in await store.instances() if each.id == machine.id]
    assert (row.paid_from, row.paid_until, row.observed) == (T0, T0 + 2 * HOUR, Observed.GONE)
    assert "refused" in row.stop_reason and not row.refused


async def test_a_machine_that_was_taken_for_gone_is_paid_from_its_beginning() -> None:
    store, clock = MemoryStore(), FixedClock(T0)
    async with running(an_elastic_engine(store, clock)) as engine:
        ledger = PoolLedger(engine, engine.pools[DEFAULT], cluster="c", boot=a_boot)
        machine = await one_request(engine)
        clock.advance(3600)
        vanished = InstanceObserved(
            instance_id=machine.id, provider_id="cloud-1", observed=Observed.GONE, paid_from=T0, paid_until=T0 + HOUR
        )
        await ledger.report(vanished)
        clock.advance(3600)
        assert abs(spent(engine, clock) - PRICE) < 1e-9
        back = StrayFound(provider_id="cloud-1", token=machine.token, instance_id=machine.id, paid_from=T0)
        await ledger.report(back)
        assert abs(spent(engine, clock) - 2 * PRICE) < 1e-9


async def test_the_time_that_was_missed_is_booked_on_the_days_when_it_was() -> None:
    midnight = day_of(T0) + timedelta(days=1)
    store, clock = MemoryStore(), FixedClock(T0)
    async with running(an_elastic_engine(store, clock)) as engine:
        ledger = PoolLedger(engine, engine.pools[DEFAULT], cluster="c", boot=a_boot)
        machine = await one_request(engine)
        begun, missing = midnight - 2 * HOUR, midnight - HOUR
        clock.set(missing)
        vanished = InstanceObserved(
            instance_id=machine.id, provider_id="cloud-1", observed=Observed.GONE, paid_from=begun, paid_until=missing
        )
        await ledger.report(vanished)
        clock.set(midnight + HOUR)
        back = StrayFound(provider_id="cloud-1", token=machine.token, instance_id=machine.id, paid_from=begun)
        await ledger.report(back)
        account = engine.state.get(Account, account_id(Owner.POOL, DEFAULT))
        assert account is not None
        assert abs(account.in_day - PRICE) < 1e-9  # the hour of the new day, and not the one before midnight
        assert abs(account.in_all - 3 * PRICE) < 1e-9


class ByKeyAlone(MemoryStore):
    """Refuses to read all machines that there ever were."""

    async def instances(self, *, since: datetime | None = None, until: datetime | None = None) -> tuple[Instance, ...]:
        raise AssertionError("every row was read")


async def test_the_row_of_a_stray_is_read_by_the_id_in_its_tag() -> None:
    store, clock = ByKeyAlone(), FixedClock(T0)
    async with running(an_elastic_engine(store, clock)) as engine:
        ledger = PoolLedger(engine, engine.pools[DEFAULT], cluster="c", boot=a_boot)
        machine = await one_request(engine)
        await ledger.report(no_answer(machine))
        for id_, token in (("", machine.token), (machine.id, ""), (machine.id, "another"), ("another", machine.token)):
            await ledger.report(StrayFound(provider_id="cloud-1", token=token, instance_id=id_, paid_from=T0))
            row = await store.instance(machine.id)
            assert row is not None and row.over and row.found_again_at is None and row.id == machine.id
        clock.advance(60)
        good = StrayFound(provider_id="cloud-1", token=machine.token, instance_id=machine.id, paid_from=T0)
        await ledger.report(good)
        row = await store.instance(machine.id)
        assert row is not None and not row.over and row.found_again_at == clock.now()


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        (an_instance("m", joined_at=T0, observed=Observed.GONE), "whose agent had joined, counted as gone"),
        (an_instance("m"), "a second machine for the request of m"),
        (an_instance("another"), "without a request"),
    ],
)
def test_why_a_stray_is_only_ended_is_told(machine: Instance, why: str) -> None:
    step = Step(ClusterState([machine]), now=T0, ids=SeededIds(1), sequence=1)
    tags = RecordStray(pool=DEFAULT, provider_id="c-1", token="token-of-m", instance_id=InstanceId("m"))
    instances.stray(step, tags)
    (said,) = step.decisions
    assert said.kind == "stray" and said.subject == "c-1" and why in said.reason
    assert step.need(Instance, machine.id) == machine


def test_a_row_from_before_the_time_of_the_find_was_kept_is_read() -> None:
    machine = an_instance()
    old = {key: value for key, value in to_plain(machine).items() if key != "found_again_at"}
    assert decode_entity("instance", json.dumps(old)) == machine


async def test_what_no_request_of_ours_accounts_for_is_told_and_no_more() -> None:
    store, clock = MemoryStore(), FixedClock(T0)
    async with running(an_elastic_engine(store, clock)) as engine:
        ledger = PoolLedger(engine, engine.pools[DEFAULT], cluster="c", boot=a_boot)
        for token in ("", "of-another-time"):
            await ledger.report(StrayFound(provider_id="cloud-9", token=token, instance_id="x", paid_from=T0))
        assert await ledger.intents() == [] and await store.instances() == ()
        # A second machine of a living request is ended, and the request stays what it was.
        machine = await one_request(engine)
        await ledger.report(StrayFound(provider_id="cloud-2", token=machine.token, instance_id=machine.id))
        assert list(engine.state.all(Instance)) == [machine]
