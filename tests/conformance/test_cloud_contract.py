"""The contract of the cloud port, held against every implementation that runs without an account."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from resolute.providers import PROVIDERS, part
from resolute_provisioner.clouds.base import CLOUD_ERRORS, BadRequest, Cloud, CloudInstance
from resolute_provisioner.clouds.fake_world import OpenWorld, World
from resolute_provisioner.model import Observed, RefusalKind
from support.provisioner import a_request, an_offer
from support.provisioner_worlds import FakeWorld, Scenario, run_virtually, until

Run = Callable[..., None]


@pytest.fixture(params=["fake", *PROVIDERS])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Run]:
    """Runs a scenario in a world of this kind; refusals are those of the first launch requests."""
    with ExitStack() as worlds:

        def run_scenario(scenario: Scenario, refusals: tuple[RefusalKind, ...] = ()) -> None:
            if request.param == "fake":
                run_virtually(lambda clock: _in(FakeWorld(clock, refusals), scenario))
            else:
                open_world: OpenWorld = part(request.param, "fake", "open_world")
                world = worlds.enter_context(open_world(tmp_path / "cloud", an_offer(), refusals))
                asyncio.run(_in(world, scenario))

        yield run_scenario


async def _in(world: World, scenario: Scenario) -> None:
    await scenario(world)


async def listed(cloud: Cloud, provider_id: str, cluster: str = "cluster-1") -> CloudInstance | None:
    return next((each for each in await cloud.list(cluster) if each.provider_id == provider_id), None)


async def until_observed(cloud: Cloud, provider_id: str, observed: Observed) -> CloudInstance:
    async def is_there() -> bool:
        machine = await listed(cloud, provider_id)
        return machine is not None and machine.observed is observed

    await until(is_there, what=f"{provider_id} is {observed}")
    machine = await listed(cloud, provider_id)
    assert machine is not None
    return machine


def test_a_machine_is_pending_then_running_and_paid_from_then_on(run: Run) -> None:
    async def scenario(world: World) -> None:
        launched = await world.cloud.launch(a_request())
        assert launched.observed in (Observed.PENDING, Observed.RUNNING)
        running = await until_observed(world.cloud, launched.provider_id, Observed.RUNNING)
        assert (running.token, running.instance_id, running.pool) == ("token-i-1", "i-1", "default")
        assert running.requested_at is not None and running.paid_from is not None
        assert running.requested_at <= running.paid_from and running.paid_until is None
        assert world.machine_is_there(launched.provider_id)

    run(scenario)


def test_a_token_names_one_machine_also_for_another_process(run: Run) -> None:
    async def scenario(world: World) -> None:
        first = await world.cloud.launch(a_request())
        again = await world.cloud.launch(a_request())
        elsewhere = await world.reopened().launch(a_request())
        assert first.provider_id == again.provider_id == elsewhere.provider_id
        assert len(await world.cloud.list("cluster-1")) == 1

    run(scenario)


def test_calls_at_the_same_time_give_one_machine(run: Run) -> None:
    async def scenario(world: World) -> None:
        answers = await asyncio.gather(*(world.reopened().launch(a_request()) for _ in range(5)))
        assert len({each.provider_id for each in answers}) == 1
        assert len(await world.cloud.list("cluster-1")) == 1

    run(scenario)


def test_a_token_is_remembered_past_the_end_of_its_machine(run: Run) -> None:
    async def scenario(world: World) -> None:
        launched = await world.cloud.launch(a_request())
        await world.cloud.terminate([launched.provider_id])
        await until_observed(world.cloud, launched.provider_id, Observed.GONE)
        again = await world.cloud.launch(a_request())
        assert again.provider_id == launched.provider_id and again.observed is Observed.GONE
        assert not world.machine_is_there(launched.provider_id)

    run(scenario)


def test_an_instance_id_is_used_once(run: Run) -> None:
    async def scenario(world: World) -> None:
        await world.cloud.launch(a_request())
        with pytest.raises(BadRequest, match="i-1"):
            await world.cloud.launch(a_request(token="another"))

    run(scenario)


@pytest.mark.parametrize("kind", list(RefusalKind))
def test_a_refusal_is_typed_leaves_nothing_and_is_not_for_ever(run: Run, kind: RefusalKind) -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(CLOUD_ERRORS[kind]) as refused:
            await world.cloud.launch(a_request())
        assert refused.value.kind is kind and str(refused.value)
        assert await world.cloud.list("cluster-1") == ()
        assert (await world.cloud.launch(a_request())).provider_id

    run(scenario, refusals=(kind,))


def test_refusals_are_counted_over_processes(run: Run) -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(CLOUD_ERRORS[RefusalKind.NO_CAPACITY]):
            await world.cloud.launch(a_request())
        with pytest.raises(CLOUD_ERRORS[RefusalKind.QUOTA_EXCEEDED]):
            await world.reopened().launch(a_request())
        await world.reopened().launch(a_request())

    run(scenario, refusals=(RefusalKind.NO_CAPACITY, RefusalKind.QUOTA_EXCEEDED))


def test_terminate_ends_the_machine_and_its_bill(run: Run) -> None:
    async def scenario(world: World) -> None:
        launched = await world.cloud.launch(a_request())
        await until_observed(world.cloud, launched.provider_id, Observed.RUNNING)
        await world.cloud.terminate([launched.provider_id])
        await world.cloud.terminate([launched.provider_id])
        gone = await until_observed(world.cloud, launched.provider_id, Observed.GONE)
        assert gone.paid_from is not None and gone.paid_until is not None and gone.paid_from <= gone.paid_until
        assert gone.message
        assert not world.machine_is_there(launched.provider_id)
        await world.cloud.terminate([launched.provider_id])

    run(scenario)


def test_a_machine_ended_while_it_boots_is_never_paid(run: Run) -> None:
    async def scenario(world: World) -> None:
        launched = await world.cloud.launch(a_request())
        await world.cloud.terminate([launched.provider_id])
        gone = await until_observed(world.cloud, launched.provider_id, Observed.GONE)
        if gone.paid_from is None:
            assert gone.paid_until is None
        else:  # a cloud that tells of the launch alone: then nothing may be said to be paid before it or after the end
            assert gone.requested_at == gone.paid_from <= (gone.paid_until or gone.paid_from)

    run(scenario)


def test_terminating_what_never_was_succeeds(run: Run) -> None:
    async def scenario(world: World) -> None:
        await world.cloud.terminate(["no-such-machine", "../elsewhere"])
        await world.cloud.terminate([])
        assert await world.cloud.list("cluster-1") == ()

    run(scenario)


def test_a_list_shows_one_cluster_in_order(run: Run) -> None:
    async def scenario(world: World) -> None:
        for name, cluster in (("i-2", "cluster-1"), ("i-1", "cluster-1"), ("i-3", "cluster-2")):
            await world.cloud.launch(a_request(name, cluster=cluster))
        ours = await world.reopened().list("cluster-1")
        assert [each.provider_id for each in ours] == sorted(each.provider_id for each in ours)
        assert {each.instance_id for each in ours} == {"i-1", "i-2"}
        assert [each.instance_id for each in await world.cloud.list("cluster-2")] == ["i-3"]
        assert await world.cloud.list("cluster-3") == ()

    run(scenario)


@pytest.mark.parametrize("notice_s", [None, 0.3])
def test_an_interrupted_machine_is_gone_and_no_longer_paid(run: Run, notice_s: float | None) -> None:
    async def scenario(world: World) -> None:
        launched = await world.cloud.launch(a_request())
        await until_observed(world.cloud, launched.provider_id, Observed.RUNNING)
        await world.interrupt(launched.provider_id, notice_s)
        gone = await until_observed(world.cloud, launched.provider_id, Observed.GONE)
        assert gone.paid_until is not None and "interrupted" in gone.message
        assert not world.machine_is_there(launched.provider_id)

    run(scenario)
