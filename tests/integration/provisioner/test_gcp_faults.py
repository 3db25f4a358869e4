"""Google Cloud on bad days: lost replies, late refusals, zones that do not answer, lists that lag, and machines that stop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from resolute.errors import InvalidInput
from resolute_provisioner.clouds.base import BadRequest, CloudInstance, NoCapacity, QuotaExceeded, Transient
from resolute_provisioner.clouds.gcp.fake import gcp_cloud
from resolute_provisioner.clouds.gcp.fake_compute_engine import (
    LOST,
    FailedOperation,
    FakeComputeEngine,
    HttpError,
    Times,
    compute_engine,
)
from resolute_provisioner.model import Observed, RefusalKind
from support.provisioner import a_request, an_offer
from support.provisioner_worlds import until

if TYPE_CHECKING:  # Google's client takes seconds to import, in each worker that collects tests
    from resolute_provisioner.clouds.gcp.cloud import GcpCloud


@pytest.fixture
def engine() -> Iterator[FakeComputeEngine]:
    with compute_engine(times=Times(staging_s=0.05)) as fake:
        yield fake


@pytest.fixture
def cloud(engine: FakeComputeEngine) -> Iterator[GcpCloud]:
    opened = gcp_cloud(engine, zones=("zone-a", "zone-b"))
    yield opened
    opened.close()


def in_zone(name: str, zone: str) -> Any:
    return a_request(name, offer=replace(an_offer(), zone=zone))


def name_of(provider_id: str) -> str:
    return provider_id.split("/")[1]


def inserts(engine: FakeComputeEngine) -> int:
    return len([call for call in engine.calls if call.method == "compute.instances.insert"])


async def observed(cloud: GcpCloud, provider_id: str, state: Observed) -> CloudInstance:
    found: list[CloudInstance] = []

    async def there() -> bool:
        found[:] = [each for each in await cloud.list("cluster-1") if each.provider_id == provider_id]
        return bool(found) and found[0].observed is state

    await until(there, what=f"{provider_id} is {state}")
    return found[0]


async def test_a_lost_reply_is_asked_again_and_gives_the_same_machine(
    engine: FakeComputeEngine, cloud: GcpCloud
) -> None:
    engine.scripts.inserts.append(LOST)
    with pytest.raises(Transient, match="did not answer"):
        await cloud.launch(a_request())
    (machine,) = await cloud.list("cluster-1")
    assert machine.token == "token-i-1"
    again = await cloud.launch(a_request())
    assert again.provider_id == machine.provider_id and len(engine.there()) == 1


async def test_a_request_id_that_was_forgotten_finds_the_machine_by_its_name(
    engine: FakeComputeEngine, cloud: GcpCloud
) -> None:
    engine.times = replace(engine.times, request_ids_s=0.0)
    first = await cloud.launch(a_request())
    again = await cloud.launch(a_request())
    assert again.provider_id == first.provider_id and len(engine.there()) == 1 and inserts(engine) == 2


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (FailedOperation(code="ZONE_RESOURCE_POOL_EXHAUSTED", message="no T4 in zone-a"), NoCapacity),
        (FailedOperation(code="QUOTA_EXCEEDED", message="Quota 'GPUS_ALL_REGIONS' exceeded. Limit: 0"), QuotaExceeded),
        (FailedOperation(code="INVALID_USAGE", message="no such image", status=400), BadRequest),
        (FailedOperation(code="INTERNAL_ERROR", message="try later", status=500), Transient),
        (HttpError(status=403, reason="quotaExceeded", message="Quota 'CPUS' exceeded"), QuotaExceeded),
        (HttpError(status=403, reason="forbidden", message="Required 'compute.instances.create'"), BadRequest),
    ],
)
async def test_what_the_operation_tells_is_a_refusal_with_the_clouds_own_words(
    engine: FakeComputeEngine, cloud: GcpCloud, failure: Any, error: type[Exception]
) -> None:
    engine.scripts.inserts.append(failure)
    with pytest.raises(error, match=failure.message.replace("(", r"\(")):
        await cloud.launch(a_request())
    assert await cloud.list("cluster-1") == () and engine.ran() == []


async def test_a_refusal_that_comes_while_nobody_waits_is_told_by_the_list(engine: FakeComputeEngine) -> None:
    """The process that had asked was killed, and the next one saw the machine before the zone had to say no."""
    engine.times = replace(engine.times, operation_s=0.5)
    engine.scripts.inserts.append(FailedOperation(code="ZONE_RESOURCE_POOL_EXHAUSTED", message="none left"))
    first, second = gcp_cloud(engine), gcp_cloud(engine)
    launch = asyncio.create_task(first.launch(a_request()))

    async def seen() -> bool:
        return len(await second.list("cluster-1")) == 1

    await until(seen, what="the machine is listed")
    launch.cancel()
    gone = await observed(second, (await second.list("cluster-1"))[0].provider_id, Observed.GONE)
    assert gone.refusal is RefusalKind.NO_CAPACITY and "none left" in gone.message
    assert gone.paid_from is None and gone.paid_until is None
    first.close()
    second.close()


async def test_a_name_that_is_used_again_after_a_refusal_is_another_machine(engine: FakeComputeEngine) -> None:
    engine.times = replace(engine.times, operation_s=0.3)
    engine.scripts.inserts.append(FailedOperation(code="ZONE_RESOURCE_POOL_EXHAUSTED"))
    first, second = gcp_cloud(engine), gcp_cloud(engine)
    launch = asyncio.create_task(first.launch(a_request()))

    async def seen() -> bool:
        return len(await second.list("cluster-1")) == 1

    await until(seen, what="the machine is listed")
    with pytest.raises(NoCapacity):
        await launch
    await observed(second, (await second.list("cluster-1"))[0].provider_id, Observed.GONE)
    again = await first.launch(a_request())
    await observed(second, again.provider_id, Observed.RUNNING)
    first.close()
    second.close()


async def test_an_operation_that_takes_too_long(engine: FakeComputeEngine) -> None:
    engine.times = replace(engine.times, operation_s=60.0)
    hasty = gcp_cloud(engine, operation_timeout_s=0.1)
    with pytest.raises(Transient, match=r"has not ended after 0\.1 s"):
        await hasty.launch(a_request())
    hasty.close()


@pytest.mark.parametrize("spoils", [False, True], ids=["a warning", "no answer for all"])
async def test_a_zone_that_does_not_answer_loses_no_machine(
    engine: FakeComputeEngine, cloud: GcpCloud, spoils: bool
) -> None:
    engine.one_zone_spoils_the_list = spoils
    here = await cloud.launch(in_zone("i-1", "zone-a"))
    there = await cloud.launch(in_zone("i-2", "zone-b"))
    await observed(cloud, there.provider_id, Observed.RUNNING)
    engine.scripts.silent_zones.add("zone-b")
    engine.delete(name_of(here.provider_id))
    await observed(cloud, here.provider_id, Observed.GONE)
    assert (await observed(cloud, there.provider_id, Observed.RUNNING)).instance_id == "i-2"

    newcomer = gcp_cloud(engine, zones=("zone-a", "zone-b"))
    with pytest.raises(Transient, match="zone-b"):
        await newcomer.list("cluster-1")
    newcomer.close()
    elsewhere = gcp_cloud(engine, zones=("zone-a",))
    assert await elsewhere.list("cluster-1") == ()
    elsewhere.close()


async def test_a_list_that_lags_hides_no_machine_that_was_answered_for(
    engine: FakeComputeEngine, cloud: GcpCloud
) -> None:
    engine.times = replace(engine.times, list_lag_s=3600.0)
    launched = await cloud.launch(a_request())
    assert (await observed(cloud, launched.provider_id, Observed.RUNNING)).token == "token-i-1"
    await cloud.terminate([launched.provider_id])
    assert (await observed(cloud, launched.provider_id, Observed.GONE)).message == "it was deleted"


async def test_a_list_of_many_pages_is_read_to_its_end() -> None:
    with compute_engine(page=2) as engine:
        cloud = gcp_cloud(engine)
        names = [f"i-{number}" for number in range(5)]
        await asyncio.gather(*(cloud.launch(a_request(name)) for name in names))
        assert sorted(each.instance_id for each in await cloud.list("cluster-1")) == names
        cloud.close()


@pytest.mark.parametrize("how", ["power_off", "fail_host"])
async def test_what_is_left_of_a_stopped_machine_is_deleted(
    engine: FakeComputeEngine, cloud: GcpCloud, how: str
) -> None:
    launched = await cloud.launch(a_request())
    await observed(cloud, launched.provider_id, Observed.RUNNING)
    getattr(engine, how)(name_of(launched.provider_id))
    engine.scripts.deletes.append(HttpError(status=503))
    gone = await observed(cloud, launched.provider_id, Observed.GONE)
    assert gone.message == {"power_off": "it powered itself off", "fail_host": "interrupted: its host failed"}[how]
    assert launched.provider_id in engine.there()  # the first order was not taken

    async def deleted() -> bool:
        (still,) = await cloud.list("cluster-1")
        assert still == gone
        return launched.provider_id not in engine.there()

    await until(deleted, what="the disk is deleted")


async def test_a_spot_machine_that_was_taken_back_says_so_and_when(engine: FakeComputeEngine, cloud: GcpCloud) -> None:
    launched = await cloud.launch(a_request())
    await observed(cloud, launched.provider_id, Observed.RUNNING)
    engine.preempt(name_of(launched.provider_id), notice_s=0.1)
    gone = await observed(cloud, launched.provider_id, Observed.GONE)
    assert gone.message == "interrupted: Compute Engine took the spot machine back"
    ((_, start, end),) = engine.ran()
    assert (gone.paid_from, gone.paid_until) == (start, end)


async def test_deletes_are_tried_for_all_and_one_that_failed_is_told(
    engine: FakeComputeEngine, cloud: GcpCloud
) -> None:
    launched = [await cloud.launch(a_request(f"i-{number}")) for number in range(3)]
    engine.scripts.deletes.append(HttpError(status=503, message="not now"))
    with pytest.raises(Transient, match=r"1 of 3 machines were not deleted: .*not now"):
        await cloud.terminate([each.provider_id for each in launched])
    await cloud.terminate([each.provider_id for each in launched])

    async def gone() -> bool:
        return engine.there() == {}

    await until(gone, what="all are deleted")


async def test_no_list_is_no_empty_list(engine: FakeComputeEngine, cloud: GcpCloud) -> None:
    await cloud.launch(a_request())
    engine.scripts.lists.extend([HttpError(status=500)] * 3 + [LOST] * 3)  # the whole, and then each of two zones
    for _ in range(2):
        with pytest.raises(Transient):
            await cloud.list("cluster-1")
    assert len(await cloud.list("cluster-1")) == 1


def test_a_base_configuration_that_the_api_does_not_know_opens_no_cloud(engine: FakeComputeEngine) -> None:
    with pytest.raises(InvalidInput, match=r"provider\.base_config: .*diskz"):
        gcp_cloud(engine, base_config={"diskz": []})
