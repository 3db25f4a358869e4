"""One reconciler for each elastic pool, and what its machines are told at their start."""

from __future__ import annotations

import asyncio
import os
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
from resolute_master.domain.change import Change
from resolute_master.domain.ids import PoolName
from resolute_master.domain.instance import Instance
from resolute_master.engine.engine import Engine
from resolute_master.engine.provisioning import PoolLedger, about_machines
from resolute_master.pools.clouds import CloudPlace, OpenCloud
from resolute_master.pools.machine_host import reachable_master
from resolute_master.pools.scripted_interruptions import InterruptionsBySteps
from resolute_master.store.base import Store
from resolute_master.trust import Trust
from resolute_provisioner.bootstrap import AgentWheel, MachineBoot
from resolute_provisioner.clouds.base import Cloud
from resolute_provisioner.reconcile import Reconciler, ReconcileSettings

CLOUD_MASTER_TIMEOUT_S = 600.0
"""A machine of a cloud that has not heard from its master for so long ends itself: as long as the master waits for it."""

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
    wheel: Callable[[], AgentWheel]
    """What machines of a real cloud run their agent from."""
    trust: Callable[[], Trust] = Trust
    """What machines check the master's certificate with."""

    async def start(self) -> list[asyncio.Task[None]]:
        """One reconciler a pool that is elastic, woken by every change of its machines. Clouds are opened beside the loop: an
        SDK takes its time, and agents that come back do not wait."""
        tasks: list[asyncio.Task[None]] = []
        for pool in self.config.resource_pools:
            place = CloudPlace(
                directory=Path(self.config.cluster_state_dir) / "pools" / pool.pool_name,
                environ=self.environ,
                clock=self.clock,
                wheel=self.wheel,
                trust=self.trust(),
            )
            cloud = await asyncio.to_thread(self.open_cloud, pool, place)
            if cloud is not None:
                tasks += self._of_pool(pool, cloud)
        return tasks

    def _of_pool(self, pool: ResourcePool, cloud: Cloud) -> list[asyncio.Task[None]]:
        assert pool.provider is not None
        local = isinstance(pool.provider, LocalProvider)
        cluster = f"{self.identity.cluster_id}/{pool.pool_name}"
        boot = MachineBoots(self.config, self.hub, pool, self.trust())
        ledger = PoolLedger(self.engine, self.engine.pools[PoolName(pool.pool_name)], cluster=cluster, boot=boot.of)
        reconciler = Reconciler(
            cloud=cloud,
            cluster=cluster,
            ledger=ledger,
            clock=self.clock,
            rng=random.Random(self.ids.bits(64)),
            settings=ReconcileSettings(steady_period_s=LOCAL_LISTING_S) if local else ReconcileSettings(),
        )
        self.engine.on_commit(_waking(reconciler))
        tasks = [asyncio.create_task(reconciler.run(), name=f"reconciler of {pool.pool_name}")]
        if isinstance(pool.provider, LocalProvider):
            from resolute_provisioner.clouds.local import LocalCloud  # as in `clouds`: not for every master

            if isinstance(cloud, LocalCloud):  # and not what is composed in its place
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


class MachineBoots:
    """What each machine of a pool is told at its start. Raises `InvalidInput` when machines could not reach this master."""

    def __init__(self, config: MasterConfig, hub: AgentHub, pool: ResourcePool, trust: Trust | None = None) -> None:
        provider = pool.provider
        assert provider is not None
        self._hub = hub
        self._slot_type = "artificial" if isinstance(provider, LocalProvider) else "auto"
        """Of a machine from before its offer was kept with it."""
        if isinstance(provider, LocalProvider):
            host = "127.0.0.1" if config.host in ("0.0.0.0", "::") else config.host
            self._master_url = (
                provider.master_url or f"{'https' if config.security.tls.on else 'http'}://{host}:{config.port}"
            )
            certified = {"tls_master_cert": trust.file} if trust is not None and trust.file else {}
            self._options = {**agent_options(provider, config), **certified}
            self._timeout_s = provider.master_timeout
        else:
            self._master_url = reachable_master(
                pool, provider.master_url, config.host, config.port, tls=config.security.tls.on
            )
            self._options = {}
            self._timeout_s = CLOUD_MASTER_TIMEOUT_S

    def of(self, instance: Instance) -> MachineBoot:
        slot_type = instance.offer.slot_type if instance.offer is not None else self._slot_type
        artificial = slot_type == "artificial"
        return MachineBoot(
            master_url=self._master_url,
            agent_id=instance.id,
            resource_pool=instance.pool,
            instance_id=instance.id,
            join_token=self._hub.join_token(instance.id),
            artificial_slots=instance.slots if artificial else 0,
            slot_type="auto" if artificial else slot_type,
            master_timeout_s=self._timeout_s,
            agent_options=self._options,
        )


def agent_options(provider: LocalProvider, config: MasterConfig) -> Mapping[str, object]:
    """Settings of the agents of a local pool's machines, beyond what every agent is told. They share this machine with the
    master, whose state is hidden from their tasks, and its processors with each other."""
    hidden = [config.cluster_state_dir, *([str(config.sqlite_path)] if config.sqlite_path is not None else [])]
    most = provider.slots_per_instance * provider.max_instances
    own = {
        "hidden_paths": [os.path.abspath(path) for path in hidden],
        "slot_threads": max(1, (os.cpu_count() or 1) // most),
    }
    if provider.container_runtime == "process":
        return own
    return {**own, "runtime": provider.container_runtime, "docker_host": provider.docker_host}
