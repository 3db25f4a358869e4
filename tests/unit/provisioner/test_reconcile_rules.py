"""What one comparison of list and ledger calls for, and how the reconciler carries it out against a wilful cloud."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from resolute.clock import Clock
from resolute_provisioner.clouds.base import CloudInstance, Transient
from resolute_provisioner.clouds.fake import FakeBehaviour, FakeCloud, LostReply
from resolute_provisioner.model import Intent, Observed, RefusalKind
from resolute_provisioner.reconcile import (
    InstanceIntent,
    InstanceLaunched,
    InstanceObserved,
    Reconciler,
    ReconcileSettings,
    StrayFound,
    compare,
)
from support.provisioner import NOW, a_request, ago
from support.provisioner_ledger import MemoryLedger
from support.provisioner_worlds import run_virtually, until

ASKED_AGAIN = (RefusalKind.TRANSIENT, RefusalKind.THROTTLED)


def an_intent(name: str = "i-1", *, provider_id: str = "", **changes: object) -> InstanceIntent:
    intent = InstanceIntent(
        request=a_request(name), intent=Intent.RUN, observed=Observed.UNKNOWN, provider_id=provider_id
    )
    return replace(intent, **changes)  # type: ignore[arg-type]


def a_machine(name: str = "i-1", *, observed: Observed = Observed.RUNNING, provider_id: str = "") -> CloudInstance:
    return CloudInstance(
        provider_id=provider_id or f"cloud-{name}",
        token=f"token-{name}",
        instance_id=name,
        pool="default",
        observed=observed,
    )


class TestCompare:
    def test_a_recorded_instance_that_is_not_there_is_launched(self) -> None:
        found = compare([], [an_intent()], listed_at=NOW, listing_lag_s=0.0)
        assert [each.instance_id for each in found.launch] == ["i-1"] and found.in_transition

    def test_one_that_is_being_launched_is_left_alone(self) -> None:
        found = compare([], [an_intent()], listed_at=NOW, listing_lag_s=0.0, busy={"i-1"})
        assert not found.launch and found.in_transition

    def test_a_machine_whose_reply_was_lost_is_found_by_its_token(self) -> None:
        found = compare([a_machine()], [an_intent()], listed_at=NOW, listing_lag_s=0.0)
        assert not found.launch
        assert [type(each) for each in found.reports] == [InstanceLaunched, InstanceObserved]

    def test_no_news_is_no_report(self) -> None:
        known = an_intent(provider_id="cloud-i-1", observed=Observed.RUNNING)
        assert not compare([a_machine()], [known], listed_at=NOW, listing_lag_s=0.0).reports

    def test_a_stale_list_takes_no_word_back(self) -> None:
        known = an_intent(provider_id="cloud-i-1", observed=Observed.STOPPING)
        assert not compare([a_machine()], [known], listed_at=NOW, listing_lag_s=0.0).reports

    def test_a_machine_without_a_row_is_a_stray(self) -> None:
        machine = replace(a_machine("i-9"), paid_from=ago(60))
        found = compare([machine], [an_intent()], listed_at=NOW, listing_lag_s=0.0)
        assert found.terminate == ("cloud-i-9",)
        stray = StrayFound(
            provider_id="cloud-i-9", token="token-i-9", instance_id="i-9", observed=Observed.RUNNING, paid_from=ago(60)
        )
        assert stray in found.reports

    def test_a_stray_that_is_gone_is_nobodys_business(self) -> None:
        found = compare([a_machine("i-9", observed=Observed.GONE)], [], listed_at=NOW, listing_lag_s=0.0)
        assert not found.terminate and not found.reports

    def test_of_two_machines_with_one_token_the_confirmed_one_stays(self) -> None:
        machines = [a_machine(provider_id="cloud-a"), a_machine(provider_id="cloud-b")]
        known = an_intent(provider_id="cloud-b", observed=Observed.RUNNING)
        assert compare(machines, [known], listed_at=NOW, listing_lag_s=0.0).terminate == ("cloud-a",)
        assert compare(machines, [an_intent()], listed_at=NOW, listing_lag_s=0.0).terminate == ("cloud-b",)

    def test_stopping_is_ordered_until_it_is_gone(self) -> None:
        stop = an_intent(provider_id="cloud-i-1", intent=Intent.STOP, observed=Observed.STOPPING)
        machine = a_machine(observed=Observed.STOPPING)
        assert compare([machine], [stop], listed_at=NOW, listing_lag_s=0.0).terminate == ("cloud-i-1",)
        gone = compare([a_machine(observed=Observed.GONE)], [stop], listed_at=NOW, listing_lag_s=0.0)
        assert not gone.terminate and [each.observed for each in gone.reports if isinstance(each, InstanceObserved)]

    def test_what_was_never_launched_and_is_not_wanted_is_finished(self) -> None:
        found = compare([], [an_intent(intent=Intent.STOP)], listed_at=NOW, listing_lag_s=0.0)
        assert not found.launch
        (report,) = found.reports
        assert isinstance(report, InstanceObserved) and report.observed is Observed.GONE

    @pytest.mark.parametrize(("launched_s_ago", "missing"), [(29.0, False), (30.0, True)])
    def test_a_launched_machine_is_missed_only_after_the_listing_lag(
        self, launched_s_ago: float, missing: bool
    ) -> None:
        known = an_intent(provider_id="cloud-i-1", launched_at=ago(launched_s_ago))
        found = compare([], [known], listed_at=NOW, listing_lag_s=30.0, missed={"i-1"})
        assert bool(found.missing) is missing and bool(found.reports) is missing and not found.launch

    def test_one_list_without_it_does_not_end_a_machine(self) -> None:
        known = an_intent(provider_id="cloud-i-1", launched_at=ago(300))
        found = compare([], [known], listed_at=NOW, listing_lag_s=0.0)
        assert found.missing == ("i-1",) and not found.reports and found.in_transition


class Rig:
    """A reconciler on the cloud in memory, with a ledger that outlives it."""

    def __init__(self, clock: Clock, behaviour: FakeBehaviour | None = None, *, seed: int = 1) -> None:
        self.clock = clock
        self.cloud = FakeCloud(clock=clock, rng=random.Random(seed), behaviour=behaviour)
        self.ledger = MemoryLedger(clock)
        self.reconciler = self.restarted()

    def restarted(self, **settings: float) -> Reconciler:
        self.reconciler = Reconciler(
            cloud=self.cloud,
            cluster="cluster-1",
            ledger=self.ledger,
            clock=self.clock,
            rng=random.Random(2),
            settings=ReconcileSettings(**settings),  # type: ignore[arg-type]
        )
        return self.reconciler

    async def all_running(self) -> bool:
        rows = self.ledger.rows.values()
        return bool(rows) and all(row.observed is Observed.RUNNING for row in rows)

    async def all_finished(self) -> bool:
        return not self.ledger.rows


def test_a_recorded_intent_becomes_a_machine_and_then_nothing() -> None:
    async def scenario(clock: Clock) -> None:
        rig = Rig(clock)
        service = asyncio.create_task(rig.reconciler.run())
        rig.ledger.record(a_request())
        rig.reconciler.wake()
        await until(rig.all_running, what="running", within_s=300)
        rig.ledger.want_stopped("i-1")
        rig.reconciler.wake()
        await until(rig.all_finished, what="finished", within_s=300)
        assert not rig.cloud.bill.running() and rig.cloud.launch_calls["token-i-1"] == 1
        started, ended = rig.ledger.paid["i-1"]
        assert started is not None and ended is not None and started < ended
        rig.reconciler.stop()
        await service

    run_virtually(scenario)


@pytest.mark.parametrize("lost", list(LostReply))
def test_a_lost_reply_is_asked_again_with_the_same_token(lost: LostReply) -> None:
    async def scenario(clock: Clock) -> None:
        rig = Rig(clock)
        rig.cloud.script(lost)
        await rig.reconciler.launch(rig.ledger.record(a_request()))
        assert rig.ledger.rows["i-1"].provider_id == "fake-000001"
        assert rig.cloud.launch_calls["token-i-1"] == 2 and len(rig.cloud.living()) == 1

    run_virtually(scenario)


@pytest.mark.parametrize("kind", list(RefusalKind))
def test_a_refusal_finishes_the_row(kind: RefusalKind) -> None:
    async def scenario(clock: Clock) -> None:
        rig = Rig(clock)
        rig.cloud.script(*[kind] * 5)
        await rig.reconciler.launch(rig.ledger.record(a_request()))
        assert rig.ledger.refusals == [("i-1", kind)] and not rig.ledger.rows
        assert rig.cloud.launch_calls["token-i-1"] == (5 if kind in ASKED_AGAIN else 1)

    run_virtually(scenario)


def test_a_cloud_that_is_asked_too_often_is_asked_less_until_it_answers() -> None:
    async def scenario(clock: Clock) -> None:
        rig = Rig(clock)
        loop = asyncio.get_running_loop()

        async def seconds_for(name: str) -> float:
            began = loop.time()
            await rig.reconciler.launch(rig.ledger.record(a_request(name)))
            return loop.time() - began

        undisturbed_s = await seconds_for("i-1")
        rig.cloud.script(*[RefusalKind.THROTTLED] * 4)
        await seconds_for("i-2")
        assert not rig.ledger.refusals and rig.cloud.launch_calls["token-i-2"] == 5
        slowed = [await seconds_for(f"i-{number}") for number in range(3, 9)]
        # Not only the request that was refused waits, but whatever comes after it, less and less.
        assert slowed[0] > undisturbed_s + 2.0
        assert slowed[0] > slowed[2] > slowed[-1]
        assert slowed[-1] <= rig.cloud.behaviour.launch_latency_s[1]

    run_virtually(scenario)


def test_a_machine_of_a_launch_that_was_given_up_is_a_stray() -> None:
    async def scenario(clock: Clock) -> None:
        rig = Rig(clock)
        rig.restarted(launch_attempts=1)
        rig.cloud.script(LostReply.LAUNCHED)
        await rig.reconciler.launch(rig.ledger.record(a_request()))
        assert not rig.ledger.rows and len(rig.cloud.living()) == 1
        service = asyncio.create_task(rig.reconciler.run())

        async def nothing_left() -> bool:
            return not rig.cloud.living()

        await until(nothing_left, what="the stray ends", within_s=300)
        assert rig.ledger.strays == ["fake-000001"]
        rig.reconciler.stop()
        await service

    run_virtually(scenario)


def test_a_restart_during_a_launch_gives_one_machine() -> None:
    async def scenario(clock: Clock) -> None:
        rig = Rig(clock, FakeBehaviour(launch_latency_s=(5.0, 5.0)))
        intent = rig.ledger.record(a_request())
        call = asyncio.create_task(rig.reconciler.launch(intent))
        await asyncio.sleep(5.0)
        call.cancel()
        rig.restarted()
        await rig.reconciler.observe()
        await rig.reconciler.settle()
        assert rig.ledger.rows["i-1"].provider_id == "fake-000001"
        assert len(rig.cloud.living()) == 1 and not rig.cloud.bill.launched_twice()

    run_virtually(scenario)


def test_an_order_to_end_is_repeated_until_the_cloud_agrees() -> None:
    class DeafAtFirst(FakeCloud):
        orders = 0

        async def terminate(self, provider_ids: object) -> None:
            self.orders += 1
            if self.orders == 1:
                raise Transient("the connection was lost")
            if self.orders > 2:
                await super().terminate(provider_ids)  # type: ignore[arg-type]

    async def scenario(clock: Clock) -> None:
        rig = Rig(clock)
        rig.cloud = DeafAtFirst(clock=clock, rng=random.Random(1))
        rig.restarted()
        await rig.reconciler.launch(rig.ledger.record(a_request()))
        rig.ledger.want_stopped("i-1")
        service = asyncio.create_task(rig.reconciler.run())
        await until(rig.all_finished, what="finished", within_s=600)
        assert [each.call for each in rig.ledger.failures] == ["terminate"]
        assert not rig.cloud.living()
        rig.reconciler.stop()
        await service

    run_virtually(scenario)


def test_a_machine_that_is_missing_for_long_is_gone() -> None:
    async def scenario(clock: Clock) -> None:
        rig = Rig(clock)
        service = asyncio.create_task(rig.reconciler.run())
        rig.ledger.record(a_request())
        rig.reconciler.wake()
        await until(rig.all_running, what="running", within_s=300)
        rig.cloud.behaviour = FakeBehaviour(omission_rate=1.0)
        since = clock.monotonic()
        await until(rig.all_finished, what="finished", within_s=300)
        assert clock.monotonic() - since >= 10.0
        assert "does not list it" in rig.ledger.finished["i-1"]
        rig.cloud.behaviour = FakeBehaviour()
        await asyncio.sleep(60)
        assert not rig.cloud.living(), "it was there after all: a machine without a row"
        rig.reconciler.stop()
        await service

    run_virtually(scenario)


def test_an_unreadable_list_is_reported_and_asked_for_more_rarely() -> None:
    async def scenario(clock: Clock) -> None:
        rig = Rig(clock, FakeBehaviour(list_failure_rate=1.0))
        service = asyncio.create_task(rig.reconciler.run())
        await asyncio.sleep(600)
        assert 8 <= len(rig.ledger.failures) <= 20
        rig.reconciler.stop()
        await service

    run_virtually(scenario)


def test_a_ledger_that_fails_ends_the_service() -> None:
    class Broken(MemoryLedger):
        async def report(self, report: object) -> None:
            raise OSError("the store is gone")

    async def scenario(clock: Clock) -> None:
        rig = Rig(clock)
        rig.ledger = Broken(clock)
        rig.restarted()
        rig.ledger.record(a_request())
        with pytest.raises(OSError, match="the store is gone"):
            await rig.reconciler.run()

    run_virtually(scenario)


WILFUL = FakeBehaviour(
    no_capacity_rate=0.15,
    transient_rate=0.2,
    lost_reply_rate=0.2,
    losses_per_hour=5.0,
    noticed_share=0.5,
    list_failure_rate=0.2,
    listing_lag_s=20.0,
    omission_rate=0.02,
)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_leaked_or_bought_twice_by_a_wilful_cloud_and_a_restarting_master(seed: int) -> None:
    """Thirty instances wanted and given back at random times, the reconciler killed every few minutes."""

    async def scenario(clock: Clock) -> None:
        rng = random.Random(seed)
        rig = Rig(clock, WILFUL, seed=seed)
        service = asyncio.create_task(rig.reconciler.run())
        for number in range(30):
            rig.ledger.record(a_request(f"i-{number:02d}"))
            if rng.random() < 0.5:
                rig.reconciler.wake()
            await asyncio.sleep(rng.uniform(0.0, 40.0))
            for name in sorted(rig.ledger.rows):
                if rng.random() < 0.1:
                    rig.ledger.want_stopped(name)
            if rng.random() < 0.3:
                service.cancel()
                await asyncio.gather(service, return_exceptions=True)
                service = asyncio.create_task(rig.restarted().run())
        for name in sorted(rig.ledger.rows):
            rig.ledger.want_stopped(name)
        await asyncio.sleep(1200.0)
        assert not rig.ledger.rows
        assert not rig.cloud.bill.running(), "paid for and forgotten"
        assert not rig.cloud.living()
        assert not rig.cloud.bill.launched_twice()
        assert len(rig.cloud.bill.lines) >= 5, "the run was too poor to show anything"
        rig.reconciler.stop()
        await service

    run_virtually(scenario)
