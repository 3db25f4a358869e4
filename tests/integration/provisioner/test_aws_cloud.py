"""The cloud over EC2 with an EC2 that fails, forgets and lies on the wire: real SDK, moto behind a front."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from resolute.clock import SystemClock
from resolute_provisioner.clouds.aws.calls import Ec2
from resolute_provisioner.clouds.aws.cloud import AwsCloud
from resolute_provisioner.clouds.aws.fake import HOST, AwsWorld, aws_settings
from resolute_provisioner.clouds.aws.fake_ec2 import CREDENTIALS, REGION, Ec2Front, Lose, Refuse, ec2_front
from resolute_provisioner.clouds.aws.prices import AwsPrices
from resolute_provisioner.clouds.base import (
    BadRequest,
    CloudError,
    LaunchRequest,
    NoCapacity,
    QuotaExceeded,
    Throttled,
    Transient,
)
from resolute_provisioner.model import Intent, Market, Observed, RefusalKind
from resolute_provisioner.reconcile import (
    CloudCallFailed,
    CloudReport,
    InstanceIntent,
    InstanceLaunched,
    InstanceObserved,
    Reconciler,
    ReconcileSettings,
    StrayFound,
)
from support.provisioner import a_request, an_offer
from support.provisioner_worlds import until


@pytest.fixture
def front(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ec2Front]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with ec2_front(pending_s=0.1, ending_s=0.1) as served:
        yield served


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("InsufficientInstanceCapacity", 500, NoCapacity),
        ("InsufficientHostCapacity", 500, NoCapacity),
        ("SpotMaxPriceTooLow", 400, NoCapacity),
        ("Unsupported", 400, NoCapacity),
        ("InsufficientFreeAddressesInSubnet", 400, NoCapacity),
        ("ReservationCapacityExceeded", 400, NoCapacity),
        ("VcpuLimitExceeded", 400, QuotaExceeded),
        ("MaxSpotInstanceCountExceeded", 400, QuotaExceeded),
        ("InstanceLimitExceeded", 400, QuotaExceeded),
        ("UnauthorizedOperation", 403, BadRequest),
        ("AuthFailure", 401, BadRequest),
        ("InvalidAMIID.NotFound", 400, BadRequest),
        ("InvalidParameterValue", 400, BadRequest),
        ("SomethingNew", 400, BadRequest),
        ("RequestLimitExceeded", 503, Throttled),
        ("Throttling", 400, Throttled),
        ("InternalError", 500, Transient),
        ("Unavailable", 503, Transient),
        ("SomethingNew", 500, Transient),
    ],
)
async def test_errors_have_their_class(front: Ec2Front, code: str, status: int, kind: type[CloudError]) -> None:
    front.fail("RunInstances", Refuse(code, status))
    with pytest.raises(CloudError) as refused:
        await AwsWorld(front).cloud.launch(a_request())
    assert type(refused.value) is kind
    assert code in str(refused.value) and front.machines() == {}


@pytest.mark.parametrize("carried_out", [False, True])
async def test_a_lost_answer_is_asked_again_for_the_same_machine(front: Ec2Front, carried_out: bool) -> None:
    world = AwsWorld(front)
    front.fail("RunInstances", Lose(carried_out=carried_out))
    with pytest.raises(Transient):
        await world.cloud.launch(a_request())
    assert len(front.machines()) == int(carried_out)
    launched = await world.reopened().launch(a_request())
    assert list(front.machines()) == [launched.provider_id]


async def test_a_machine_asked_for_in_other_words_before_an_upgrade_is_found_by_its_tags(front: Ec2Front) -> None:
    launched = await AwsWorld(front).cloud.launch(a_request())
    newer = AwsWorld(front, host=replace(HOST, wheel=replace(HOST.wheel, sha256="1e" * 32)))
    again = await newer.cloud.launch(a_request())
    assert again.provider_id == launched.provider_id and len(front.machines()) == 1
    front.omitted.add(launched.provider_id)
    with pytest.raises(Transient, match="not listed yet"):
        await newer.cloud.launch(a_request())


async def test_one_unknown_id_does_not_keep_the_others_alive(front: Ec2Front) -> None:
    cloud = AwsWorld(front).cloud
    machines = [(await cloud.launch(a_request(f"i-{n}"))).provider_id for n in range(3)]
    await cloud.terminate([*machines, "i-0123456789abcdef0", "nonsense"])
    assert not any(front.lives(each) for each in machines)


async def test_a_list_has_many_pages(front: Ec2Front) -> None:
    cloud = AwsCloud(aws_settings(), Ec2(REGION, endpoint_url=front.url), page=2)
    for number in range(5):
        await cloud.launch(a_request(f"i-{number}"))
    listed = await cloud.list("cluster-1")
    assert sorted(each.instance_id for each in listed) == [f"i-{number}" for number in range(5)]
    assert [operation for operation, _ in front.calls].count("DescribeInstances") == 3


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Refuse("RequestLimitExceeded", 503), Throttled),
        (Refuse("UnauthorizedOperation", 403), Transient),
        (Lose(carried_out=True), Transient),
    ],
)
async def test_a_list_or_an_end_that_fails_is_to_be_asked_again(
    front: Ec2Front, fault: Refuse | Lose, kind: type[CloudError]
) -> None:
    cloud = AwsWorld(front).cloud
    machine = (await cloud.launch(a_request())).provider_id
    front.fail("DescribeInstances", fault)
    front.fail("TerminateInstances", fault)
    with pytest.raises(kind):
        await cloud.list("cluster-1")
    with pytest.raises(kind):
        await cloud.terminate([machine])


async def test_a_promise_that_is_not_kept_is_a_refusal_of_its_class_and_costs_nothing(front: Ec2Front) -> None:
    cloud = AwsWorld(front).cloud
    machine = (await cloud.launch(a_request())).provider_id
    front.end(machine, "Server.InsufficientInstanceCapacity", "There is no Spot capacity available")
    (gone,) = await cloud.list("cluster-1")
    assert (gone.observed, gone.refusal) == (Observed.GONE, RefusalKind.NO_CAPACITY)
    assert (gone.paid_from, gone.paid_until) == (None, None) and "no Spot capacity" in gone.message


async def test_why_a_machine_ended(front: Ec2Front) -> None:
    cloud = AwsWorld(front).cloud
    one, two = [(await cloud.launch(a_request(name))).provider_id for name in ("i-1", "i-2")]
    front.interrupt(one)
    front.power_off(two)
    listed = {each.provider_id: each for each in await cloud.list("cluster-1")}
    assert "interrupted by EC2" in listed[one].message and listed[one].refusal is None
    assert "powered itself off" in listed[two].message
    assert all(each.paid_from is not None and each.paid_until is not None for each in listed.values())


async def test_a_machine_that_somebody_stopped_is_ended(front: Ec2Front) -> None:
    cloud = AwsWorld(front).cloud
    machine = (await cloud.launch(a_request())).provider_id
    front.machines()[machine].stop()
    front.fail("TerminateInstances", Refuse("RequestLimitExceeded", 503))
    (listed,) = await cloud.list("cluster-1")
    assert listed.observed is Observed.STOPPING and "stopped from outside" in listed.message
    await cloud.list("cluster-1")
    assert front.machines()[machine].state in ("shutting-down", "terminated")


# ------------------------------------------------------------------------------------ with the reconciler on top of it


class Ledger:
    """Recorded instances that follow their reports."""

    def __init__(self, *requests: LaunchRequest) -> None:
        self.rows = {
            each.instance_id: InstanceIntent(request=each, intent=Intent.RUN, observed=Observed.UNKNOWN)
            for each in requests
        }
        self.reports: list[CloudReport] = []

    async def intents(self) -> Sequence[InstanceIntent]:
        return [row for row in self.rows.values() if row.observed is not Observed.GONE]

    async def report(self, report: CloudReport) -> None:
        self.reports.append(report)
        if isinstance(report, InstanceLaunched | InstanceObserved):
            row = self.rows[report.instance_id]
            self.rows[report.instance_id] = replace(
                row,
                provider_id=report.provider_id,
                observed=report.observed,
                launched_at=row.launched_at or SystemClock().now(),
            )

    def stop(self) -> None:
        self.rows = {name: replace(row, intent=Intent.STOP) for name, row in self.rows.items()}

    def of(self, kind: type[CloudReport]) -> list[CloudReport]:
        return [report for report in self.reports if isinstance(report, kind)]


def a_reconciler(cloud: AwsCloud, ledger: Ledger) -> Reconciler:
    settings = ReconcileSettings(retry_delay_s=0.01, terminate_again_s=0.2, vanish_after_s=0.2)
    return Reconciler(
        cloud=cloud,
        cluster="cluster-1",
        ledger=ledger,
        clock=SystemClock(),
        rng=random.Random(1),
        settings=settings,
    )


async def test_lost_answers_lagging_lists_and_throttling_give_each_machine_once_and_end_them_all(
    front: Ec2Front,
) -> None:
    front.hidden_s = 0.5
    cloud = AwsCloud(aws_settings(), Ec2(REGION, endpoint_url=front.url))
    ledger = Ledger(*(a_request(f"i-{number}") for number in range(4)))
    front.fail("RunInstances", Lose(carried_out=True), Refuse("RequestLimitExceeded", 503), Lose(carried_out=False))
    reconciler = a_reconciler(cloud, ledger)

    async def all_run() -> bool:
        try:
            await reconciler.observe()
        except CloudError:
            return False
        await reconciler.settle()
        return all(row.observed is Observed.RUNNING for row in ledger.rows.values())

    await until(all_run, what="all machines run")
    assert len(front.machines()) == 4
    front.fail("TerminateInstances", Lose(carried_out=True), Refuse("RequestLimitExceeded", 503))
    front.fail("DescribeInstances", Lose(carried_out=True))
    ledger.stop()

    async def all_gone() -> bool:
        try:
            await reconciler.observe()
        except CloudError:
            return False
        return all(row.observed is Observed.GONE for row in ledger.rows.values())

    await until(all_gone, what="all machines are gone")
    assert {machine.state for machine in front.machines().values()} == {"terminated"}
    assert ledger.of(CloudCallFailed) and not ledger.of(StrayFound)


async def test_a_list_that_lies_about_a_machine_just_launched_does_not_make_it_gone(front: Ec2Front) -> None:
    cloud = AwsCloud(aws_settings(), Ec2(REGION, endpoint_url=front.url))
    ledger = Ledger(a_request())
    reconciler = a_reconciler(cloud, ledger)
    await reconciler.observe()
    await reconciler.settle()
    front.omitted.update(front.machines())
    for _ in range(4):
        await reconciler.observe()
        await asyncio.sleep(0.1)
    assert not any(isinstance(each, InstanceObserved) and each.observed is Observed.GONE for each in ledger.reports)
    assert len(front.machines()) == 1


async def test_a_machine_that_no_row_knows_is_ended(front: Ec2Front) -> None:
    cloud = AwsCloud(aws_settings(), Ec2(REGION, endpoint_url=front.url))
    stray = (await cloud.launch(a_request("i-lost"))).provider_id
    other = (await cloud.launch(a_request("i-other", cluster="cluster-2"))).provider_id
    ledger = Ledger()
    await a_reconciler(cloud, ledger).observe()
    assert [each.provider_id for each in ledger.reports if isinstance(each, StrayFound)] == [stray]
    assert not front.lives(stray) and front.lives(other)


# -------------------------------------------------------------------------------------------------- prices and types


async def test_spot_prices_are_those_of_type_and_zone(front: Ec2Front) -> None:
    prices = AwsPrices(Ec2(REGION, endpoint_url=front.url), clock=SystemClock())
    spot = replace(an_offer(), instance_type="m5.large", market=Market.SPOT)
    here, anywhere = replace(spot, offer_id="here", zone="us-east-1a"), replace(spot, offer_id="anywhere", zone="")
    nowhere = replace(spot, offer_id="nowhere", zone="us-east-1z")
    bought = replace(spot, offer_id="bought", market=Market.ON_DEMAND)
    told = {each.offer_id: each for each in await prices.spot_prices([nowhere, here, bought, anywhere])}
    assert sorted(told) == ["anywhere", "here"]
    assert told["here"].per_hour > 0 and told["here"].as_of.utcoffset() is not None
    assert await prices.spot_prices([bought]) == ()
    front.fail("DescribeSpotPriceHistory", Refuse("RequestLimitExceeded", 503))
    with pytest.raises(Throttled):
        await prices.spot_prices([here])


async def test_shapes_of_types_and_zones_of_the_region(front: Ec2Front) -> None:
    prices = AwsPrices(Ec2(REGION, endpoint_url=front.url), clock=SystemClock())
    gpus, plain = await prices.shapes(["m5.large", "g4dn.12xlarge", "no-such.type"])
    assert (gpus.instance_type, gpus.accelerator, gpus.accelerators, gpus.vcpus) == ("g4dn.12xlarge", "T4", 4, 48)
    assert (plain.instance_type, plain.accelerators, plain.vcpus, plain.memory_gib) == ("m5.large", 0, 2, 8.0)
    assert "us-east-1a" in await prices.zones()
