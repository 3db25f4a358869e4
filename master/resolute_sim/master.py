"""One master process over a store that outlives it: the production engine, hub and reconcilers, without HTTP."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import Any, Protocol, TypeVar

from resolute.clock import Clock
from resolute.errors import Unavailable
from resolute.host_paths import HostPathRules
from resolute.ids import SeededIds
from resolute_master.agents.container_spec import SpecRenderer
from resolute_master.agents.hub import AgentHub, ClusterIdentity
from resolute_master.domain.change import Change
from resolute_master.domain.commands import Command
from resolute_master.domain.ids import PoolName
from resolute_master.domain.instance import Instance
from resolute_master.domain.pool import PoolPolicy
from resolute_master.engine.checkpoint_files import CheckpointRemoval
from resolute_master.engine.checkpoint_storage import StorageAccess
from resolute_master.engine.cycle import RuleFault
from resolute_master.engine.engine import Engine
from resolute_master.engine.price_watch import PriceWatch
from resolute_master.engine.provisioning import PoolLedger, about_machines
from resolute_master.engine.reporting import Reporting
from resolute_master.seal.join_token import JoinToken
from resolute_master.store.base import Store
from resolute_master.store.memory import CommitHook, MemoryStore, MemoryTables
from resolute_provisioner.bootstrap import MachineBoot
from resolute_provisioner.clouds.base import Cloud, CloudCapabilities, CloudInstance, Launched, LaunchRequest
from resolute_provisioner.clouds.fake import Range
from resolute_provisioner.prices import PriceSource
from resolute_provisioner.reconcile import Reconciler

Result = TypeVar("Result")

CLUSTER = "simulated"
JOIN_KEY = b"the key of a simulated cluster"
JOIN_TOKEN = "the join token of a simulated cluster"
WHOLE_JOURNAL = 1_000_000
"""Snapshots to keep: all of them, so that the whole life of a world can be replayed."""


class Killed(Exception):
    """The process has been killed at this point."""


class Observer(Protocol):
    """Sees each committed change of whichever master is alive."""

    def committed(self, master: SimulatedMaster, change: Change) -> None: ...

    def failed(self, fault: RuleFault) -> None:
        """A rule has a bug."""
        ...


class UnansweredCloud:
    """A cloud behind a process that may be killed: a sent request is carried out, whether or not its caller still waits."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._requests: set[asyncio.Task[Any]] = set()

    @property
    def capabilities(self) -> CloudCapabilities:
        return self._cloud.capabilities

    async def launch(self, request: LaunchRequest) -> Launched:
        return await self._send(self._cloud.launch(request))

    async def terminate(self, provider_ids: Collection[str]) -> None:
        await self._send(self._cloud.terminate(provider_ids))

    async def list(self, cluster: str) -> tuple[CloudInstance, ...]:
        return await self._send(self._cloud.list(cluster))

    async def _send(self, request: Coroutine[Any, Any, Result]) -> Result:
        task = asyncio.create_task(request)
        self._requests.add(task)
        task.add_done_callback(self._answered)
        return await asyncio.shield(task)

    def _answered(self, task: asyncio.Task[Any]) -> None:
        self._requests.discard(task)
        if not task.cancelled():
            task.exception()  # retrieve the exception: there may be no other caller


class LatentStore(MemoryStore):
    """A store whose commits take their time, so that the world continues meanwhile."""

    def __init__(self, tables: MemoryTables, *, hook: CommitHook, rng: random.Random, commit_s: Range) -> None:
        super().__init__(tables, hook=hook)
        self._rng = rng
        self._commit_s = commit_s
        self.committing = False

    async def commit(self, change: Change) -> None:
        self.committing = True
        await asyncio.sleep(self._rng.uniform(*self._commit_s))
        await super().commit(change)
        self.committing = False


class WatchedEngine(Engine):
    """The production engine, whose faulty rules are not only logged."""

    def __init__(self, *, observer: Observer, **settings: Any) -> None:
        super().__init__(**settings)
        self._observer = observer

    async def submit(self, command: Command) -> Any:
        try:
            return await super().submit(command)
        except RuleFault as fault:
            self._observer.failed(fault)
            raise


class SimulatedMaster:
    """`await start()`, then talk to `engine`, `reporting` and `hub`; `kill()` is a SIGKILL."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        seed: int,
        pools: Mapping[PoolName, PoolPolicy],
        cloud: Cloud,
        heartbeat_s: float,
        observer: Observer,
        prices: PriceSource,
        prices_asked_every_s: float | None,
        retain_snapshots: int = WHOLE_JOURNAL,
        **engine: Any,
    ) -> None:
        """`prices_asked_every_s` None: prices are not queried. `engine` are further settings of the engine."""
        self.store = store
        self.engine = WatchedEngine(
            observer=observer,
            store=self.store,
            clock=clock,
            ids=SeededIds(seed),
            pools=pools,
            version="simulated",
            retain_snapshots=retain_snapshots,
            **engine,
        )
        self.dead = asyncio.Event()
        self._pools = pools
        self._clock = clock
        self._cloud = cloud
        self._heartbeat_s = heartbeat_s
        self._observer = observer
        self._prices = prices
        self._prices_asked_every_s = prices_asked_every_s
        self._rng = random.Random(seed)
        self._rng_of_prices = random.Random(seed + 2)
        self._services: list[asyncio.Task[Any]] = []
        self._connections: dict[asyncio.Task[None], None] = {}
        self.price_watches: list[PriceWatch] = []
        self.reporting: Reporting
        self.hub: AgentHub

    @property
    def committing(self) -> bool:
        """In the middle of a commit the memory is not what is stored."""
        return isinstance(self.store, LatentStore) and self.store.committing

    async def start(self) -> None:
        """Raises what the commit hook raises: the process dies in its first cycle."""
        self.engine.on_commit(lambda change: self._observer.committed(self, change))
        await self.engine.start()
        self._services.append(asyncio.create_task(self.engine.run(), name="engine"))
        self.reporting = Reporting(self.store, self.engine)
        self.hub = AgentHub(
            engine=self.engine,
            store=self.store,
            reporting=self.reporting,
            renderer=SpecRenderer(
                task_token=lambda allocation, owner: f"task:{allocation}",
                user_token=lambda allocation, owner: f"user:{owner}",
            ),
            identity=ClusterIdentity(
                cluster_id=CLUSTER, cluster_name=CLUSTER, master_id="simulated", version="simulated"
            ),
            clock=self._clock,
            heartbeat_s=self._heartbeat_s,
            join_key=JOIN_KEY,
            cluster_token=JoinToken(JOIN_TOKEN, kept=None),
        )
        removal = CheckpointRemoval(
            self.engine,
            self.store,
            StorageAccess(rules=HostPathRules(remedy="")),
            cluster_id="simulation",
            blocking=_without_a_thread,
        )
        self._services.append(asyncio.create_task(removal.run(), name="checkpoint removal"))
        for name, policy in sorted(self._pools.items()):
            if policy.scaling is not None:
                self._provision(name, policy)

    def _provision(self, name: PoolName, policy: PoolPolicy) -> None:
        tag = f"{CLUSTER}/{name}"
        ledger = PoolLedger(self.engine, policy, cluster=tag, boot=self._boot)
        reconciler = Reconciler(
            cloud=self._cloud,
            cluster=tag,
            ledger=ledger,
            clock=self._clock,
            rng=random.Random(self._rng.getrandbits(64)),
        )
        self.engine.on_commit(lambda change: reconciler.wake() if about_machines(change) else None)
        self._services.append(asyncio.create_task(reconciler.run(), name=f"reconciler of {name}"))

        if self._prices_asked_every_s is not None and policy.scaling is not None:
            watch = PriceWatch(
                self.engine,
                name,
                self._prices,
                offers=policy.scaling.offers,
                period_s=self._prices_asked_every_s,
                clock=self._clock,
                rng=random.Random(self._rng_of_prices.getrandbits(64)),
            )
            self.price_watches.append(watch)
            self._services.append(asyncio.create_task(watch.run(), name=f"prices of {name}"))

    def _boot(self, instance: Instance) -> MachineBoot:
        return MachineBoot(
            master_url="http://simulated",
            agent_id=instance.id,
            resource_pool=instance.pool,
            instance_id=instance.id,
            join_token=self.hub.join_token(instance.id),
            artificial_slots=instance.slots,
        )

    def failure(self) -> BaseException | None:
        """What ended a service, if one ended unexpectedly."""
        for service in self._services:
            if service.done() and not service.cancelled() and service.exception() is not None:
                return service.exception()
        return None

    # -- connections -------------------------------------------------------------------------------------------

    async def carry(self, request: Callable[[SimulatedMaster], Awaitable[Result]]) -> Result:
        """One request over a connection that breaks when the process dies. Raises `Unavailable` then."""
        if self.dead.is_set():
            raise Unavailable("the master does not answer")
        work = asyncio.ensure_future(request(self))
        end = asyncio.ensure_future(self.dead.wait())
        try:
            await asyncio.wait([work, end], return_when=asyncio.FIRST_COMPLETED)
        finally:
            end.cancel()
            if not work.done():
                work.cancel()
        if self.dead.is_set() or work.cancelled() or not work.done():
            work.add_done_callback(lambda done: None if done.cancelled() else done.exception() and None)
            raise Unavailable("the connection to the master broke")
        return work.result()

    def serve(self, connection: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(connection)
        self._connections[task] = None
        task.add_done_callback(lambda done: self._connections.pop(done, None))

    # -- the end -----------------------------------------------------------------------------------------------

    async def kill(self) -> None:
        """Nothing of the process acts any more; what is in the tables stays."""
        self.dead.set()
        await self.store.close()
        tasks = [*self._services, *self._connections]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _without_a_thread(action: Callable[..., Any], *args: Any) -> Any:
    """Simulated trials have no files, and virtual time does not wait for threads."""
    return action(*args)
