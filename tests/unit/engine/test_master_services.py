"""What runs around the engine in a master: its parts' ends, its first users, its scripted interruptions."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiohttp import ClientConnectionError, ClientSession, ClientWebSocketResponse, WSCloseCode, WSMsgType

from resolute.clock import SystemClock
from resolute.config import MasterConfig, load_master_config, parse_master_config
from resolute.errors import InvalidInput, NotFound, Unavailable
from resolute.ids import SystemIds
from resolute.wire.agent_link import Welcome
from resolute.wire.states import ContainerState
from resolute_agent.link import decode_master_frame, encode_frame
from resolute_master.agents.websocket import LINK_PATH
from resolute_master.api.reading.log_ring import LogRing
from resolute_master.app import (
    MasterSettings,
    _check_machines,
    _log_lost_files,
    _log_lost_pools,
    _until,
    open_store,
    run_master,
)
from resolute_master.bootstrap import PASSWORD_FILE, first_users
from resolute_master.domain.agent import Agent
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.commands import KillExperiment, RecordReports, StoredReport, UpdateJob
from resolute_master.domain.copies import replace
from resolute_master.domain.ids import ExperimentId, PoolName
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy
from resolute_master.domain.user import User
from resolute_master.engine.engine import Engine
from resolute_master.pools.scripted_interruptions import InterruptionsBySteps
from resolute_master.store.base import Store
from resolute_master.store.memory import MemoryStore
from resolute_provisioner.clouds.driver import StepInterruption
from resolute_provisioner.model import Market, Offer, PoolScaling
from support.cluster import T0, an_instance
from support.engines import (
    DEFAULT,
    POOLS,
    AgentByHand,
    a_config,
    a_user,
    an_engine,
    an_experiment,
    joined,
    launched,
    running,
)
from support.hubs import a_hello
from support.stores import a_change

# ------------------------------------------------------------------------------------------------------ its own parts


async def test_a_master_runs_until_it_is_told_to_stop() -> None:
    stop = asyncio.Event()
    service = asyncio.create_task(asyncio.Event().wait(), name="engine")
    waiting = asyncio.create_task(_until(stop, [service]))  # type: ignore[list-item]
    await asyncio.sleep(0)
    assert not waiting.done()
    stop.set()
    await waiting
    service.cancel()


async def fails() -> None:
    raise OSError("no space left on device")


async def ends() -> None:
    pass


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (fails, "engine ended unexpectedly: OSError: no space left on device"),
        (ends, "engine ended unexpectedly without an error"),
    ],
)
async def test_a_part_that_ends_by_itself_ends_the_master_with_the_reason(part: object, message: str) -> None:
    service = asyncio.create_task(part(), name="engine")  # type: ignore[operator]
    with pytest.raises(Unavailable, match=message):
        await _until(asyncio.Event(), [service])


def the_sweep() -> asyncio.Task[object]:
    return next(task for task in asyncio.all_tasks() if task.get_name() == "sweep of connections")


def settings_in(tmp_path: Path) -> MasterSettings:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return MasterSettings(
        config=load_master_config(
            None,
            {},
            {
                "host": "127.0.0.1",
                "port": str(port),
                "db-path": str(tmp_path / "db"),
                "cluster-state-dir": str(tmp_path),
            },
        ),
        environ={},
        version="test",
        clock=SystemClock(),
        ids=SystemIds(),
        log=LogRing(),
    )


async def test_a_master_that_loses_a_part_closes_the_links_of_agents_and_ends_with_the_reason(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    master = asyncio.create_task(run_master(settings, asyncio.Event()))
    url = f"http://127.0.0.1:{settings.config.port}{LINK_PATH}"
    async with asyncio.timeout(60), ClientSession() as http:
        while (link := await linked(http, url)) is None:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
        token = (tmp_path / "join-token").read_text().strip()
        await link.send_str(encode_frame(a_hello(join_token=token)))
        told = [await link.receive()]
        the_sweep().cancel()
        while told[-1].type is WSMsgType.TEXT:
            told.append(await link.receive())
        assert isinstance(decode_master_frame(told[0].data), Welcome)
        assert (told[-1].type, told[-1].data) == (WSMsgType.CLOSE, WSCloseCode.OK), "the link was cut"
        with pytest.raises(Unavailable, match="sweep of connections ended unexpectedly: CancelledError"):
            await master


async def test_the_socket_refuses_connections_until_the_state_is_loaded(tmp_path: Path) -> None:
    stop, asked, there = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow_store(config: MasterConfig) -> Store:
        asked.set()
        await there.wait()
        return await open_store(config)

    settings = replace(settings_in(tmp_path), open_store=slow_store)
    url = f"http://127.0.0.1:{settings.config.port}/ready"
    master = asyncio.create_task(run_master(settings, stop))
    async with asyncio.timeout(60), ClientSession() as http:
        await asked.wait()
        with pytest.raises(ClientConnectionError):
            await http.get(url)
        there.set()
        while (status := await status_of(http, url)) is None:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
        assert status == 200, "the first answer comes when the master can be given work"
        stop.set()
        await master


async def test_a_port_in_use_is_found_before_the_store_is_opened(tmp_path: Path) -> None:
    async def no_store(_: MasterConfig) -> Store:
        raise AssertionError("the store was opened")

    settings = replace(settings_in(tmp_path), open_store=no_store)
    with (
        socket.create_server(("127.0.0.1", settings.config.port)),
        pytest.raises(InvalidInput, match=f"port: cannot listen on 127.0.0.1:{settings.config.port}: .* in use"),
    ):
        await run_master(settings, asyncio.Event())


async def status_of(http: ClientSession, url: str) -> int | None:
    """None before the master listens."""
    try:
        async with http.get(url) as answer:
            return answer.status
    except ClientConnectionError:
        return None


async def linked(http: ClientSession, url: str) -> ClientWebSocketResponse | None:
    """None before the master listens."""
    try:
        return await http.ws_connect(url)
    except ClientConnectionError:
        return None


# -------------------------------------------------------------------------------------------------------- first users


async def hashed(password: str) -> str:
    return f"hash of {password}"


async def test_the_first_users_come_in_one_commit_with_a_password_that_only_the_file_tells(tmp_path: Path) -> None:
    store = MemoryStore()
    async with running(an_engine(store)) as engine:
        await first_users(engine, MasterConfig(), tmp_path, hashed)
        assert [(user.username, user.admin) for user in engine.state.all(User)] == [
            ("admin", True),
            ("determined", False),
        ]
    sizes = [
        len(json.loads(entry.commands)) for entry in store.tables.journal.values() if b"CreateUser" in entry.commands
    ]
    assert sizes == [2]
    path = tmp_path / PASSWORD_FILE
    password = path.read_text().strip()
    assert len(password) >= 16 and path.stat().st_mode & 0o077 == 0
    assert not any(password.encode() in entry.commands for entry in store.tables.journal.values())


def files_in(directory: Path) -> list[Path]:
    return list(directory.iterdir())


async def test_users_that_are_there_are_left_alone(tmp_path: Path) -> None:
    async with running(an_engine(MemoryStore())) as engine:
        await a_user(engine)
        await first_users(engine, MasterConfig(), tmp_path, hashed)
        assert [user.username for user in engine.state.all(User)] == ["ada"]
    assert files_in(tmp_path) == []


# ----------------------------------------------------------------------------------------------- scripted interruptions


class CloudByHand:
    def __init__(self) -> None:
        self.taken: list[tuple[str, float | None]] = []
        self.asked = asyncio.Event()

    async def interrupt(self, provider_id: str, *, notice_s: float | None, reason: str = "") -> None:
        self.taken.append((provider_id, notice_s))
        self.asked.set()


class CloudWithoutFirst(CloudByHand):
    """Its first machine is gone before it is interrupted."""

    async def interrupt(self, provider_id: str, *, notice_s: float | None, reason: str = "") -> None:
        if notice_s is not None:
            raise NotFound("running instance", provider_id)
        await super().interrupt(provider_id, notice_s=notice_s, reason=reason)


OFFER = Offer(offer_id="local", instance_type="local", zone="z", market=Market.ON_DEMAND, slots=1, price_per_hour=1.0)
ELASTIC = {DEFAULT: PoolPolicy(name=DEFAULT, scaling=PoolScaling(pool="default", offers=(OFFER,), max_instances=4))}
SCRIPT = (
    StepInterruption(instance=1, after_steps=10, notice_s=5),
    StepInterruption(instance=2, after_steps=20, notice_s=None),
)


async def machines_join(engine: Engine) -> None:
    for number, instance in enumerate(engine.state.all(Instance)):
        await launched(engine, instance, T0)
        await joined(engine, instance, incarnation=str(number))


async def everything_runs(engine: Engine) -> None:
    for agent in engine.state.all(Agent):
        hand = AgentByHand(engine, agent.id, incarnation=agent.incarnation)
        for container in hand.containers():
            await hand.report(container, ContainerState.RUNNING)


async def reach(engine: Engine, steps: int) -> None:
    reports = tuple(
        StoredReport(trial=a.trial_id, run_id=a.run_id, steps_completed=steps, validation=None, reported_at=T0)
        for a in engine.state.all(Allocation)
        if a.trial_id is not None
    )
    await engine.submit(RecordReports(reports=reports))


async def watched(
    engine: Engine, store: MemoryStore, cloud: CloudByHand, steps: Sequence[int]
) -> list[tuple[str, float | None]]:
    task = asyncio.create_task(InterruptionsBySteps(engine, store, cloud, DEFAULT, SCRIPT).run())
    await asyncio.sleep(0.01)
    for each in steps:
        await reach(engine, each)
    async with asyncio.timeout(10):
        await cloud.asked.wait()
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return cloud.taken


async def test_machines_are_numbered_by_their_launch_also_over_a_restart_of_the_master() -> None:
    store = MemoryStore()
    async with running(an_engine(store, pools=ELASTIC)) as engine:
        owner = await a_user(engine)
        for _ in range(2):
            await an_experiment(engine, owner)
        await machines_join(engine)
        await everything_runs(engine)
        launched = sorted((i.launched_at, i.id) for i in engine.state.all(Instance) if i.launched_at)
        first, second = (id_ for _, id_ in launched)
        assert await watched(engine, store, CloudByHand(), (9, 10)) == [(first, 5)]
    async with running(an_engine(store, seed=2, pools=ELASTIC)) as engine:
        # The first machine's row has no notice yet: asking again is harmless. The second keeps its number.
        assert await watched(engine, store, CloudByHand(), (20,)) == [(first, 5), (second, None)]


async def test_a_machine_that_is_gone_before_its_interruption_ends_nothing() -> None:
    store = MemoryStore()
    async with running(an_engine(store, pools=ELASTIC)) as engine:
        owner = await a_user(engine)
        for _ in range(2):
            await an_experiment(engine, owner)
        await machines_join(engine)
        await everything_runs(engine)
        _, second = sorted((i.launched_at, i.id) for i in engine.state.all(Instance) if i.launched_at)
        assert await watched(engine, store, CloudWithoutFirst(), (20,)) == [(second[1], None)]


async def test_a_machine_whose_pool_has_left_the_configuration_is_not_forgotten() -> None:
    store = MemoryStore()
    machine = an_instance()
    await store.commit(a_change(1, upserts=(machine,)))
    renamed = PoolName("renamed")
    scaling = PoolScaling(pool=renamed, offers=(OFFER,), min_instances=1, max_instances=4)
    pools = {renamed: PoolPolicy(name=renamed, scaling=scaling)}
    with pytest.raises(InvalidInput, match="machine 'instance-1' of pool 'default' is not over"):
        await an_engine(store, pools=pools).start(accept=lambda state: _check_machines(state, pools))
    # Nothing was decided by it: else what it has launched would keep the configuration before from being put back.
    assert await store.instances() == (machine,)


async def test_jobs_whose_pool_has_left_the_configuration_are_told_of_at_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, other = MemoryStore(), PoolName("other")
    async with running(an_engine(store, pools={**POOLS, other: PoolPolicy(name=other)})) as engine:
        owner = await a_user(engine)
        for pool in (other, other, DEFAULT):
            await an_experiment(engine, owner, pool=pool)
        await engine.submit(KillExperiment(experiment=ExperimentId(1)))
    with caplog.at_level(logging.WARNING, "resolute_master.app"):
        async with running(an_engine(store, seed=2)) as engine:
            _log_lost_pools(engine)
    (line,) = caplog.messages
    assert line.startswith(
        "resource_pools: pool 'other', which 1 job(s) are in, is not configured any more; put it back"
    )


async def test_experiments_whose_pool_now_loses_their_checkpoints_are_told_of_at_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = {"machine_type": "n1-standard-8"}
    provider = {"type": "gcp", "project": "p", "zone": "us-central1-a", "instance_type": machine}
    rented, kept = {"pool_name": DEFAULT, "provider": provider}, {"pool_name": "own"}
    config = parse_master_config(
        {"checkpoint_storage": {"type": "s3", "bucket": "b"}, "resource_pools": [rented, kept]}
    )
    on_disk = {**a_config(), "checkpoint_storage": {"type": "shared_fs", "host_path": "/data"}}
    in_bucket = {**a_config(), "checkpoint_storage": {"type": "s3", "bucket": "b"}}
    own = PoolName("own")
    async with running(an_engine(MemoryStore(), pools={**POOLS, own: PoolPolicy(name=own)})) as engine:
        owner = await a_user(engine)
        for settings, pool in ((on_disk, DEFAULT), (in_bucket, DEFAULT), (on_disk, own), (on_disk, DEFAULT)):
            await an_experiment(engine, owner, settings, pool=pool)
        await engine.submit(KillExperiment(experiment=ExperimentId(4)))
        with caplog.at_level(logging.WARNING, "resolute_master.app"):
            await _log_lost_files(engine, config)
    (line,) = caplog.messages
    assert line.startswith("experiment 1: checkpoint_storage.type: pool 'default' rents its machines")


async def test_of_a_pool_that_is_gone_a_job_that_was_moved_out_of_it_is_told_as_long_as_something_of_it_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, other = MemoryStore(), PoolName("other")
    async with running(an_engine(store, pools={**POOLS, other: PoolPolicy(name=other)})) as engine:
        await AgentByHand(engine, pool=other).register()
        await AgentByHand(engine, "agent-2").register()
        await an_experiment(engine, await a_user(engine), pool=other)
        (job,) = engine.state.all(Job)
        await engine.submit(UpdateJob(job=job.id, pool=DEFAULT))
    with caplog.at_level(logging.WARNING, "resolute_master.app"):
        async with running(an_engine(store, seed=2)) as engine:
            _log_lost_pools(engine)
    assert "pool 'other', which 1 job(s) are in" in caplog.text
