"""The composition root: all parts of a master, and the dependencies of each.

store -> engine -> {reporting, hub, reconcilers, checkpoint removal} -> API on one socket
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from resolute import private_files
from resolute.clock import Clock
from resolute.config import MasterConfig, PostgresDatabase
from resolute.config.pools import LOCAL_STORAGES
from resolute.errors import InvalidInput, Unavailable
from resolute.ids import IdSource
from resolute_master import bootstrap
from resolute_master.agents.booting import add_boot_routes
from resolute_master.agents.container_spec import SpecRenderer, container_defaults
from resolute_master.agents.hub import AgentHub, ClusterIdentity
from resolute_master.agents.task_users import task_users
from resolute_master.agents.websocket import add_agent_link
from resolute_master.agents.wheel import WheelCache
from resolute_master.api.app import ALL_ROUTES
from resolute_master.api.auth.authenticate import Passwords, Tokens
from resolute_master.api.context import ApiContext
from resolute_master.api.http.addresses import Addresses
from resolute_master.api.http.application import add_routes, build_application
from resolute_master.api.http.connections import Listening, allow_open_files, runner_of
from resolute_master.api.http.protocol import prove
from resolute_master.api.http.requests import Surroundings
from resolute_master.api.http.response_headers import ResponseHeaders
from resolute_master.api.http.serving import Serving
from resolute_master.api.queue.advice import PoolAdvices
from resolute_master.api.reading.log_ring import LogRing
from resolute_master.api.submission.host_paths import configured_paths, rules_of
from resolute_master.batches import in_batches
from resolute_master.domain.allocation import Allocation
from resolute_master.domain.copies import replace
from resolute_master.domain.experiment import Experiment
from resolute_master.domain.ids import PoolName
from resolute_master.domain.instance import Instance
from resolute_master.domain.job import Job
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine.checkpoint_files import CheckpointRemoval
from resolute_master.engine.checkpoint_storage import StorageAccess
from resolute_master.engine.engine import Engine
from resolute_master.engine.optuna_sampler import OptunaSampler
from resolute_master.engine.price_watch import PriceWatch
from resolute_master.engine.project_contents import ProjectContents
from resolute_master.engine.proposals import Proposals
from resolute_master.engine.reporting import Reporting
from resolute_master.forecast.advice import Advisor
from resolute_master.lifecycle.cluster import ClusterState
from resolute_master.observability.observation import Observation
from resolute_master.pools.clouds import OpenCloud, check, cloud_of, completed
from resolute_master.pools.instance_types import OpenTypes, learnt, type_source_of
from resolute_master.pools.policies import catalogues, found_again, pool_policies
from resolute_master.pools.price_sources import OpenPrices, price_source_of, price_watches
from resolute_master.pools.provisioning import Provisioning
from resolute_master.pools.remembered import remember_places
from resolute_master.seal import open_secrets
from resolute_master.seal.join_token import JoinToken
from resolute_master.store.base import Store
from resolute_master.store.recent_code import RecentCode
from resolute_master.store.sql import SqlStore, sqlite_url
from resolute_master.tls import Tls
from resolute_master.trust import Trust
from resolute_sim.twin.advisor import ProcessAdvisor
from resolute_web.interface import Interface

log = logging.getLogger(__name__)

STOP_GRACE_S = 5.0
"""Time for open requests when the master stops."""


WAITING_CONNECTIONS = 4096
"""Connections that the kernel keeps until they are accepted: after a restart every agent and every task comes at once."""

OpenStore = Callable[[MasterConfig], Awaitable[Store]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterSettings:
    """The external dependencies of a master process.

    `open_store`, `open_cloud`, `open_prices`, `open_types` and `advisor` are its edges; a master of another kind (for example with
    a failing store) uses others.
    """

    config: MasterConfig
    environ: Mapping[str, str]
    version: str
    clock: Clock
    ids: IdSource
    log: LogRing
    config_file: str = ""
    """Where `config` was read from; empty when it came from variables and flags alone."""
    open_store: OpenStore | None = None
    open_cloud: OpenCloud = cloud_of
    open_prices: OpenPrices = price_source_of
    open_types: OpenTypes = type_source_of
    advisor: Advisor | None = None
    """None: a process for each question."""


async def run_master(settings: MasterSettings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set, or until a part that the others need has failed."""
    settings = replace(settings, config=await asyncio.to_thread(completed, settings.config, settings.environ))
    check(settings.config)
    types = await learnt(settings.config, settings.open_types, settings.clock)
    pools = pool_policies(settings.config, types)  # what can be known to be wrong is known before anything is stored
    advisor = settings.advisor or ProcessAdvisor(settings.environ)
    advices = PoolAdvices(advisor=advisor, catalogues=catalogues(settings.config, types))
    await asyncio.to_thread(remember_places, settings.config)
    await asyncio.to_thread(mend_rights, settings.config, settings.config_file)
    async with AsyncExitStack() as stack:
        # The socket is bound first, so that a port in use is found before anything is stored; it listens when the state is loaded.
        listener = _bound(settings.config)
        stack.callback(listener.close)
        tls = await asyncio.to_thread(Tls.of, settings.config, settings.clock)
        log_tls(settings.config, tls)
        observation = Observation.of(settings.config, version=settings.version, clock=settings.clock)
        stack.callback(observation.close)
        wheel_cache = WheelCache(settings.version)
        store = await (settings.open_store or open_store)(settings.config)
        stack.push_async_callback(store.close)
        async with _serving(
            settings, pools, advices, observation.store(store), observation, listener, wheel_cache, tls
        ) as (
            serving,
            services,
        ):
            scheme = "https" if tls is not None else "http"
            log.info("resolute %s serves %s://%s:%d", settings.version, scheme, *listener.getsockname()[:2])
            watch = asyncio.create_task(store.watch(), name="the store")
            stack.push_async_callback(_cancel, [watch])
            await _until(stop, [*services, watch])
            serving.stop()


def _bound(config: MasterConfig) -> socket.socket:
    """A socket that does not listen yet: connections are refused, and clients retry."""
    listener = socket.socket(socket.AF_INET6 if ":" in config.host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((config.host, config.port))
    except OSError as error:
        listener.close()
        raise _port_in_use(config, error) from error
    return listener


def _port_in_use(config: MasterConfig, error: OSError) -> InvalidInput:
    return InvalidInput(
        f"port: cannot listen on {config.host}:{config.port}: {error.strerror or error}; "
        "end what uses it, or set another port"
    )


def log_tls(config: MasterConfig, tls: Tls | None) -> None:
    """Log what callers need, or what other users can read."""
    if tls is not None:
        tls.describe()
    elif not config.is_loopback:
        log.warning(
            "the master serves plain HTTP on %s: passwords, tokens and secrets of jobs can be read on the network; set "
            "security.tls.enabled, or security.tls.cert and security.tls.key",
            config.host,
        )


def mend_rights(config: MasterConfig, config_file: str) -> None:
    """Makes all private files of the master readable by its user only, and logs those that were open to others."""
    state, path, security = Path(config.cluster_state_dir), config.sqlite_path, config.security
    named = [Path(each) for each in (config_file, security.seal.key_file, security.tls.key) if each]
    directories = [state, state / "pools"]
    if path is not None:
        named += [path.with_name(f"{path.name}{end}") for end in ("", "-wal", "-shm", "-journal", ".lock", ".cluster")]
        if path.parent.is_relative_to(state):
            directories.append(path.parent)
    for sentence in private_files.mend(directories=directories, files=[*private_files.state_files(state), *named]):
        log.warning("%s", sentence)


async def open_store(config: MasterConfig) -> Store:
    """The store that the configuration names."""
    path = config.sqlite_path
    needed = [("cluster_state_dir", Path(config.cluster_state_dir))]
    if path is not None:
        needed.append(("db.path", path.parent))
    for key, directory in needed:
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInput(
                f"{key}: cannot make {directory}: {error.strerror or error}; name a directory that can be written"
            ) from error
    if path is not None:
        return await SqlStore.open(sqlite_url(path))
    assert isinstance(config.db, PostgresDatabase)
    return await _open_postgres(config.db)


async def _open_postgres(db: PostgresDatabase) -> Store:
    # Imported where it is used: the driver takes its time, and the store in a file does without.
    from resolute_master.store.sql.postgres_address import PostgresAddress
    from resolute_master.store.sql.postgres_store import PostgresStore

    return await PostgresStore.open_at(
        PostgresAddress(
            host=db.host,
            port=db.port,
            user=db.user,
            password=db.password,
            name=db.name,
            ssl_mode=db.ssl_mode,
            ssl_root_cert=db.ssl_root_cert,
        )
    )


async def _until(stop: asyncio.Event, services: list[asyncio.Task[None]]) -> None:
    """Wait for the order to stop. Raises `Unavailable` when a service ends by itself: then the whole master does."""
    stopping = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait([stopping, *services], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
    for task in services:
        if task not in done:
            continue
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        log.error("%s ended unexpectedly", task.get_name(), exc_info=error)
        what = f": {type(error).__name__}: {error}" if error is not None else " without an error"
        raise Unavailable(f"{task.get_name()} ended unexpectedly{what}") from error


class _Server:
    """The application on the socket, from the moment at which the state is loaded."""

    def __init__(self, app: web.Application, addresses: Addresses, tls: Tls | None) -> None:
        self._runner = runner_of(app, stop_grace_s=STOP_GRACE_S)
        self._addresses = addresses
        self._tls = tls
        self._listening: Listening | None = None

    async def begin(self, listener: socket.socket) -> asyncio.Task[None]:
        """Answers the task that must not end before `close`. Raises `OSError` when another socket listens on the port."""
        await self._runner.setup()
        self._listening = Listening(
            self._runner,
            limit=allow_open_files(),
            tls=None if self._tls is None else self._tls.context,
            is_proxy=self._addresses.is_proxy,
        )
        return await self._listening.begin(listener, queue=WAITING_CONNECTIONS)

    async def close(self) -> None:
        if self._listening is not None:
            await self._listening.end()
        await self._runner.cleanup()


async def _listen(
    stack: AsyncExitStack,
    settings: MasterSettings,
    observation: Observation,
    serving: Serving,
    hub: AgentHub,
    wheel_cache: WheelCache,
    listener: socket.socket,
    tls: Tls | None,
) -> asyncio.Task[None]:
    """Serve on the socket until `stack` closes: then probes report it, links of agents are closed, and open requests are
    finished. Returns the task that must not end before. Raises `InvalidInput` when another program now listens on the port."""
    pages = Interface(serving.context)
    stack.callback(pages.close)
    app = _application(settings, observation, serving, hub, wheel_cache, pages)
    server = _Server(app, serving.context.addresses, tls)
    stack.push_async_callback(server.close)
    stack.push_async_callback(hub.close)
    stack.callback(serving.stop)
    try:
        return await server.begin(listener)
    except OSError as error:
        raise _port_in_use(settings.config, error) from error


def _application(
    settings: MasterSettings,
    observation: Observation,
    serving: Serving,
    hub: AgentHub,
    wheel_cache: WheelCache,
    pages: Interface,
) -> web.Application:
    """The API, the links of the agents, what booting machines need, and the pages."""
    config = settings.config
    surroundings = Surroundings(
        clock=settings.clock,
        ids=settings.ids,
        observer=observation.requests,
        headers=ResponseHeaders(serving.context.addresses, hsts_max_age_s=config.security.tls.hsts_max_age),
    )
    app = build_application(serving, surroundings, ALL_ROUTES, enable_cors=config.enable_cors)
    add_agent_link(app, hub, watched=observation.link, welcomed=prove)
    add_boot_routes(app, hub, wheel_cache)
    add_routes(app, pages.routes)
    return app


@asynccontextmanager
async def _serving(
    settings: MasterSettings,
    pools: Mapping[PoolName, PoolPolicy],
    advices: PoolAdvices,
    store: Store,
    observation: Observation,
    listener: socket.socket,
    wheel_cache: WheelCache,
    tls: Tls | None,
) -> AsyncIterator[tuple[Serving, list[asyncio.Task[None]]]]:
    config, clock, ids = settings.config, settings.clock, settings.ids
    engine = _engine(settings, pools, store)
    identity = await bootstrap.identity(store, config, ids, settings.version)
    secrets_of = await open_secrets(store, config)
    tokens = Tokens(signing_key=await secrets_of.secret("token_key"), engine=engine, clock=clock)
    await engine.start(accept=lambda state: _check_machines(state, pools))
    _log_lost_pools(engine)
    async with AsyncExitStack() as stack:
        services = [asyncio.create_task(engine.run(), name="engine")]
        stack.push_async_callback(_cancel, services)
        passwords = Passwords()
        await bootstrap.first_users(engine, config, Path(config.cluster_state_dir), passwords.hash)
        reporting = Reporting(store, engine)
        stack.push_async_callback(reporting.close)
        recent_code = RecentCode()
        join_token = await JoinToken.open(secrets_of, config)
        renderer = _renderer(config, tokens, recent_code, observation)
        join_key = bytes.fromhex(await secrets_of.secret("join_key"))
        hub = _hub(settings, engine, store, reporting, renderer, identity, join_key, join_token)
        observation.watch(engine, store, reporting)
        services += observation.services()
        watches = await asyncio.to_thread(price_watches, config, engine, settings.open_prices, clock, ids)
        context = _context(
            settings,
            store,
            engine,
            reporting,
            identity,
            tokens,
            passwords,
            recent_code,
            observation,
            watches,
            join_token,
            advices,
        )
        sweeps: list[asyncio.Task[None]] = []
        stack.push_async_callback(_cancel, sweeps)
        serving = Serving(context)
        services.append(await _listen(stack, settings, observation, serving, hub, wheel_cache, listener, tls))
        sweeps.append(asyncio.create_task(_sweep(context), name="sweep of uploads"))
        services.append(asyncio.create_task(Proposals(engine, OptunaSampler()).run(), name="proposals"))
        services += [asyncio.create_task(watch.run(), name=f"prices of {watch.pool}") for watch in watches]
        services += await _hands(settings, store, engine, hub, identity, wheel_cache, tls)
        if tls is not None:
            services.append(asyncio.create_task(tls.watch(), name="watch of the certificate"))
        await _log_lost_files(engine, config)
        yield serving, services


def _engine(settings: MasterSettings, pools: Mapping[PoolName, PoolPolicy], store: Store) -> Engine:
    return Engine(
        store=store,
        clock=settings.clock,
        ids=settings.ids,
        pools=pools,
        version=settings.version,
        retain_snapshots=settings.config.journal.retain_snapshots,
    )


def _hub(
    settings: MasterSettings,
    engine: Engine,
    store: Store,
    reporting: Reporting,
    renderer: SpecRenderer,
    identity: ClusterIdentity,
    join_key: bytes,
    join_token: JoinToken,
) -> AgentHub:
    return AgentHub(
        engine=engine,
        store=store,
        reporting=reporting,
        renderer=renderer,
        identity=identity,
        clock=settings.clock,
        heartbeat_s=settings.config.heartbeat_interval,
        join_key=join_key,
        cluster_token=join_token,
    )


def _renderer(config: MasterConfig, tokens: Tokens, recent_code: RecentCode, observation: Observation) -> SpecRenderer:
    return SpecRenderer(
        task_token=tokens.issue_allocation,
        user_token=tokens.issue_task_user,
        code_of=recent_code.find,
        trace_of=observation.trace_of,
        defaults=container_defaults(config),
        configured_paths=tuple(configured_paths(config)),
        task_users=task_users(config),
    )


async def _hands(
    settings: MasterSettings,
    store: Store,
    engine: Engine,
    hub: AgentHub,
    identity: ClusterIdentity,
    wheel_cache: WheelCache,
    tls: Tls | None,
) -> list[asyncio.Task[None]]:
    """What carries out decisions: in the checkpoint storage, in the clouds, and for every experiment of a project."""
    access = StorageAccess(rules=rules_of(settings.config, _own_files(settings)))
    removal = CheckpointRemoval(engine, store, access, cluster_id=identity.cluster_id)
    provisioning = Provisioning(
        config=settings.config,
        environ=settings.environ,
        clock=settings.clock,
        ids=settings.ids,
        open_cloud=settings.open_cloud,
        store=store,
        engine=engine,
        join_token=hub.join_token,
        cluster_id=identity.cluster_id,
        wheel=lambda: wheel_cache.wheel().reference,
        trust=lambda: Trust() if tls is None else tls.trust,
    )
    return [
        asyncio.create_task(removal.run(), name="checkpoint removal"),
        asyncio.create_task(ProjectContents(engine, store).run(), name="contents of projects"),
        *await provisioning.start(),
    ]


def _check_machines(state: ClusterState, pools: Mapping[PoolName, PoolPolicy]) -> None:
    """No machine may be forgotten: one whose cloud is no longer asked would be paid for ever. Its offer may leave the
    configuration: each machine remembers its own. To be asked before anything is decided by this configuration: else a start
    that is refused leaves machines of it, and the one before is refused as well."""
    for instance in state.all(Instance):
        pool = pools.get(instance.pool)
        scaling = pool.scaling if pool is not None else None
        if not found_again(instance, () if scaling is None else scaling.offers):
            raise InvalidInput(
                f"resource_pools: machine '{instance.id}' of pool '{instance.pool}' is not over, and the configuration no "
                f"longer has the cloud and region that it is in ({instance.offer_id}); put the pool back, with "
                "max_instances as low as you like, until its machines have ended"
            )


def _log_lost_pools(engine: Engine) -> None:
    """Jobs of a pool that the configuration no longer has wait until a user moves them; running tasks of others end."""
    there = {(job.pool, job.id) for job in engine.state.all(Job) if not job.ended}
    there |= {(each.pool, each.job_id) for each in engine.state.all(Allocation) if not each.ended}
    lost = Counter(pool for pool, _ in there if pool not in engine.pools)
    for pool, jobs in sorted(lost.items()):
        log.warning(
            "resource_pools: pool '%s', which %d job(s) are in, is not configured any more; put it back, or move them with "
            "`det job update ID --resource-pool POOL`",
            pool,
            jobs,
        )


async def _log_lost_files(engine: Engine, config: MasterConfig) -> None:
    """Experiments whose pool keeps no files by this configuration. They were accepted under another one, and continue."""
    losing = {pool.pool_name for pool in config.resource_pools if any(map(pool.loses_files_of, LOCAL_STORAGES))}

    def tell(job: Job) -> None:
        found = engine.state.get(Experiment, job.experiment_id) if job.experiment_id is not None else None
        storage = None if found is None else found.config.get("checkpoint_storage")
        if storage and (why := config.pool_loses_files(job.pool, storage["type"])):
            log.warning("experiment %s: checkpoint_storage.type: %s", job.experiment_id, why)

    await in_batches([job for job in engine.state.all(Job) if not job.ended and job.pool in losing], tell)


async def _cancel(services: list[asyncio.Task[None]]) -> None:
    for task in services:
        task.cancel()
    await asyncio.gather(*services, return_exceptions=True)


def _context(
    settings: MasterSettings,
    store: Store,
    engine: Engine,
    reporting: Reporting,
    identity: ClusterIdentity,
    tokens: Tokens,
    passwords: Passwords,
    recent_code: RecentCode,
    observation: Observation,
    watches: Sequence[PriceWatch],
    join_token: JoinToken,
    advices: PoolAdvices,
) -> ApiContext:
    return ApiContext(
        engine=engine,
        store=store,
        reporting=reporting,
        clock=settings.clock,
        ids=settings.ids,
        config=settings.config,
        tokens=tokens,
        passwords=passwords,
        cluster_id=identity.cluster_id,
        master_id=identity.master_id,
        version=identity.version,
        own_files=_own_files(settings),
        master_log=settings.log,
        exposition=observation.exposition,
        recent_code=recent_code,
        swept=asyncio.Event(),
        price_watches=watches,
        addresses=Addresses(settings.config.security.trusted_proxies),
        join_token=join_token,
        advices=advices,
    )


def _own_files(settings: MasterSettings) -> tuple[str, ...]:
    """The master's own files, which are never a storage."""
    return (settings.config_file,) if settings.config_file else ()


async def _sweep(context: ApiContext) -> None:
    """Archives that were stored for experiments which never came to be, or have been deleted since."""
    try:
        removed = await context.store.remove_unused_contexts()
    finally:
        context.swept.set()
    if removed:
        log.info("removed %d uploaded archive(s) that no experiment has", removed)
