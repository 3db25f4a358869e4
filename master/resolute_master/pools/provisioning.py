"""One reconciler for each elastic pool, and the boot data of its machines."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from resolute.clock import Clock
from resolute.config import MasterConfig
from resolute.config.pools import ResourcePool
from resolute.ids import IdSource
from resolute_master.domain.change import Change
from resolute_master.domain.ids import PoolName
from resolute_master.domain.instance import Instance
from resolute_master.engine.engine import Engine
from resolute_master.engine.provisioning import PoolLedger, about_machines
from resolute_master.pools.clouds import OpenCloud, master_place
from resolute_master.pools.scripted_interruptions import InterruptionsBySteps
from resolute_master.store.base import Store
from resolute_master.trust import NO_TRUST, Trust
from resolute_provisioner.bootstrap import AgentWheel, MachineBoot
from resolute_provisioner.clouds.base import Cloud
from resolute_provisioner.clouds.driver import CloudPlace, driver_of
from resolute_provisioner.reconcile import Reconciler, ReconcileSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Provisioning:
    """The parts of a master that the conversations with the clouds are made of."""

    config: MasterConfig
    environ: Mapping[str, str]
    clock: Clock
    ids: IdSource
    open_cloud: OpenCloud
    store: Store
    engine: Engine
    join_token: Callable[[str], str]
    """Returns the join token of the machine with this id."""
    cluster_id: str
    wheel: Callable[[], AgentWheel]
    """What machines of a real cloud run their agent from."""
    trust: Callable[[], Trust] = Trust
    """What machines check the master's certificate with."""

    async def start(self) -> list[asyncio.Task[None]]:
        """One reconciler a pool that is elastic, woken by every change of its machines. Clouds are opened beside the loop: an SDK
        is slow to load, and must not delay reconnecting agents."""
        tasks: list[asyncio.Task[None]] = []
        for pool in self.config.resource_pools:
            place = CloudPlace(
                directory=Path(self.config.cluster_state_dir) / "pools" / pool.pool_name,
                environ=self.environ,
                clock=self.clock,
                wheel=self.wheel,
                certificate=self.trust().pem,
            )
            cloud = await asyncio.to_thread(self.open_cloud, pool, place)
            if cloud is not None:
                tasks += self._of_pool(pool, cloud)
        return tasks

    def _of_pool(self, pool: ResourcePool, cloud: Cloud) -> list[asyncio.Task[None]]:
        assert pool.provider is not None
        driver = driver_of(pool.provider)
        cluster = f"{self.cluster_id}/{pool.pool_name}"
        boot = MachineBoots(self.config, self.join_token, pool, self.trust())
        ledger = PoolLedger(self.engine, self.engine.pools[PoolName(pool.pool_name)], cluster=cluster, boot=boot.of)
        reconciler = Reconciler(
            cloud=cloud,
            cluster=cluster,
            ledger=ledger,
            clock=self.clock,
            rng=random.Random(self.ids.bits(64)),
            settings=ReconcileSettings(steady_period_s=driver.listing_period_s),
        )
        self.engine.on_commit(_waking(reconciler))
        tasks = [asyncio.create_task(reconciler.run(), name=f"reconciler of {pool.pool_name}")]
        scripted = driver.interruptions(pool.provider, cloud)
        if scripted is not None:
            script = InterruptionsBySteps(self.engine, self.store, scripted[0], PoolName(pool.pool_name), scripted[1])
            tasks.append(asyncio.create_task(script.run(), name=f"scripted interruptions of {pool.pool_name}"))
        return tasks


def _waking(reconciler: Reconciler) -> Callable[[Change], None]:
    def look(change: Change) -> None:
        if about_machines(change):
            reconciler.wake()

    return look


class MachineBoots:
    """The boot data of each machine of a pool. Raises `InvalidInput` when machines could not reach this master."""

    def __init__(
        self, config: MasterConfig, join_token: Callable[[str], str], pool: ResourcePool, trust: Trust | None = None
    ) -> None:
        assert pool.provider is not None
        self._join_token = join_token
        place = master_place(config, {}, trust or NO_TRUST)
        self._link = driver_of(pool.provider).link(pool, pool.provider, place)

    def of(self, instance: Instance) -> MachineBoot:
        slot_type = instance.offer.slot_type if instance.offer is not None else self._link.slot_type
        artificial = slot_type == "artificial"
        return MachineBoot(
            master_url=self._link.master_url,
            agent_id=instance.id,
            resource_pool=instance.pool,
            instance_id=instance.id,
            join_token=self._join_token(instance.id),
            artificial_slots=instance.slots if artificial else 0,
            slot_type="auto" if artificial else slot_type,
            master_timeout_s=self._link.master_timeout_s,
            agent_options=self._link.agent_options,
        )
