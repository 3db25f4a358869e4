"""One reconciler for each elastic pool, and what its machines are told at their start."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from resolute.clock import Clock
from resolute.config import MasterConfig
from resolute.config.pools import ResourcePool
from resolute.config.providers import LocalProvider
from resolute.ids import IdSource
from resolute_master.agents.hub import AgentHub, ClusterIdentity
from resolute_master.clouds import OpenCloud, agent_options
from resolute_master.domain.change import Change
from resolute_master.domain.ids import PoolName
from resolute_master.domain.instance import Instance
from resolute_master.engine.engine import Engine
from resolute_master.engine.provisioning import PoolLedger, about_machines
from resolute_master.scripted_interruptions import InterruptionsBySteps
from resolute_master.store.base import Store
from resolute_provisioner.bootstrap import MachineBoot
from resolute_provisioner.clouds.base import Cloud
from resolute_provisioner.clouds.local import LocalCloud
from resolute_provisioner.reconcile import Reconciler, ReconcileSettings

LOCAL_LISTING_S = 2.0
"""The local cloud is asked so often even when nothing is known to change: its list is a look at some files."""


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
    hub: AgentHub
    identity: ClusterIdentity

    def start(self) -> list[asyncio.Task[None]]:
        """One reconciler a pool that is elastic, woken by every change of its machines."""
        tasks: list[asyncio.Task[None]] = []
        for pool in self.config.resource_pools:
            directory = Path(self.config.cluster_state_dir) / "pools" / pool.pool_name
            cloud = self.open_cloud(pool, directory, self.environ, self.clock)
            if cloud is not None:
                tasks += self._of_pool(pool, cloud)
        return tasks

    def _of_pool(self, pool: ResourcePool, cloud: Cloud) -> list[asyncio.Task[None]]:
        assert isinstance(pool.provider, LocalProvider)
        cluster = f"{self.identity.cluster_id}/{pool.pool_name}"
        boot = _Boot(self.config, self.hub, pool.provider)
        ledger = PoolLedger(self.engine, self.engine.pools[PoolName(pool.pool_name)], cluster=cluster, boot=boot.of)
        reconciler = Reconciler(
            cloud=cloud,
            cluster=cluster,
            ledger=ledger,
            clock=self.clock,
            rng=random.Random(self.ids.bits(64)),
            settings=ReconcileSettings(steady_period_s=LOCAL_LISTING_S),
        )
        self.engine.on_commit(_waking(reconciler))
        tasks = [asyncio.create_task(reconciler.run(), name=f"reconciler of {pool.pool_name}")]
        if isinstance(cloud, LocalCloud):
            script = InterruptionsBySteps(
                self.engine, self.store, cloud, PoolName(pool.pool_name), pool.provider.interruptions
            )
            tasks.append(asyncio.create_task(script.run(), name=f"scripted interruptions of {pool.pool_name}"))
        return tasks


def _waking(reconciler: Reconciler) -> Callable[[Change], None]:
    def look(change: Change) -> None:
        if about_machines(change):
            reconciler.wake()

    return look


class _Boot:
    """What a machine of the local cloud is told at its start."""

    def __init__(self, config: MasterConfig, hub: AgentHub, provider: LocalProvider) -> None:
        self._config = config
        self._hub = hub
        self._provider = provider

    def of(self, instance: Instance) -> MachineBoot:
        host = self._config.host
        reachable = "127.0.0.1" if host in ("0.0.0.0", "::") else host
        return MachineBoot(
            master_url=self._provider.master_url or f"http://{reachable}:{self._config.port}",
            agent_id=instance.id,
            resource_pool=instance.pool,
            instance_id=instance.id,
            join_token=self._hub.join_token(instance.id),
            artificial_slots=instance.slots,
            master_timeout_s=self._provider.master_timeout,
            agent_options=agent_options(self._provider),
        )
